//! `reward release`, `reward reject` and `reward prune`: lets a node pay out a run that waits for a person, after a
//! correction was brought to it, or never pay it, and remove the artifacts of one that is over.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use svc_rewarder::artifacts::{ALLOCATIONS_NDJSON, ALLOCATIONS_PARQUET, MANIFEST, SIGNATURES};
use svc_rewarder::hashing::b3;
use svc_rewarder::{EpochId, Folder, SealedRun};

use super::args::{PruneArgs, RejectArgs, ReleaseArgs};
use super::folders::{damaged, document, refused};
use crate::client::{ApiClient, NodeAnswer, PATIENCE};
use crate::commands::Report;
use crate::errors::{Code, Failure};

/// Memory that is never needed: only the manifest is read.
const MEMORY_BYTES: u64 = 1 << 20;
/// Time that the upload of one file has.
const UPLOAD_MAX: Duration = Duration::from_secs(3600);
/// Looks at an epoch that is computed, half a second apart.
const LOOKS_MAX: u32 = 7200;
const LOOK: Duration = Duration::from_millis(500);

/// Releases an epoch at a node. With a folder, the node must hold the very run that is in it: whoever looked at the
/// folder before must not release something else.
pub async fn release(args: &ReleaseArgs) -> Result<Report, Failure> {
    let named = Named::of(&args.epoch)?;
    let mut client = ApiClient::find(&args.node)?;
    let epoch = &named.epoch;
    if let Some(run) = &named.run {
        if run.manifest().corrects.is_some() {
            bring(&mut client, args, run).await?;
        }
        let (found, expected) = (settled_on(&mut client, epoch).await?, b3(&run.commitment()));
        if found != expected {
            let message = format!("the node's run of {epoch} has {found}, not {expected} as the folder {}", args.epoch);
            return Err(Failure::new(Code::NodeRefused, message));
        }
    }
    let path = format!("/rewarder/epochs/{epoch}/release");
    let answer = client.post(&path, &json!({"lift_quarantine": args.lift_quarantine})).await?;
    if args.node.json {
        return Ok(Report::clean(answer.text() + "\n"));
    }
    Ok(Report::clean(format!("{epoch} is released; follow it at /rewarder/epochs/{epoch}/settlement\n")))
}

/// Has a node never pay a held epoch.
pub async fn reject(args: &RejectArgs) -> Result<Report, Failure> {
    let mut client = ApiClient::find(&args.node)?;
    let epoch = &args.epoch;
    let answer = client.post(&format!("/rewarder/epochs/{epoch}/reject"), &json!({"reason": args.reason})).await?;
    if args.node.json {
        return Ok(Report::clean(answer.text() + "\n"));
    }
    Ok(Report::clean(format!("{epoch} is rejected; compute what is right under the same id\n")))
}

/// Has a node remove the artifacts of epochs that are over.
pub async fn prune(args: &PruneArgs) -> Result<Report, Failure> {
    let mut client = ApiClient::find(&args.node)?;
    let mut text = String::new();
    for epoch in &args.epochs {
        let path = format!("/rewarder/epochs/{epoch}/artifacts");
        let answer = client.ask(Method::DELETE, &path, None, PATIENCE).await?;
        let answer = client.accepted(&path, answer)?;
        let plain = format!("the artifacts of {epoch} are removed");
        text += &format!("{}\n", if args.node.json { answer.text() } else { plain });
    }
    Ok(Report::clean(text))
}

/// What is to be released.
struct Named {
    epoch: EpochId,
    /// The run in a folder.
    run: Option<SealedRun>,
}

impl Named {
    /// The epoch named, or the one of the run in a folder.
    fn of(text: &str) -> Result<Named, Failure> {
        let path = Path::new(text);
        if path.join(MANIFEST).is_file() {
            let folder = Folder::open(path).map_err(|error| refused(format!("cannot open {text}: {error}")))?;
            let run = SealedRun::open(std::sync::Arc::new(folder), MEMORY_BYTES, 1);
            let run = run.map_err(|error| damaged(path, &error))?;
            return Ok(Named { epoch: run.manifest().epoch.clone(), run: Some(run) });
        }
        let epoch = text.parse().map_err(|_| refused(format!("{text} is neither an epoch nor the folder of a run")))?;
        Ok(Named { epoch, run: None })
    }
}

/// The commitment of the run that a node has under this epoch, once it is sealed.
async fn settled_on(client: &mut ApiClient, epoch: &EpochId) -> Result<String, Failure> {
    let path = format!("/rewarder/epochs/{epoch}");
    for _ in 0..LOOKS_MAX {
        let found: Value = client.get(&path).await?.read(&path)?;
        match found["state"].as_str() {
            Some("computing") => tokio::time::sleep(LOOK).await,
            Some("refused") => {
                let reason = found["refusal"]["reason"].as_str().unwrap_or_default();
                return Err(Failure::new(Code::NodeRefused, format!("the node refused {epoch}: {reason}")));
            }
            _ => return Ok(found["commitment"].as_str().unwrap_or("no commitment").to_owned()),
        }
    }
    Err(Failure::new(Code::NodeRefused, format!("the node still computes {epoch}; release it again later")))
}

/// Brings a correction to a node: its files by their hashes, then its commitment with the signatures under it.
async fn bring(client: &mut ApiClient, args: &ReleaseArgs, run: &SealedRun) -> Result<(), Failure> {
    let folder = Path::new(&args.epoch);
    let (manifest, commitment) = (run.manifest(), b3(&run.commitment()));
    let known = client.ask(Method::GET, &format!("/rewarder/epochs/{}", manifest.epoch), None, PATIENCE).await?;
    // A node that has the run, whichever it is, needs none of its files; the place of one that was rejected is free.
    if (200..300).contains(&known.status) && has_run(&known, &commitment) {
        return Ok(());
    }
    // What follows from the other files is written again by the node.
    let is_needed = |name: &&String| ![ALLOCATIONS_NDJSON, ALLOCATIONS_PARQUET].contains(&name.as_str());
    let artifacts = manifest.artifacts.keys().filter(is_needed).map(|name| (name.as_str(), &manifest.artifacts[name]));
    for (name, hash) in artifacts.chain([(MANIFEST, &commitment)]) {
        let bytes =
            std::fs::read(folder.join(name)).map_err(|error| refused(format!("cannot read {name}: {error}")))?;
        client.put(&format!("/rewarder/inputs/{hash}"), Bytes::from(bytes), UPLOAD_MAX).await?;
    }
    let signatures = folder.join(SIGNATURES);
    let corrects = manifest.corrects.as_ref().map(|facts| facts.epoch.as_str());
    let mut body = json!({"commitment": commitment, "corrects": corrects, "unsigned": args.unsigned});
    if signatures.is_file() {
        let bytes = document(&signatures, "signatures")?;
        let wrong = |error| refused(format!("the signatures {}: {error}", signatures.display()));
        body["signatures"] = serde_json::from_slice(&bytes).map_err(wrong)?;
    }
    client.post(&format!("/rewarder/epochs/{}/correct", manifest.epoch), &body).await.map(drop)
}

fn has_run(answer: &NodeAnswer, commitment: &str) -> bool {
    let found: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let is_rejected = found["quarantine"]["reason"] == "rejected";
    found["state"] != "refused" && (!is_rejected || found["commitment"] == commitment)
}
