//! One epoch: its policy, its rows and what was carried in, as text and as a question.

use std::collections::{BTreeMap, BTreeSet};

use ron_calculus::{AssetAllocation, Breach, Explanation, Policy, Question, Slot, Totals, Units};
use serde::{Deserialize, Serialize};

/// A row: actor, metric, group, asset, quantity.
pub type Row = (String, String, Option<String>, Option<String>, Units);

/// An epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    pub policy: Policy,
    #[serde(default)]
    pub carry: BTreeMap<String, Units>,
    pub rows: Vec<Row>,
}

/// The run key of all these epochs: nothing depends on how it was made.
pub const RUN_KEY: [u8; 32] = [7; 32];

/// A row of the metric `usage`.
pub fn row(actor: &str, quantity: u128) -> Row {
    (actor.to_owned(), "usage".to_owned(), None, None, Units(quantity))
}

impl Case {
    /// One asset with these fields beside its name and the weight 1 of `usage`, and one row for each actor.
    pub fn simple(fields: &str, quantities: &[u128]) -> Case {
        let rows = quantities.iter().enumerate().map(|(index, quantity)| row(&format!("a{index:04}"), *quantity));
        Case::new(&format!(r#"{{"asset":"RON","weights":{{"usage":"1"}},{fields}}}"#), rows.collect())
    }

    /// These assets and rows.
    pub fn new(assets: &str, rows: Vec<Row>) -> Case {
        let policy = format!(r#"{{"id":"test","ruleset":1,"assets":[{assets}]}}"#);
        let policy = Policy::parse(policy.as_bytes()).unwrap_or_else(|error| panic!("{error}: {policy}"));
        Case { policy, carry: BTreeMap::new(), rows }
    }

    /// The rows added up.
    pub fn totals(&self) -> Totals {
        let slot = |row: &Row| Slot { metric: row.1.clone(), group: row.2.clone(), asset: row.3.clone() };
        let slots: Vec<Slot> = self.rows.iter().map(slot).collect::<BTreeSet<_>>().into_iter().collect();
        let mut actors: BTreeMap<&str, BTreeMap<u16, u128>> = BTreeMap::new();
        for row in &self.rows {
            let index = slots.binary_search(&slot(row)).expect("it was collected") as u16;
            *actors.entry(&row.0).or_default().entry(index).or_default() += row.4.0;
        }
        let mut totals = Totals::new(slots).expect("sorted");
        for (actor, entries) in actors {
            assert!(totals.push(actor, &entries.into_iter().collect::<Vec<_>>()));
        }
        totals
    }

    fn ask<T>(&self, threads: usize, answer: impl FnOnce(&Question<'_>) -> T) -> T {
        let totals = self.totals();
        let carry = self.carry.iter().map(|(asset, units)| (asset.clone(), units.0)).collect();
        answer(&Question { policy: &self.policy, totals: &totals, run_key: &RUN_KEY, carry: &carry, threads })
    }

    /// The answer, or why there is none.
    pub fn try_allocate(&self, threads: usize) -> Result<Vec<AssetAllocation>, Breach> {
        self.ask(threads, ron_calculus::allocate)
    }

    /// The answer.
    pub fn allocate(&self) -> Vec<AssetAllocation> {
        self.try_allocate(1).unwrap_or_else(|breach| panic!("{breach}: {self:?}"))
    }

    /// The amounts of the only asset.
    pub fn amounts(&self) -> Vec<u128> {
        self.allocate().remove(0).amounts
    }

    /// How an actor's amounts came about.
    pub fn explain(&self, allocations: &[AssetAllocation], actor: &str) -> Explanation {
        self.ask(1, |question| ron_calculus::explain(question, allocations, actor)).expect("it was allocated")
    }
}
