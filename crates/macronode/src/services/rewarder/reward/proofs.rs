//! `reward proof` and `reward proofs`: what payees take away.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use svc_rewarder::SealedError;

use super::args::{ProofArgs, ProofsArgs};
use super::folders::{cost, damaged, load, refused};
use crate::commands::Report;
use crate::errors::Failure;

/// Prints the proofs of one actor.
pub fn proof(args: &ProofArgs) -> Result<Report, Failure> {
    let loaded = load(&args.dir, &cost(&args.cost))?;
    let proofs = loaded.prove(&args.actor, args.format, args.asset.as_deref());
    let proofs = proofs.map_err(|error| damaged(&args.dir, &error))?;
    let text = serde_json::to_string_pretty(&proofs).unwrap_or_default();
    Ok(Report::clean(text + "\n"))
}

/// Prints a line for each payout. They are written as they are made: together they may not fit into memory.
pub fn proofs(args: &ProofsArgs) -> Result<Report, Failure> {
    let cost = cost(&args.cost);
    let loaded = load(&args.dir, &cost)?;
    let write = |to: &mut dyn Write| loaded.write_proofs(args.format, args.asset.as_deref(), cost.threads, to);
    let Some(path) = &args.out else {
        let mut to = BufWriter::new(io::stdout().lock());
        let written = write(&mut to).and_then(|_| Ok(to.flush()?));
        return match written {
            // A reader that has left is not an error.
            Err(SealedError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Report::clean("")),
            Err(error) => Err(damaged(&args.dir, &error)),
            Ok(()) => Ok(Report::clean("")),
        };
    };
    let cannot = |error: io::Error| refused(format!("cannot write {}: {error}", path.display()));
    let mut to = BufWriter::new(File::create(path).map_err(cannot)?);
    let count = write(&mut to).map_err(|error| damaged(&args.dir, &error))?;
    to.flush().map_err(cannot)?;
    Ok(Report::clean(format!("{count} proofs written to {}\n", path.display())))
}
