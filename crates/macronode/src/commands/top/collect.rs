//! Takes samples of a node through both of its planes.

use std::collections::BTreeMap;

use ron_kernel::clock;
use serde::Deserialize;
use tokio::time::Instant;

use super::view::{NodeStats, Sample, TopicRates, TopicSample};
use crate::cli::{ApiArgs, ClientArgs};
use crate::client::{ApiClient, Client};
use crate::commands::mailbox::{Numbers, TopicStats, stats_path, types::segment};
use crate::commands::view::{Status, Topology};
use crate::errors::Failure;

/// Topics of one page.
const PAGE: usize = 1000;
/// Topics known at most.
const TOPICS_MAX: usize = 10_000;
/// Topics whose numbers are asked for in one look: each is a request of its own.
const ASKED_MAX: usize = 100;
/// Of those, topics that were busy at their last look; the others take turns.
const ASKED_BUSY_MAX: usize = 75;

/// Asks one node again and again.
pub struct Collector {
    admin: Client,
    api: ApiClient,
    known: BTreeMap<String, Known>,
    looks: u64,
}

/// A topic as it was seen last.
#[derive(Clone, Debug, Default)]
struct Known {
    seen: Option<(Instant, Numbers)>,
    rates: TopicRates,
    /// The look in which it was asked for.
    asked_in: u64,
    /// The look in which it was listed.
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

impl Collector {
    /// Finds both planes of the node.
    pub fn find(admin: Option<&String>, api: &ApiArgs) -> Result<Collector, Failure> {
        let ApiArgs { data_dir, token_file, ca, .. } = api.clone();
        let args = ClientArgs { admin: admin.cloned(), data_dir, token_file, ca, ..ClientArgs::default() };
        let (admin, api) = (Client::find(&args)?, ApiClient::find(api)?);
        Ok(Collector { admin, api, known: BTreeMap::new(), looks: 0 })
    }

    /// Where the node is.
    pub fn address(&self) -> String {
        self.api.address().to_owned()
    }

    /// The node now.
    pub async fn sample(&mut self) -> Result<Sample, Failure> {
        self.looks += 1;
        let status: Status = self.admin.get("/readyz").await?.read("/readyz")?;
        let topology: Topology = self.admin.get("/topology").await?.expect_success("/topology")?.read("/topology")?;
        let stats: NodeStats = self.api.get("/v1/stats").await?.read("/v1/stats")?;
        let taken = clock::now();
        self.list_topics().await?;
        for name in to_ask(&self.known) {
            self.look_at(&name).await?;
        }
        let sample = |(name, known): (&String, &Known)| TopicSample {
            name: name.clone(),
            numbers: known.seen.as_ref().map(|(_, numbers)| numbers.clone()).unwrap_or_default(),
            rates: known.rates,
        };
        let topics = self.known.iter().map(sample).collect();
        Ok(Sample { taken, status, queues: topology.queues, stats, topics })
    }

    /// Learns of new topics and forgets those that are gone.
    async fn list_topics(&mut self) -> Result<(), Failure> {
        let (mut listed, mut after) = (0, String::new());
        while listed < TOPICS_MAX {
            let page: Page = self.api.get(&format!("/v1/topics?limit={PAGE}{after}")).await?.read("/v1/topics")?;
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

    async fn look_at(&mut self, name: &str) -> Result<(), Failure> {
        let path = stats_path(name);
        let answer = self.api.ask(http::Method::GET, &path, None, crate::client::PATIENCE).await?;
        if answer.status == 404 {
            // It was removed since it was listed.
            self.known.remove(name);
            return Ok(());
        }
        let stats: TopicStats = self.api.accepted(&path, answer)?.read(&path)?;
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
        let Some((_, numbers)) = &self.seen else { return 0.0 };
        let rates = self.rates.inward.unwrap_or(0.0) + self.rates.outward.unwrap_or(0.0);
        (numbers.ready + numbers.leased + numbers.delayed) as f64 + rates
    }

    fn look(&mut self, now: Instant, numbers: Numbers) {
        self.rates = match &self.seen {
            Some((before, old)) => TopicRates::between(old, &numbers, (now - *before).as_secs_f64()),
            None => TopicRates::default(),
        };
        self.seen = Some((now, numbers));
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
