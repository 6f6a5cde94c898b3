//! `reward sign`: somebody who stands behind a correction signs its commitment.

use svc_rewarder::artifacts::SIGNATURES;
use svc_rewarder::correction_statement::CorrectionStatement;
use svc_rewarder::verify::verify;

use super::args::SignRunArgs;
use super::folders::{cost, damaged, document, open_beside, refused};
use super::policy::{put_again, read_key};
use super::progress::Bars;
use crate::commands::Report;
use crate::errors::{Code, Failure};

/// Adds a signature to those beside a correction. What does not come out the same bit for bit is not signed.
pub fn sign(args: &SignRunArgs) -> Result<Report, Failure> {
    let (cost, place) = (cost(&args.cost), args.dir.display());
    let run = open_beside(&args.dir, args.corrects.as_deref(), &cost)?;
    let statement = CorrectionStatement::of(&run);
    let statement =
        statement.ok_or_else(|| refused(format!("{place} is no correction; a policy is signed instead")))?;
    let key = read_key(&args.key)?;
    let bars = Bars::new();
    let found = verify(&run, &[], &cost, &bars).map_err(|error| damaged(&args.dir, &error));
    drop(bars);
    if let Some(wrong) = found?.differs.first() {
        return Err(Failure::new(Code::RunDamaged, format!("{place} is not signed: {wrong}")));
    }
    let path = args.dir.join(SIGNATURES);
    let before = path.exists().then(|| document(&path, "signatures")).transpose()?;
    let signed = statement.sign(before.as_deref(), &key);
    let signed = signed.map_err(|error| refused(format!("the signatures {}: {error}", path.display())))?;
    put_again(&path, &signed.to_text(), "the signed statement")
}
