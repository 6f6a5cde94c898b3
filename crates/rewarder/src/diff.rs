//! What changed between two runs, actor by actor, and why: every delta is split into its causes, which add up to it.
//!
//! The causes come from computing the way from one run to the other in steps: the order among equals first, then the
//! usage, then the rules, then the pools. What a step changes is due to its cause. In a correction the amounts compared
//! are what actors are entitled to, not what is paid now.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;

use ron_calculus::{AssetAllocation, Policy, Question, Totals, Units, allocate};
use ron_ledger::RunKey;
use serde::{Serialize, Serializer};

use crate::correct::union;
use crate::job::Computed;

/// One of the two runs.
#[derive(Clone, Debug)]
pub struct Side<'a> {
    /// Its epoch, or the name of a draft.
    pub name: String,
    /// Policy in force.
    pub policy: &'a Policy,
    /// Usage, added up.
    pub totals: &'a Totals,
    /// Key that equals are ordered by.
    pub run_key: RunKey,
    /// Units carried in.
    pub carry: BTreeMap<String, u128>,
    /// What everyone is entitled to.
    pub entitled: &'a [AssetAllocation],
}

/// Why an amount changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Equals stand in another order: one unit more or less.
    Order,
    /// The usage is another.
    Input,
    /// The policy weighs, caps or rounds otherwise.
    Policy,
    /// The rules themselves are of another version.
    Ruleset,
    /// Another number of units is divided.
    Pool,
    /// Causes that cannot be told apart: a step between the runs cannot be computed.
    Several,
}

/// A difference between two amounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// Whether the amount became smaller.
    pub is_less: bool,
    /// Units of difference.
    pub units: u128,
}

impl Delta {
    /// From one amount to another.
    pub fn between(from: u128, to: u128) -> Delta {
        Delta { is_less: to < from, units: from.abs_diff(to) }
    }
}

impl fmt::Display for Delta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.is_less { "-" } else { "+" }, self.units)
    }
}

impl Serialize for Delta {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The difference between two runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// The run compared with.
    pub from: String,
    /// The run compared.
    pub to: String,
    /// What differs between them.
    pub causes: Vec<Cause>,
    /// By asset: those of the first run, then those that only the second has.
    pub assets: Vec<AssetDiff>,
}

/// The difference in one asset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AssetDiff {
    /// Name of the asset.
    pub asset: String,
    /// Units paid in the first run.
    pub paid_from: Units,
    /// Units paid in the second run.
    pub paid_to: Units,
    /// Actors that get more.
    pub more: u64,
    /// Actors that get less.
    pub less: u64,
    /// Units gained by those that get more.
    pub gained: Units,
    /// Units lost by those that get less.
    pub lost: Units,
    /// The largest changes, largest first.
    pub largest: Vec<ActorDiff>,
}

/// The change of one actor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ActorDiff {
    /// The actor.
    pub actor: String,
    /// Units in the first run.
    pub from: Units,
    /// Units in the second run.
    pub to: Units,
    /// The change.
    pub delta: Delta,
    /// What it is due to; these add up to the change.
    pub causes: Vec<CausedDelta>,
}

/// Part of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CausedDelta {
    /// What it is due to.
    pub cause: Cause,
    /// How much of the change.
    pub delta: Delta,
}

impl<'a> Side<'a> {
    /// A run as one side.
    pub fn of(computed: &'a Computed) -> Side<'a> {
        Side {
            name: computed.basis.epoch.to_string(),
            policy: &computed.basis.policy,
            totals: &computed.basis.totals,
            run_key: *computed.order_key(),
            carry: computed.basis.carry_units(),
            entitled: computed.outcome.as_ref().map_or(&[][..], |payouts| &payouts.entitled),
        }
    }

    fn amount(&self, asset: &str, actor: &str) -> u128 {
        amount(self.entitled, self.totals, asset, actor)
    }
}

fn amount(allocations: &[AssetAllocation], totals: &Totals, asset: &str, actor: &str) -> u128 {
    let allocation = allocations.iter().find(|allocation| allocation.asset == asset);
    allocation.zip(totals.roster().find(actor)).map_or(0, |(allocation, place)| allocation.amounts[place])
}

/// Compares two runs; lists at most so many actors for each asset.
pub fn diff(from: &Side<'_>, to: &Side<'_>, listed_max: usize, threads: usize) -> Diff {
    let mut assets: Vec<&str> = from.entitled.iter().map(|allocation| allocation.asset.as_str()).collect();
    let more = to.entitled.iter().map(|allocation| allocation.asset.as_str());
    let more: Vec<&str> = more.filter(|asset| !assets.contains(asset)).collect();
    assets.extend(more);
    let mut assets: Vec<AssetDiff> = assets.iter().map(|asset| compare(from, to, asset, listed_max)).collect();
    let steps = steps(from, to);
    explain_largest(to, &steps, &mut assets, threads);
    let causes = steps.iter().map(|step| step.cause).collect();
    Diff { from: from.name.clone(), to: to.name.clone(), causes, assets }
}

fn compare(from: &Side<'_>, to: &Side<'_>, asset: &str, listed_max: usize) -> AssetDiff {
    let of = |side: &Side<'_>| side.entitled.iter().position(|allocation| allocation.asset == asset);
    let (a, b) = (of(from).map(|i| &from.entitled[i]), of(to).map(|i| &to.entitled[i]));
    let (roster, places) = union(from.totals.roster(), to.totals.roster());
    let at = |side: Option<&AssetAllocation>, place: Option<usize>| side.zip(place).map_or(0, |(s, p)| s.amounts[p]);
    let (mut more, mut less, mut gained, mut lost) = (0, 0, 0_u128, 0_u128);
    // The largest changes; among equals the first actor in byte order stays.
    let mut largest = BinaryHeap::with_capacity(listed_max + 1);
    for (index, place) in places.iter().enumerate() {
        let delta = Delta::between(at(a, place.0), at(b, place.1));
        if delta.units == 0 {
            continue;
        }
        let (count, sum) = if delta.is_less { (&mut less, &mut lost) } else { (&mut more, &mut gained) };
        *count += 1;
        *sum = sum.saturating_add(delta.units);
        largest.push(Reverse((delta.units, Reverse(index))));
        if largest.len() > listed_max {
            largest.pop();
        }
    }
    let listed = largest.into_sorted_vec().into_iter().map(|Reverse((_, Reverse(index)))| {
        let (from, to) = (at(a, places[index].0), at(b, places[index].1));
        let (actor, delta) = (roster.get(index).to_owned(), Delta::between(from, to));
        ActorDiff { actor, from: Units(from), to: Units(to), delta, causes: Vec::new() }
    });
    AssetDiff {
        asset: asset.to_owned(),
        paid_from: Units(a.map_or(0, |allocation| allocation.paid)),
        paid_to: Units(b.map_or(0, |allocation| allocation.paid)),
        more,
        less,
        gained: Units(gained),
        lost: Units(lost),
        largest: listed.collect(),
    }
}

/// One step on the way from a run to another.
struct Step<'a> {
    cause: Cause,
    policy: Policy,
    totals: &'a Totals,
    run_key: RunKey,
    carry: &'a BTreeMap<String, u128>,
}

/// The steps from one run to the other, without those that change nothing.
fn steps<'a>(from: &'a Side<'_>, to: &'a Side<'_>) -> Vec<Step<'a>> {
    let rules = with_pools_of(to.policy, from.policy);
    let mut steps = Vec::new();
    let mut step = |cause, policy: &Policy, totals, carry| {
        steps.push(Step { cause, policy: policy.clone(), totals, run_key: to.run_key, carry });
    };
    if from.run_key != to.run_key {
        step(Cause::Order, from.policy, from.totals, &from.carry);
    }
    if from.totals != to.totals {
        step(Cause::Input, from.policy, to.totals, &from.carry);
    }
    if rules != *from.policy {
        let is_version = from.policy.ruleset != to.policy.ruleset;
        step(if is_version { Cause::Ruleset } else { Cause::Policy }, &rules, to.totals, &from.carry);
    }
    let target = Policy { id: rules.id.clone(), release: rules.release.clone(), ..to.policy.clone() };
    if rules != target || from.carry != to.carry {
        step(Cause::Pool, to.policy, to.totals, &to.carry);
    }
    steps
}

/// The rules of one policy with the pools of another, as far as both know them. The name and the limits of release are
/// the other's too: they move no unit.
fn with_pools_of(rules: &Policy, pools: &Policy) -> Policy {
    let mut mixed = Policy { id: pools.id.clone(), release: pools.release.clone(), ..rules.clone() };
    for asset in &mut mixed.assets {
        let Some(other) = pools.assets.iter().find(|other| other.asset == asset.asset) else { continue };
        if asset.groups.keys().eq(other.groups.keys()) {
            asset.pool = other.pool;
            asset.groups.clone_from(&other.groups);
        }
    }
    mixed
}

/// Splits the changes of the actors listed by their causes. Only their amounts are kept of each step.
fn explain_largest(to: &Side<'_>, steps: &[Step<'_>], assets: &mut [AssetDiff], threads: usize) {
    let mut before: Vec<Vec<u128>> =
        assets.iter().map(|asset| asset.largest.iter().map(|actor| actor.from.0).collect()).collect();
    // A step that cannot be computed is told together with the next one that can.
    let mut pending = None;
    for (number, step) in steps.iter().enumerate() {
        let cause = if pending.is_some() { Cause::Several } else { step.cause };
        let is_last = number + 1 == steps.len();
        let allocations = if is_last { None } else { step.allocate(threads) };
        if !is_last && allocations.is_none() {
            pending = Some(step.cause);
            continue;
        }
        pending = None;
        for (asset, before) in assets.iter_mut().zip(&mut before) {
            for (actor, before) in asset.largest.iter_mut().zip(before) {
                let after = match &allocations {
                    Some(allocations) => amount(allocations, step.totals, &asset.asset, &actor.actor),
                    None => to.amount(&asset.asset, &actor.actor),
                };
                let delta = Delta::between(*before, after);
                if delta.units > 0 {
                    actor.causes.push(CausedDelta { cause, delta });
                }
                *before = after;
            }
        }
    }
}

impl Step<'_> {
    fn allocate(&self, threads: usize) -> Option<Vec<AssetAllocation>> {
        let Step { policy, totals, run_key, carry, .. } = self;
        allocate(&Question { policy, totals, run_key, carry, threads }).ok()
    }
}
