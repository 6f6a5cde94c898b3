//! `reward run` and `reward correct`: from files to a folder with a run.

use std::collections::BTreeMap;
use std::path::Path;

use ron_calculus::Units;
use ron_log::Disk as _;
use svc_rewarder::artifacts::{self, COMMITMENT, MANIFEST};
use svc_rewarder::correct::{Bounds, Correction};
use svc_rewarder::hashing::{b3, parse_b3};
use svc_rewarder::job::{self, Basis};
use svc_rewarder::manifest::{CorrectedFacts, CorrectsFacts, FORMAT};
use svc_rewarder::{Computed, Cost, Folder, Job, Manifest, Seal, SealedRun, Watch, compute, plot};

use super::args::{CorrectArgs, OrderArgs, RunArgs};
use super::folders::{cost, damaged, inputs, not_made, one_line, open, policy, refused, write_new};
use super::progress::Bars;
use crate::commands::Report;
use crate::commands::table::{row, table};
use crate::errors::Failure;

/// Computes a run and writes it.
pub fn run(args: &RunArgs) -> Result<Report, Failure> {
    let cost = cost(&args.order.cost);
    let document = policy(&args.policy, args.order.keys.as_deref(), args.order.unsigned)?;
    let (carry, carry_from) = carried(args.carry_from.as_deref(), &cost)?;
    let job = Job {
        epoch: args.epoch.clone(),
        inputs: inputs(&args.usage)?,
        policy: document,
        pools: pools(&args.order)?,
        carry,
        carry_from,
        cost: cost.clone(),
    };
    let bars = Bars::new();
    let computed = compute(&job, &bars).map_err(|error| not_made(&error))?;
    let (seal, is_new) = put(&computed, &args.out, &cost, &bars)?;
    drop(bars);
    if args.plot {
        draw(&computed, &args.out)?;
    }
    Ok(told(&seal, &args.out, is_new, args.json))
}

/// Computes a correction of a run and writes it.
pub fn correct(args: &CorrectArgs) -> Result<Report, Failure> {
    let cost = cost(&args.order.cost);
    let paid = open(&args.dir, &cost)?;
    let is_corrected = |facts: &CorrectsFacts| facts.epoch == args.epoch;
    if paid.manifest().epoch == args.epoch || paid.manifest().corrects.as_ref().is_some_and(is_corrected) {
        return Err(refused(format!("{} is the epoch to correct; a correction has an epoch of its own", args.epoch)));
    }
    let bars = Bars::new();
    let basis = corrected_basis(args, &paid, &cost, &bars)?;
    let computed = job::settle(basis, cost.threads, &bars, ron_calculus::allocate).map_err(|error| not_made(&error))?;
    let (seal, is_new) = put(&computed, &args.out, &cost, &bars)?;
    drop(bars);
    Ok(told(&seal, &args.out, is_new, args.json))
}

/// What the run should have followed from, and what it paid.
fn corrected_basis(args: &CorrectArgs, paid: &SealedRun, cost: &Cost, watch: &dyn Watch) -> Result<Basis, Failure> {
    let loaded = paid.load().map_err(|error| damaged(&args.dir, &error))?;
    let before = &loaded.computed;
    let document = match &args.policy {
        Some(path) => policy(path, args.order.keys.as_deref(), args.order.unsigned)?,
        None => before.basis.document.clone(),
    };
    // Pools that were given with the run belong to it as much as its policy, unless another policy is given.
    let mut pools = if args.policy.is_none() { before.basis.pools.clone() } else { BTreeMap::new() };
    pools.extend(self::pools(&args.order)?);
    let mut basis = if args.usage.is_empty() {
        let in_force = document.in_force(&pools).map_err(|error| refused(error.to_string()))?;
        // The run that is corrected may be of an older format; this one is not.
        Basis { format: FORMAT, policy: in_force, document, pools, ..before.basis.clone() }
    } else {
        let (carry, carry_from) = (before.basis.carry.clone(), before.basis.carry_from.clone());
        let (inputs, cost) = (inputs(&args.usage)?, cost.clone());
        let job = Job { epoch: args.epoch.clone(), inputs, policy: document, pools, carry, carry_from, cost };
        job::read(&job, watch).map_err(|error| not_made(&error))?
    };
    basis.epoch = args.epoch.clone();
    let bounds = Bounds { clawback_max: args.clawback_max, takes_left_over: args.take_left_over };
    let correction = Correction::of(before, paid.commitment(), bounds);
    let correction = correction.map_err(|breach| refused(breach.to_string()))?;
    basis.correction = Some(correction.with_manifest(paid.manifest_bytes()));
    Ok(basis)
}

/// Pools of the command line; naming one twice is a mistake.
pub fn pools(order: &OrderArgs) -> Result<BTreeMap<String, Units>, Failure> {
    unique_pools(&order.pools)
}

/// Pools by asset; naming one twice is a mistake.
pub fn unique_pools(given: &[(String, Units)]) -> Result<BTreeMap<String, Units>, Failure> {
    let pools: BTreeMap<String, Units> = given.iter().cloned().collect();
    if pools.len() < given.len() {
        return Err(refused("--pool names an asset twice"));
    }
    Ok(pools)
}

type Carried = (BTreeMap<String, Units>, Option<String>);

/// What an earlier run left over.
fn carried(from: Option<&Path>, cost: &Cost) -> Result<Carried, Failure> {
    let Some(path) = from else { return Ok(Carried::default()) };
    let run = open(path, cost)?;
    Ok((run.left_over(), Some(b3(&run.commitment()))))
}

/// Writes a run to a folder that is empty or holds this very run; whether it is new.
fn put(computed: &Computed, out: &Path, cost: &Cost, watch: &dyn Watch) -> Result<(Seal, bool), Failure> {
    if let Err(breach) = &computed.outcome {
        let message = format!("the run would be put in quarantine: {breach}; nothing was written");
        return Err(refused(message));
    }
    let place = out.display();
    let unusable = |error: &std::io::Error| refused(format!("cannot use the folder {place}: {error}"));
    if let Found::Run(found) = existing(out).map_err(|error| unusable(&error))? {
        let seal = artifacts::seal_of(computed, cost.threads, watch).map_err(|error| not_made(&error))?;
        if found != Some(seal.commitment) {
            let message = format!("{place} holds another run; choose another folder with --out");
            return Err(refused(message));
        }
        return Ok((seal, false));
    }
    let folder = Folder::create(out).map_err(|error| unusable(&error))?;
    let seal = artifacts::write(computed, &folder, cost.threads, watch).map_err(|error| not_made(&error))?;
    Ok((seal, true))
}

/// What is in the folder that a run is to be written to.
enum Found {
    /// Nothing, or what a crash left of a run.
    Nothing,
    /// A run, with its commitment if that can be read.
    Run(Option<[u8; 32]>),
}

/// Looks into a folder; files of anybody else make it unusable.
fn existing(out: &Path) -> std::io::Result<Found> {
    if !out.exists() {
        return Ok(Found::Nothing);
    }
    let folder = Folder::open(out)?;
    let names = folder.list()?;
    if names.iter().any(|name| name == MANIFEST) {
        let text = std::fs::read_to_string(out.join(COMMITMENT)).unwrap_or_default();
        return Ok(Found::Run(parse_b3(text.trim_end())));
    }
    // Nothing is removed or written before it is clear that nobody else's file is here.
    if let Some(other) = artifacts::foreign_file(&folder)? {
        return Err(std::io::Error::other(format!("it holds other files ({})", one_line(&other))));
    }
    artifacts::remove_leftovers(&folder)?;
    Ok(Found::Nothing)
}

/// Writes a picture for each asset.
fn draw(computed: &Computed, out: &Path) -> Result<(), Failure> {
    let (_, paying) = computed.paying();
    for (index, allocation) in paying.iter().enumerate() {
        // Names of assets are not names of files.
        let name = if index == 0 { "plot.svg".to_owned() } else { format!("plot-{}.svg", index + 1) };
        let text = plot::svg(computed.basis.epoch.as_str(), allocation);
        write_new(&out.join(&name), &text).map_err(|error| refused(format!("cannot write {name}: {error}")))?;
    }
    Ok(())
}

fn told(seal: &Seal, out: &Path, is_new: bool, is_json: bool) -> Report {
    if is_json {
        return Report::clean(format!("{}\n", String::from_utf8_lossy(&seal.bytes)));
    }
    let place = out.display();
    let manifest = &seal.manifest;
    let verb = if is_new { "written to" } else { "exists, byte for byte, in" };
    let mut text = format!("{} {verb} {place}\n\n", manifest.epoch);
    text += &assets(manifest);
    text += &corrections(manifest);
    let signed = match manifest.policy.signers.len() {
        0 => "NOT SIGNED".to_owned(),
        1 => "signed by 1 key".to_owned(),
        keys => format!("signed by {keys} keys"),
    };
    let carried = manifest.carry.iter().map(|(asset, units)| {
        let from = manifest.carry_from.as_deref().unwrap_or("no run");
        row(["carried in", &format!("{units} {} from {from}", one_line(asset))])
    });
    let rows = [
        row(["policy", &format!("{} ({signed})", one_line(&manifest.policy.id))]),
        row(["usage", &format!("{} rows, {} actors", manifest.rows, manifest.actors)]),
        row(["commitment", &b3(&seal.commitment)]),
    ];
    text += &table(0, &rows.into_iter().chain(carried).collect::<Vec<_>>());
    Report::clean(text + &format!("\nnext: macronode reward verify {place}\n"))
}

fn assets(manifest: &Manifest) -> String {
    let mut rows = vec![row(["asset", "pool", "paid", "left over", "payees"])];
    for facts in &manifest.assets {
        let (pool, paid, delta) = (facts.pool.to_string(), facts.paid.to_string(), facts.delta.to_string());
        rows.push(row([&one_line(&facts.asset), &pool, &paid, &delta, &facts.payees.to_string()]));
    }
    table(0, &rows) + "\n"
}

fn corrections(manifest: &Manifest) -> String {
    let Some(corrects) = &manifest.corrects else { return String::new() };
    let mut rows = vec![row(["asset", "entitled", "paid before", "pay", "take back", "carried", "left over"])];
    for facts in &corrects.assets {
        let CorrectedFacts { entitled, paid_before, pay, take_back, carried, left_over, .. } = *facts;
        let numbers = [entitled, paid_before, pay, take_back, carried, left_over];
        rows.push([one_line(&facts.asset)].into_iter().chain(numbers.map(|units| units.to_string())).collect());
    }
    format!("corrects {}\n{}\n", corrects.epoch, table(0, &rows))
}
