//! A rewarder for tests: an engine without a running kernel, on one simulated disk, with a ledger that fails on order.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use ron_calculus::{AssetAllocation, Breach, Policy, Question, Slot, Totals};
use ron_kernel::{Builder, Deadline, KernelOptions, Metrics, Snapshot};
use ron_ledger::{Batch, Direction, LedgerError, Outcome, RunKey, Tally};
use ron_log::{Disk, DiskFile, Durability, RamDisk, SimDisk};

use super::engine::{Computation, Engine, Flight, LiveOptions, ServiceOptions, lock};
use super::ledger_port::PayoutLedger;
use super::request::Prepared;
use super::{Receivers, make_engine};
use crate::config::Options;
use crate::correct::{Bounds, Correction};
use crate::epoch::EpochId;
use crate::folders::Folders;
use crate::inputs::Inputs;
use crate::intents::Intents;
use crate::job::{Basis, Computed, Cost, Divide, Job, Unwatched, settle};
use crate::manifest::{FORMAT, InputFacts};
use crate::policy_document::PolicyDocument;
use crate::usage_meter::UsageMeter;

/// Actors of an epoch, so many that its payouts take several batches and a cursor.
pub const ACTORS: u128 = 40;
/// Payouts in one batch.
pub const BATCH: usize = 2;

/// A part of a disk: files whose names begin alike. One simulated disk then has all files of a rewarder, and a power
/// cut hits all of them at one moment.
#[derive(Clone)]
pub struct PartDisk {
    pub disk: SimDisk,
    pub prefix: String,
}

impl PartDisk {
    fn full(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

impl Disk for PartDisk {
    fn durability(&self) -> Durability {
        self.disk.durability()
    }
    fn secret(&self) -> u32 {
        self.disk.secret()
    }
    fn claim(&self) -> bool {
        true
    }
    fn unclaim(&self) {}
    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }
    fn list(&self) -> io::Result<Vec<String>> {
        let names = self.disk.list()?;
        Ok(names.iter().filter_map(|name| name.strip_prefix(&self.prefix)).map(str::to_owned).collect())
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.create(&self.full(name))
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(&self.full(name))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(&self.full(from), &self.full(to))
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(&self.full(name))
    }
    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }
}

/// Folders on the same simulated disk.
#[derive(Clone)]
pub struct PartFolders(pub SimDisk);

impl PartFolders {
    fn part(&self, name: &str) -> PartDisk {
        PartDisk { disk: self.0.clone(), prefix: format!("epoch~{name}~") }
    }
}

impl Folders for PartFolders {
    fn make(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        Ok(Arc::new(self.part(name)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        let part = self.part(name);
        if part.list()?.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(Arc::new(part)) }
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let all = self.0.list()?;
        let names = all.iter().filter_map(|name| name.strip_prefix("epoch~")?.split_once('~'));
        let mut names: Vec<String> = names.map(|(epoch, _)| epoch.to_owned()).collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let part = self.part(name);
        part.list()?.iter().try_for_each(|file| part.remove(file))?;
        part.sync_dir()
    }
}

/// What goes wrong at a call to the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It does not answer, and nothing was booked.
    Unavailable,
    /// Everything was booked, and the answer is lost.
    LostAnswer,
    /// The node dies: no call is answered from here on; what was sent is booked or not.
    Dies { is_booked: bool },
}

/// A ledger that outlives the node, and keeps what it is sent.
#[derive(Clone, Default)]
pub struct SimLedger(Arc<Mutex<SimBook>>);

#[derive(Clone, Default)]
pub struct SimBook {
    /// Content of each key: run, asset, account, amount and way.
    pub booked: BTreeMap<[u8; 32], (RunKey, String, String, u128, bool)>,
    pub calls: u64,
    pub faults: BTreeMap<u64, Fault>,
    pub is_dead: bool,
    pub refuses: Option<String>,
    /// Call from which on everything is refused.
    pub refuses_from: Option<u64>,
    pub hides: u64,
    /// Batches with a payout to this account are refused.
    pub refuses_account: Option<String>,
    /// Batches of this pot are refused.
    pub refuses_pot: Option<String>,
    /// It books whatever has another key, as a ledger does that knows nothing of pots.
    pub forgets_pots: bool,
    /// The run that pays from each pot.
    pub payers: BTreeMap<String, RunKey>,
    /// The run that corrects a run.
    pub followers: BTreeMap<RunKey, RunKey>,
}

impl SimLedger {
    pub fn book(&self) -> std::sync::MutexGuard<'_, SimBook> {
        lock(&self.0)
    }

    /// The next node finds it as it is, and it answers again.
    pub fn revive(&self) {
        let mut book = self.book();
        book.is_dead = false;
        book.faults.clear();
    }

    /// An older copy takes its place.
    pub fn restore(&self, copy: &SimBook) {
        let mut book = self.book();
        let calls = book.calls;
        *book = SimBook { calls, ..copy.clone() };
    }
}

impl SimBook {
    fn begin(&mut self) -> Result<Option<Fault>, LedgerError> {
        if self.is_dead {
            return Err(LedgerError::Unavailable("the node is dead".to_owned()));
        }
        self.calls += 1;
        if let Some(refusal) = &self.refuses {
            return Err(LedgerError::Refused(refusal.clone()));
        }
        if self.refuses_from.is_some_and(|first| self.calls >= first) {
            return Err(LedgerError::Refused("the gateway is misconfigured".to_owned()));
        }
        Ok(self.faults.get(&self.calls).copied())
    }

    /// One pot, one run; one run, one correction: told in other words than those of the real ledgers.
    fn check_pot(&mut self, batch: &Batch) -> Result<(), LedgerError> {
        let refused = |why: &str| Err(LedgerError::Refused(why.to_owned()));
        if self.refuses_pot.as_deref() == Some(&*batch.pot) {
            return refused("an account is closed");
        }
        if batch.entries.iter().any(|entry| Some(&entry.account) == self.refuses_account.as_ref()) {
            return refused("this account is closed");
        }
        let is_new = batch.entries.iter().any(|entry| !self.booked.contains_key(&entry.key));
        if self.forgets_pots || !is_new {
            return Ok(());
        }
        if *self.payers.entry(batch.pot.clone()).or_insert(batch.run) != batch.run {
            return refused("pot taken");
        }
        if self.followers.contains_key(&batch.run) {
            return refused("corrected by another");
        }
        match batch.follows {
            Some(followed) if *self.followers.entry(followed).or_insert(batch.run) != batch.run => {
                refused("corrected already")
            }
            _ => Ok(()),
        }
    }

    fn take(&mut self, batch: &Batch) -> Result<Vec<Outcome>, LedgerError> {
        self.check_pot(batch)?;
        let entries = batch.entries.iter();
        let outcomes = entries.map(|entry| {
            let content = (
                batch.run,
                batch.asset.clone(),
                entry.account.clone(),
                entry.amount,
                entry.direction == Direction::TakeBack,
            );
            match self.booked.get(&entry.key) {
                None => {
                    self.booked.insert(entry.key, content);
                    Outcome::Accepted
                }
                Some(known) if *known == content => Outcome::Duplicate,
                Some(_) => Outcome::Conflict,
            }
        });
        Ok(outcomes.collect())
    }

    fn submit(&mut self, batch: &Batch) -> Result<Vec<Outcome>, LedgerError> {
        let fault = self.begin()?;
        let lost = || Err(LedgerError::Unavailable("nothing comes back".to_owned()));
        match fault {
            None => self.take(batch),
            Some(Fault::Unavailable) => lost(),
            Some(Fault::LostAnswer) => {
                self.take(batch)?;
                lost()
            }
            Some(Fault::Dies { is_booked }) => {
                if is_booked {
                    self.take(batch)?;
                }
                self.is_dead = true;
                lost()
            }
        }
    }

    fn tally(&mut self, run: &RunKey) -> Result<Vec<Tally>, LedgerError> {
        match self.begin()? {
            None => {}
            Some(fault) => {
                self.is_dead |= matches!(fault, Fault::Dies { .. });
                return Err(LedgerError::Unavailable("nothing comes back".to_owned()));
            }
        }
        let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
        for (_, asset, _, amount, is_back) in self.booked.values().filter(|content| content.0 == *run) {
            let empty = || Tally { asset: asset.clone(), count: 0, paid: 0, taken_back: 0 };
            let tally = tallies.entry(asset.clone()).or_insert_with(empty);
            tally.count += 1;
            *(if *is_back { &mut tally.taken_back } else { &mut tally.paid }) += amount;
        }
        let mut tallies: Vec<Tally> = tallies.into_values().collect();
        if let Some(first) = tallies.first_mut() {
            first.count -= self.hides.min(first.count);
        }
        Ok(tallies)
    }
}

impl PayoutLedger for SimLedger {
    fn submit<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Result<Vec<Outcome>, LedgerError>> {
        async move { self.book().submit(batch) }.boxed()
    }

    fn tally<'a>(&'a self, run: &'a RunKey) -> BoxFuture<'a, Result<Vec<Tally>, LedgerError>> {
        async move { self.book().tally(run) }.boxed()
    }

    fn one_run_per_pot(&self) -> BoxFuture<'_, Result<bool, LedgerError>> {
        let keeps_pots = !self.book().forgets_pots;
        async move { Ok(keeps_pots) }.boxed()
    }
}

/// Options of a rewarder on this disk and ledger.
pub fn options(disk: &SimDisk, ledger: &SimLedger, divide: Divide) -> ServiceOptions {
    let metrics = Metrics::new();
    let builder = Builder::new(KernelOptions::default(), metrics);
    let usage_disk = Arc::new(RamDisk::new());
    let usage = UsageMeter::new(builder.meter(), Box::new(move || Ok(Arc::clone(&usage_disk) as Arc<dyn Disk>)), 1);
    let (seals, ledger) = (disk.clone(), ledger.clone());
    ServiceOptions {
        disk: Arc::new(move || Ok(Arc::new(PartDisk { disk: seals.clone(), prefix: "seals~".to_owned() }))),
        folders: Arc::new(PartFolders(disk.clone())),
        inputs: Arc::new(Inputs::nowhere()),
        inputs_dir: None,
        spill: None,
        usage,
        trusted: None,
        ledger: Arc::new(move || {
            let ledger = ledger.clone();
            async move { Ok(Arc::new(ledger) as Arc<dyn PayoutLedger>) }.boxed()
        }),
        is_amnesia: false,
        compute_workers: 1,
        run_memory_bytes: 64 << 20,
        run_threads: 1,
        read_permits: 4,
        batch_entries: BATCH,
        divide,
    }
}

/// What a reload may change, as it is by default but for unsigned policies, which are taken.
pub fn live() -> Snapshot<LiveOptions> {
    Snapshot::new(LiveOptions { unsigned_policies: true, ..Options::default().live() })
}

/// An engine that nobody runs: the test calls its parts.
pub fn engine(disk: &SimDisk, ledger: &SimLedger) -> (Arc<Engine>, Receivers) {
    let mut builder = Builder::new(KernelOptions::default(), Metrics::new());
    make_engine(&mut builder, options(disk, ledger, ron_calculus::allocate), live())
}

/// A policy with this part beside its assets, such as a `release` member.
pub fn policy(more: &str) -> Policy {
    let text = format!(
        r#"{{"id":"demo","ruleset":1,"assets":[{{"asset":"RON","pool":"1000003","weights":{{"usage":"1"}}}}]{more}}}"#
    );
    Policy::parse(text.as_bytes()).expect("a policy")
}

/// An epoch computed from totals made up here: actors `a000`… with a quantity each.
pub fn computed(epoch: &str, policy: Policy, actors: u128, divide: Divide) -> Computed {
    settle(basis(epoch, policy, actors), 1, &Unwatched, divide).expect("computed")
}

/// A correction of a run: it should have had so many actors.
pub fn corrected(epoch: &str, paid: &Computed, actors: u128) -> Computed {
    let correction = Correction::of(paid, [7; 32], Bounds::default()).expect("it adds up");
    let basis = Basis { correction: Some(correction), ..basis(epoch, policy(""), actors) };
    settle(basis, 1, &Unwatched, ron_calculus::allocate).expect("computed")
}

fn basis(epoch: &str, policy: Policy, actors: u128) -> Basis {
    let slot = Slot { metric: "usage".to_owned(), group: None, asset: None };
    let mut totals = Totals::new(vec![slot]).expect("one slot");
    for number in 0..actors {
        assert!(totals.push(&format!("a{number:03}"), &[(0, 10 + number)]));
    }
    // Somebody who did nothing, so that the usage of each epoch is its own.
    assert!(totals.push(&format!("of {epoch}"), &[(0, 0)]));
    let b3 = format!("b3:{}", blake3::hash(epoch.as_bytes()).to_hex());
    let inputs = vec![InputFacts { b3, name: None, bytes: 1 }];
    Basis {
        format: FORMAT,
        epoch: epoch.parse().expect("a name"),
        document: PolicyDocument::unsigned(policy.clone()),
        policy,
        pools: BTreeMap::new(),
        carry: BTreeMap::new(),
        carry_from: None,
        inputs,
        rows: actors as u64,
        totals,
        correction: None,
    }
}

/// Divides the pool and gives a unit more than there is.
pub fn divide_wrongly(question: &Question<'_>) -> Result<Vec<AssetAllocation>, Breach> {
    let mut allocations = ron_calculus::allocate(question)?;
    for allocation in &mut allocations {
        if let Some(first) = allocation.amounts.first_mut() {
            *first += 1;
        }
    }
    Ok(allocations)
}

/// The request that a computed run would follow from.
pub fn prepared(computed: &Computed) -> Prepared {
    Prepared {
        epoch: computed.basis.epoch.clone(),
        files: Vec::new(),
        pins: Vec::new(),
        kept: Vec::new(),
        share: None,
        correction: None,
        signatures: None,
        document: computed.basis.document.clone(),
        pools: BTreeMap::new(),
        carry_from: None,
        deadline: None,
        hash: [7; 32],
        is_payable: true,
    }
}

/// A computed run on its way to the writer.
pub fn computation(engine: &Arc<Engine>, computed: Computed) -> Computation {
    let epoch: EpochId = computed.basis.epoch.clone();
    let prepared = prepared(&computed);
    let job = Job {
        epoch,
        inputs: Vec::new(),
        policy: prepared.document.clone(),
        pools: BTreeMap::new(),
        carry: BTreeMap::new(),
        carry_from: None,
        cost: Cost { threads: 1, memory_bytes: 64 << 20, spill: None },
    };
    let flight = Flight::new(job, &prepared, Deadline::after(Duration::from_secs(3600)));
    let ticket = engine.take_off(flight);
    let (written, _) = tokio::sync::oneshot::channel();
    Computation { ticket, outcome: Ok(Box::new(computed)), written }
}

/// The payouts that a run must lead to, by key.
pub fn payouts(computed: &Computed) -> BTreeMap<[u8; 32], u128> {
    let intents = Intents::of(computed);
    let (mut place, mut all) = (0, BTreeMap::new());
    while let Some((batch, next)) = intents.batch(place, 1000) {
        all.extend(batch.entries.into_iter().map(|entry| (entry.key, entry.amount)));
        place = next;
    }
    all
}
