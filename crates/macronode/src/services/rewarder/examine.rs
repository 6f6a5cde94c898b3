//! What `macronode doctor` finds out about the rewarder: its inputs, its keys, its ledger, its epochs.

use std::path::Path;
use std::sync::Arc;

use ron_ledger::LedgerError;
use ron_log::{LogError, VerifyReport};
use svc_rewarder::config::{LedgerKind, Options};
use svc_rewarder::store::{self, EpochRow, EpochStatus, StoreError};

use super::{BOOK_FOLDER, FOLDER, LOG_FOLDER, books, trusted};
use crate::config::Config;
use crate::doctor::Finding;
use crate::errors::Failure;

/// Epochs named in one finding.
const NAMED_MAX: usize = 5;
/// Bytes of a book that is read to be compared with the seals.
const BOOK_READ_MAX: u64 = 1 << 30;

/// Everything that can be seen without changing anything.
pub fn examine(config: &Config) -> Vec<Finding> {
    let options = config.section::<Options>();
    let mut findings: Vec<Finding> = options.inputs_dir.iter().map(|folder| inputs_dir(folder)).collect();
    if options.trusted_keys.is_some() {
        findings.push(trusted_keys(options));
    }
    findings.push(ledger(options, books::reach(options)));
    if config.amnesia {
        return findings;
    }
    let folder = config.data_dir.join(FOLDER);
    let log = folder.join(LOG_FOLDER);
    if log.exists() {
        let inspected = store::inspect(&log);
        findings.extend(inspected.as_ref().ok().and_then(|(rows, _)| settled(options, &folder, rows)));
        findings.extend(epochs(inspected));
    }
    if options.ledger == LedgerKind::Embedded {
        findings.extend(book(&folder.join(BOOK_FOLDER)));
    }
    findings
}

fn inputs_dir(folder: &Path) -> Finding {
    match std::fs::read_dir(folder) {
        Ok(_) => Finding::ok("inputs_dir", format!("{} can be read", folder.display())),
        Err(error) => Finding::warn(
            "inputs_dir",
            format!("{}: {error}", folder.display()),
            "make the folder and let the node read it, or change `rewarder.inputs_dir`; until then only uploads are taken",
        ),
    }
}

fn trusted_keys(options: &Options) -> Finding {
    match trusted(options) {
        Ok(keys) => {
            let (threshold, keys) = keys.map_or((0, 0), |keys| (keys.threshold, keys.keys.len()));
            Finding::ok("trusted_keys", format!("{threshold} of {keys} must sign a policy"))
        }
        Err(failure) => Finding::fail(
            "trusted_keys",
            failure.message,
            "the node does not start without it: restore the file, or change `rewarder.trusted_keys`",
        ),
    }
}

fn ledger(options: &Options, reached: Result<Result<String, LedgerError>, Failure>) -> Finding {
    let file = options.ledger_settings.as_ref().map_or_else(String::new, |path| format!(" {}", path.display()));
    match reached {
        Ok(Ok(found)) => Finding::ok("ledger", found),
        Ok(Err(error)) => {
            let advice = format!("payouts wait until it answers: start it, or correct{file}");
            Finding::warn("ledger", error.to_string(), &advice)
        }
        Err(failure) => {
            let advice = "the node does not start like this: correct `rewarder.ledger` and `rewarder.ledger_settings`";
            Finding::fail("ledger", failure.message, advice)
        }
    }
}

fn epochs(inspected: Result<(Vec<Arc<EpochRow>>, VerifyReport), StoreError>) -> Vec<Finding> {
    let (rows, report) = match inspected {
        Ok(inspected) => inspected,
        Err(StoreError::Log(LogError::InUse)) => {
            return vec![Finding::ok("epochs", "a node has the seal log open; `macronode top` shows its epochs")];
        }
        Err(error @ StoreError::Strange(_)) => {
            return vec![Finding::fail("epochs", error.to_string(), "start the version that wrote them")];
        }
        Err(error) => {
            let advice = "restore the folder rewarder/log of the data directory from a copy before the next start";
            return vec![Finding::fail("epochs", error.to_string(), advice)];
        }
    };
    let with = |status: EpochStatus| rows.iter().filter(move |row| row.status == status);
    let numbers = EpochStatus::ALL.map(|status| format!("{} {}", with(status).count(), status.as_str()));
    let mut findings = vec![Finding::ok("epochs", format!("{} sealed: {}", rows.len(), numbers.join(", ")))];
    // A person has looked at what was rejected.
    let unsound = with(EpochStatus::Quarantined).filter(|row| !row.is_rejected());
    let (paying, never_paid): (Vec<_>, Vec<_>) = unsound.partition(|row| row.is_liftable());
    let needs_a_person = [
        (
            named(paying.into_iter(), EpochStatus::Quarantined),
            "some of its payouts may be booked, so do not compute it under another id: read why with `GET \
             /rewarder/epochs/ID/settlement`, mend the ledger or restore the files, then `macronode reward release ID \
             --lift-quarantine` books what is missing and nothing twice",
        ),
        (
            named(never_paid.into_iter(), EpochStatus::Quarantined),
            "its amounts do not add up and it has paid nobody: read why with `GET /rewarder/epochs/ID/settlement`, mend \
             its inputs or its policy, then compute them under another id",
        ),
        (
            named(with(EpochStatus::Released), EpochStatus::Released),
            "its payouts are not all booked: they leave when the node runs and its ledger answers",
        ),
        (
            named(with(EpochStatus::Held), EpochStatus::Held),
            "nobody is paid before somebody says so: `macronode reward release ID`, or `reward reject ID` if it is wrong",
        ),
    ];
    let named = needs_a_person.into_iter().filter_map(|(named, advice)| Some((named?, advice)));
    findings.extend(named.map(|(named, advice)| Finding::warn("epochs", named, advice)));
    if !report.is_clean() {
        let lost: u64 = report.segments.iter().map(ron_log::SegmentReport::lost_records).sum();
        let (missing, lost) = (&report.missing, lost + report.lost_at_end);
        findings.push(Finding::warn(
            "epochs",
            format!("the seal log is damaged: {lost} records lost, segments missing: {missing:?}"),
            "restore rewarder/log from a copy before the next start: an epoch that is forgotten can be computed again, \
             and the ledger finds what was paid",
        ));
    }
    findings
}

/// Whether the ledger has what the seal log calls settled; nothing where that cannot be said now.
fn settled(options: &Options, folder: &Path, rows: &[Arc<EpochRow>]) -> Option<Finding> {
    let lacks = match options.ledger {
        LedgerKind::Embedded => {
            let folder = folder.join(BOOK_FOLDER);
            // A large book is for `macronode ledger verify`, which says how long it takes.
            if ron_log::survey(&folder).is_ok_and(|survey| survey.bytes > BOOK_READ_MAX) {
                return None;
            }
            match ron_ledger::inspect(&folder) {
                Ok(book) => books::lacks(rows, |run| book.tally(run)),
                Err(_) if !folder.exists() => books::lacks(rows, |_| Vec::new()),
                Err(_) => return None,
            }
        }
        LedgerKind::Postgres | LedgerKind::Http => books::lacks_elsewhere(options, rows).ok()?.ok()?,
    };
    let first = lacks.first()?;
    let more = if lacks.len() > 1 { format!(" (and {} more)", lacks.len() - 1) } else { String::new() };
    Some(Finding::warn(
        "settled",
        format!("the ledger lacks what was paid: {first}{more}"),
        "nothing more is booked like this: restore the ledger from a newer copy, or let the node run and have \
         `macronode ledger resend` send what is missing, which books each payout once",
    ))
}

/// The first of these epochs, with how many more there are.
fn named<'a>(rows: impl Iterator<Item = &'a Arc<EpochRow>>, status: EpochStatus) -> Option<String> {
    let names: Vec<&str> = rows.map(|row| row.epoch.as_str()).collect();
    let more = names.len().saturating_sub(NAMED_MAX);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    let listed = names.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
    (!names.is_empty()).then(|| format!("{}: {listed}{rest}", status.as_str()))
}

fn book(folder: &Path) -> Option<Finding> {
    let advice = "the book tells what it knows and books nothing: restore rewarder/ledger from a copy and remove \
                  nothing else; `macronode ledger verify` says what is lost";
    match ron_ledger::marked_damage(folder) {
        Ok(None) if !folder.exists() => None,
        Ok(None) => Some(match ron_log::survey(folder) {
            Ok(survey) if survey.missing.is_empty() && survey.cut.is_empty() => {
                Finding::ok("book", format!("{} segments, {} MiB", survey.segments, survey.bytes >> 20))
            }
            Ok(survey) => {
                Finding::warn("book", format!("segments missing: {:?}, cut: {:?}", survey.missing, survey.cut), advice)
            }
            Err(error) => Finding::warn("book", error.to_string(), advice),
        }),
        Ok(Some(damage)) => Some(Finding::warn("book", format!("damaged: {damage}"), advice)),
        Err(error) => Some(Finding::warn("book", error.to_string(), advice)),
    }
}
