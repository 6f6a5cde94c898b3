//! `reward verify`: a run is computed again from its folder, and every byte compared.

use svc_rewarder::verify::{Verification, verify as recompute};
use svc_rewarder::{SealedError, SealedRun};

use super::args::VerifyArgs;
use super::folders::{cost, damaged, inputs, not_made, one_line, open_beside, trusted_keys};
use super::progress::Bars;
use crate::commands::Report;
use crate::errors::{Exit, Failure};

/// Verifies a run.
pub fn verify(args: &VerifyArgs) -> Result<Report, Failure> {
    let cost = cost(&args.cost);
    let run = open_beside(&args.dir, args.corrects.as_deref(), &cost)?;
    let bars = Bars::new();
    let found = recompute(&run, &inputs(&args.usage)?, &cost, &bars);
    drop(bars);
    let mut found = found.map_err(|error| match error {
        SealedError::Run(error) => not_made(&error),
        error => damaged(&args.dir, &error),
    })?;
    if let Some(path) = &args.keys {
        let keys = trusted_keys(path)?;
        match run.check_signatures(&keys) {
            Ok(()) => found.held.push(format!("{} of the keys given have signed the policy", keys.threshold)),
            Err(error) => found.differs.push(error.to_string()),
        }
    }
    let text = if args.json { as_json(&run, &found) } else { show(&run, &found) };
    Ok(Report { text, exit: if found.is_clean() { Exit::Clean } else { Exit::Failed } })
}

fn as_json(run: &SealedRun, found: &Verification) -> String {
    let body = serde_json::json!({
        "verified": found.is_clean(), "epoch": run.manifest().epoch, "held": found.held, "differs": found.differs,
    });
    format!("{body}\n")
}

fn show(run: &SealedRun, found: &Verification) -> String {
    let mut text = String::new();
    for what in &found.held {
        text += &format!("ok    {}\n", one_line(what));
    }
    for what in &found.differs {
        text += &format!("WRONG {}\n", one_line(what));
    }
    let epoch = &run.manifest().epoch;
    if !found.is_clean() {
        return text + &format!("\nNOT VERIFIED: {epoch} is not what it says it is\n");
    }
    let signed = if run.manifest().policy.signed { "" } else { "; its policy was not signed" };
    text + &format!("\nverified: {epoch} comes out the same, bit for bit{signed}\n")
}
