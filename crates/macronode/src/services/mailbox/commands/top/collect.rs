//! Keeps the numbers of the topics: the busy ones are asked for with each look, the others by turns.

use std::collections::BTreeMap;

use ron_kernel::clock;
use serde::Deserialize;
use tokio::time::Instant;

use super::view::{TopicRates, TopicSample};
use crate::client::{ApiClient, PATIENCE};
use crate::errors::Failure;
use crate::services::mailbox::commands::stats::{Numbers, TopicStats, path_of};
use crate::services::mailbox::commands::types::segment;

/// Maximum topics in one page of the list.
const PAGE: usize = 1000;
/// Maximum topics that are listed.
const TOPICS_MAX: usize = 10_000;
/// Topics whose numbers are asked for in one look: each is a request of its own.
const ASKED_MAX: usize = 100;
/// Maximum topics among those that were busy at their last look; the others take turns.
const ASKED_BUSY_MAX: usize = 75;

/// Topics of one node, asked about again and again.
#[derive(Default)]
pub struct TopicCollector {
    known: BTreeMap<String, Known>,
    looks: u64,
}

/// A topic as it was seen last.
#[derive(Clone, Debug, Default)]
struct Known {
    numbers: Option<Numbers>,
    /// Moment of the last numbers; none if no rate may be counted from them.
    counted_from: Option<Instant>,
    rates: TopicRates,
    /// Number of the look in which it was asked for.
    asked_in: u64,
    /// Number of the look in which it was listed.
    listed_in: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Page {
    topics: Vec<Named>,
    next: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
}

impl TopicCollector {
    /// Asks for the numbers of the topics that are due and returns all known ones.
    pub async fn look(&mut self, api: &mut ApiClient) -> Result<Vec<TopicSample>, Failure> {
        self.looks += 1;
        self.list_topics(api).await?;
        for name in to_ask(&self.known) {
            self.look_at(api, &name).await?;
        }
        let sample = |(name, known): (&String, &Known)| TopicSample {
            name: name.clone(),
            numbers: known.numbers.clone().unwrap_or_default(),
            rates: known.rates,
        };
        Ok(self.known.iter().map(sample).collect())
    }

    /// Keeps the numbers, since it takes many looks to see all of them again, but counts no rate from them.
    pub fn forget(&mut self) {
        self.known.values_mut().for_each(|known| known.counted_from = None);
    }

    /// Learns of new topics and forgets those that are gone.
    async fn list_topics(&mut self, api: &mut ApiClient) -> Result<(), Failure> {
        let (mut listed, mut after) = (0, String::new());
        while listed < TOPICS_MAX {
            let page: Page = api.get(&format!("/v1/topics?limit={PAGE}{after}")).await?.read("/v1/topics")?;
            listed += page.topics.len();
            for topic in page.topics {
                self.known.entry(topic.name).or_default().listed_in = self.looks;
            }
            match page.next {
                Some(next) => after = format!("&after={}", segment(&next)),
                None => break,
            }
        }
        self.known.retain(|_, known| known.listed_in == self.looks);
        Ok(())
    }

    async fn look_at(&mut self, api: &mut ApiClient, name: &str) -> Result<(), Failure> {
        let path = path_of(name);
        let answer = api.ask(http::Method::GET, &path, None, PATIENCE).await?;
        if answer.status == 404 {
            // It was removed since it was listed.
            self.known.remove(name);
            return Ok(());
        }
        let stats: TopicStats = api.accepted(&path, answer)?.read(&path)?;
        if let Some(known) = self.known.get_mut(name) {
            known.asked_in = self.looks;
            known.look(clock::now(), stats.total);
        }
        Ok(())
    }
}

/// The topics to ask about: the busiest, and some of the others by turns.
fn to_ask(known: &BTreeMap<String, Known>) -> Vec<String> {
    let (mut busy, mut quiet): (Vec<_>, Vec<_>) = known.iter().partition(|(_, known)| known.business() > 0.0);
    busy.sort_by(|(_, left), (_, right)| right.business().total_cmp(&left.business()));
    quiet.extend(busy.split_off(busy.len().min(ASKED_BUSY_MAX)));
    quiet.sort_by_key(|(_, known)| known.asked_in);
    quiet.truncate(ASKED_MAX - busy.len());
    busy.into_iter().chain(quiet).map(|(name, _)| name.clone()).collect()
}

impl Known {
    fn business(&self) -> f64 {
        let Some(numbers) = &self.numbers else { return 0.0 };
        let rates = self.rates.inward.unwrap_or(0.0) + self.rates.outward.unwrap_or(0.0);
        (numbers.ready + numbers.leased + numbers.delayed) as f64 + rates
    }

    fn look(&mut self, now: Instant, numbers: Numbers) {
        self.rates = match (&self.numbers, self.counted_from) {
            (Some(old), Some(before)) => TopicRates::between(old, &numbers, (now - before).as_secs_f64()),
            _ => TopicRates::default(),
        };
        (self.numbers, self.counted_from) = (Some(numbers), Some(now));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn numbers(ready: u64, sent: u64) -> Numbers {
        Numbers { ready, sent, delivered: sent / 2, ..Numbers::default() }
    }

    #[test]
    fn rates_of_a_topic_are_since_it_was_last_seen() {
        let start = clock::now();
        let mut known = Known::default();
        known.look(start, numbers(0, 100));
        assert_eq!(known.rates, TopicRates::default(), "one look knows no rate");
        known.look(start + Duration::from_secs(4), numbers(0, 500));
        assert_eq!((known.rates.inward, known.rates.outward), (Some(100.0), Some(50.0)));
        known.look(start + Duration::from_secs(5), numbers(0, 3));
        assert_eq!(known.rates.inward, None, "the node was restarted");
        let mut topics = TopicCollector { known: BTreeMap::from([("a".to_owned(), known)]), looks: 3 };
        topics.forget();
        let known = topics.known.get_mut("a").expect("still known");
        assert_eq!(known.numbers.as_ref().map(|numbers| numbers.sent), Some(3));
        known.look(start + Duration::from_secs(9), numbers(0, 900));
        assert_eq!(known.rates.inward, None, "it may have been restarted in the gap");
    }

    #[test]
    fn busy_topics_are_asked_each_time_and_quiet_ones_in_turn() {
        let mut known: BTreeMap<String, Known> = BTreeMap::new();
        for number in 0..1000_u64 {
            let mut one = Known { asked_in: number, ..Known::default() };
            one.look(clock::now(), numbers(if number < 90 { number + 1 } else { 0 }, 0));
            known.insert(format!("t{number:03}"), one);
        }
        let asked = to_ask(&known);
        assert_eq!(asked.len(), ASKED_MAX);
        assert_eq!((asked[0].as_str(), asked[ASKED_BUSY_MAX - 1].as_str()), ("t089", "t015"));
        assert_eq!(asked[ASKED_BUSY_MAX], "t000", "then whoever waited longest");
        known.retain(|name, _| name.as_str() < "t003");
        assert_eq!(to_ask(&known).len(), 3);
    }
}
