//! `reward diff` and `reward whatif`: what changed or would change, for whom, and why.

use std::path::Path;

use ron_calculus::{Question, allocate};
use svc_rewarder::diff::{AssetDiff, Cause, Diff, Side, diff as compare};
use svc_rewarder::policy_document::PolicyDocument;
use svc_rewarder::{Computed, Cost};

use super::args::{ChangesArgs, DiffArgs, WhatifArgs};
use super::folders::{cost, document, load, one_line, refused};
use super::run::unique_pools;
use crate::commands::Report;
use crate::commands::table::{row, shortened, table};
use crate::errors::Failure;

/// Columns for the name of an actor.
const ACTOR_MAX: usize = 44;

/// Compares two runs.
pub fn diff(args: &DiffArgs) -> Result<Report, Failure> {
    let cost = cost(&args.changes.cost);
    let (from, to) = (load(&args.from, &cost)?, load(&args.to, &cost)?);
    let found = compare(&Side::of(&from.computed), &Side::of(&to.computed), listed(&args.changes), cost.threads);
    Ok(told(&found, args.changes.json))
}

/// Tries a draft on the usage of a run.
pub fn whatif(args: &WhatifArgs) -> Result<Report, Failure> {
    let cost = cost(&args.changes.cost);
    let loaded = load(&args.dir, &cost)?;
    let document = match &args.policy {
        Some(path) => draft(path)?,
        None => loaded.computed.basis.document.clone(),
    };
    let found = try_out(&loaded.computed, &document, args, &cost)?;
    let report = told(&found, args.changes.json);
    let note = if args.changes.json { "" } else { "a trial: nothing was written\n" };
    Ok(Report { text: report.text + note, ..report })
}

fn try_out(run: &Computed, document: &PolicyDocument, args: &WhatifArgs, cost: &Cost) -> Result<Diff, Failure> {
    let mut pools = if args.policy.is_none() { run.basis.pools.clone() } else { Default::default() };
    pools.extend(unique_pools(&args.pools)?);
    let policy = document.in_force(&pools).map_err(|error| refused(error.to_string()))?;
    let (totals, carry, threads) = (&run.basis.totals, run.basis.carry_units(), cost.threads);
    // Equals stay in the order of the run: a draft is to show what its rules change.
    let run_key = *run.order_key();
    let question = Question { policy: &policy, totals, run_key: &run_key, carry: &carry, threads };
    let entitled = allocate(&question);
    let entitled = entitled.map_err(|breach| refused(format!("the draft would be put in quarantine: {breach}")))?;
    let name = format!("draft {}", policy.id);
    let draft = Side { name, policy: &policy, totals, run_key, carry: carry.clone(), entitled: &entitled };
    Ok(compare(&Side::of(run), &draft, listed(&args.changes), threads))
}

/// A policy for a trial: whoever signed it, or nobody.
fn draft(path: &Path) -> Result<PolicyDocument, Failure> {
    let read = PolicyDocument::draft(&document(path, "policy")?);
    read.map_err(|error| refused(format!("the policy {}: {error}", path.display())))
}

fn listed(args: &ChangesArgs) -> usize {
    args.top as usize
}

fn told(found: &Diff, is_json: bool) -> Report {
    if is_json {
        return Report::clean(serde_json::to_string(found).unwrap_or_default() + "\n");
    }
    let causes: Vec<&str> = found.causes.iter().map(|cause| words(*cause)).collect();
    let causes = if causes.is_empty() { "nothing".to_owned() } else { causes.join(", ") };
    let mut text = format!("{} -> {}: {causes} changed\n", one_line(&found.from), one_line(&found.to));
    for asset in &found.assets {
        text += &asset_text(asset);
    }
    Report::clean(text)
}

fn asset_text(found: &AssetDiff) -> String {
    let asset = one_line(&found.asset);
    let (from, to) = (found.paid_from, found.paid_to);
    let mut text = format!("\n{asset}: {from} -> {to} paid\n");
    text += &format!("{} actors get {} more, {} get {} less\n", found.more, found.gained, found.less, found.lost);
    if found.largest.is_empty() {
        return text;
    }
    let mut rows = vec![row(["actor", "before", "after", "change", "because of"])];
    for actor in &found.largest {
        let causes = actor.causes.iter().map(|part| format!("{} {}", words(part.cause), part.delta));
        let name = shortened(&one_line(&actor.actor), ACTOR_MAX);
        let (from, to, delta) = (actor.from.to_string(), actor.to.to_string(), actor.delta.to_string());
        rows.push(row([&name, &from, &to, &delta, &causes.collect::<Vec<_>>().join(", ")]));
    }
    let changed = found.more + found.less;
    let listed = found.largest.len() as u64;
    let more =
        if changed > listed { format!("{} smaller changes are not listed\n", changed - listed) } else { String::new() };
    text + &table(0, &rows) + &more
}

fn words(cause: Cause) -> &'static str {
    match cause {
        Cause::Order => "order of equals",
        Cause::Input => "usage",
        Cause::Policy => "policy",
        Cause::Ruleset => "ruleset",
        Cause::Pool => "pool",
        Cause::Several => "several",
    }
}
