//! Everything a run has measured, by system, cell and round.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::cell::Cell;
use super::drive::Sample;
use super::target::{Id, Label};
use crate::stats::{self, Spread};

/// The samples of a run.
#[derive(Default)]
pub struct Results {
    labels: BTreeMap<Id, Label>,
    samples: BTreeMap<(Id, Cell), BTreeMap<usize, Sample>>,
    failures: Vec<String>,
}

impl Results {
    /// Adds a system that takes part.
    pub fn announce(&mut self, label: &Label) {
        self.labels.insert(label.id, label.clone());
    }

    /// Adds the sample of one system, cell and round.
    pub fn record(&mut self, id: Id, cell: Cell, round: usize, sample: Sample) {
        self.samples.entry((id, cell)).or_default().insert(round, sample);
    }

    /// Notes a measurement that failed.
    pub fn fail(&mut self, what: String) {
        self.failures.push(what);
    }

    /// Measurements that failed.
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Labels of the systems that took part, in the order of the tables.
    pub fn labels(&self) -> impl Iterator<Item = &Label> {
        self.labels.values()
    }

    /// Label of the system with this id.
    pub fn label(&self, id: Id) -> Option<&Label> {
        self.labels.get(&id)
    }

    /// Operations in a second over the rounds.
    pub fn rate(&self, id: Id, cell: Cell) -> Option<Spread> {
        let rounds = self.samples.get(&(id, cell))?;
        Spread::of(&rounds.values().map(|sample| sample.per_second).collect::<Vec<_>>())
    }

    /// Latencies of all rounds together, in microseconds.
    pub fn micros(&self, id: Id, cell: Cell) -> Option<Histogram<u64>> {
        let mut rounds = self.samples.get(&(id, cell))?.values();
        let mut all = rounds.next()?.micros.clone();
        for sample in rounds {
            all.add(&sample.micros).ok()?;
        }
        Some(all)
    }

    /// Ratio of our rate to the peer's, round by round.
    pub fn ratio(&self, ours: Id, peer: Id, cell: Cell) -> Option<Spread> {
        self.ratio_between((ours, cell), (peer, cell))
    }

    /// As [`Results::ratio`], for two cells that may differ.
    pub fn ratio_between(&self, ours: (Id, Cell), peer: (Id, Cell)) -> Option<Spread> {
        let (ours, peer) = (self.samples.get(&ours)?, self.samples.get(&peer)?);
        let both = ours.iter().filter_map(|(round, sample)| Some((sample.per_second, peer.get(round)?.per_second)));
        let (ours, peer): (Vec<f64>, Vec<f64>) = both.unzip();
        stats::ratios(&ours, &peer)
    }
}

#[cfg(test)]
pub mod tests {
    use std::time::Duration;

    use super::super::cell::MAIN_SEND;
    use super::super::drive::new_histogram;
    use super::super::target::Promise;
    use super::*;

    /// A system that did `operations` in a second, each in a millisecond.
    pub fn sample(operations: u64) -> Sample {
        let mut micros = new_histogram().expect("bounds");
        micros.record_n(1_000, operations).expect("in bounds");
        Sample::of(micros, Duration::from_secs(1))
    }

    pub fn label(id: Id, name: &str) -> Label {
        Label { id, name: name.to_owned(), setting: "as it is".to_owned(), promise: Promise::Synced }
    }

    #[test]
    fn rounds_are_paired_by_their_number() {
        let mut results = Results::default();
        for (round, ours) in [(0, 100), (1, 300), (2, 200)] {
            results.record(Id::Durable, MAIN_SEND, round, sample(ours));
        }
        results.record(Id::NatsAlways, MAIN_SEND, 1, sample(100));
        results.record(Id::NatsAlways, MAIN_SEND, 2, sample(200));
        let ratio = results.ratio(Id::Durable, Id::NatsAlways, MAIN_SEND).expect("two rounds in common");
        assert_eq!((ratio.min, ratio.median, ratio.max), (1.0, 2.0, 3.0));
        assert_eq!(results.rate(Id::Durable, MAIN_SEND).map(|rate| rate.median), Some(200.0));
        assert_eq!(results.micros(Id::Durable, MAIN_SEND).map(|all| all.len()), Some(600));
        assert_eq!(results.ratio(Id::Durable, Id::RedisAlways, MAIN_SEND), None);
    }
}
