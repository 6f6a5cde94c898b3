//! `reward release`: lets a node pay out a run that waits for a person.

use std::path::Path;

use serde_json::{Value, json};
use svc_rewarder::{EpochId, Folder, SealedRun};

use super::args::ReleaseArgs;
use super::folders::{damaged, refused};
use crate::client::ApiClient;
use crate::commands::Report;
use crate::errors::{Code, Failure};

/// Memory that is never needed: only the manifest is read.
const MEMORY_BYTES: u64 = 1 << 20;

/// Releases an epoch at a node. With a folder, the node must hold the very run that is in it: whoever looked at the
/// folder before must not release something else.
pub async fn release(args: &ReleaseArgs) -> Result<Report, Failure> {
    let (epoch, commitment) = named(&args.epoch)?;
    let mut client = ApiClient::find(&args.node)?;
    if let Some(expected) = commitment {
        let path = format!("/rewarder/epochs/{epoch}");
        let found: Value = client.get(&path).await?.read(&path)?;
        let found = found["commitment"].as_str().unwrap_or("no commitment");
        if found != expected {
            let message = format!("the node's run of {epoch} has {found}, not {expected} as the folder {}", args.epoch);
            return Err(Failure::new(Code::NodeRefused, message));
        }
    }
    let path = format!("/rewarder/epochs/{epoch}/release");
    let answer = client.post(&path, &json!({})).await?;
    if args.node.json {
        return Ok(Report::clean(answer.text() + "\n"));
    }
    Ok(Report::clean(format!("{epoch} is released; follow it at /rewarder/epochs/{epoch}/settlement\n")))
}

/// The epoch named, or the one of the run in a folder with its commitment.
fn named(text: &str) -> Result<(EpochId, Option<String>), Failure> {
    let path = Path::new(text);
    if path.join(svc_rewarder::artifacts::MANIFEST).is_file() {
        let folder = Folder::open(path).map_err(|error| refused(format!("cannot open {text}: {error}")))?;
        let run = SealedRun::open(std::sync::Arc::new(folder), MEMORY_BYTES, 1);
        let run = run.map_err(|error| damaged(path, &error))?;
        let commitment = svc_rewarder::hashing::b3(&run.commitment());
        return Ok((run.manifest().epoch.clone(), Some(commitment)));
    }
    let epoch = text.parse().map_err(|_| refused(format!("{text} is neither an epoch nor the folder of a run")))?;
    Ok((epoch, None))
}
