//! `macronode index publish` and `unprovide`: a file's id, who has it, and perhaps a name for it; and taking that back.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use bytes::Bytes;
use http::Method;
use ron_store::ContentId;
use ron_types::limits::records::{ADDRS_MAX, MANIFEST_BYTES_MAX, PROTOCOLS_MAX};
use serde_json::{Value, json};

use super::args::{PublishArgs, UnprovideArgs};
use super::names;
use crate::client::{ApiClient, PATIENCE};
use crate::commands::Report;
use crate::commands::table::{row, table};
use crate::commands::text::{bytes, one_line, segment};
use crate::errors::{Code, Failure};

/// Bytes read at once.
const CHUNK_BYTES: usize = 256 * 1024;

/// A file that was hashed.
struct Hashed {
    id: ContentId,
    bytes: u64,
    /// All of it, if it is small enough for the node to keep.
    content: Option<Bytes>,
}

/// Publishes a file.
pub async fn publish(args: &PublishArgs) -> Result<Report, Failure> {
    let hashed = hash(&args.file)
        .map_err(|error| Failure::new(Code::NodeRefused, format!("cannot read {}: {error}", args.file.display())))?;
    let id = hashed.id.to_string();
    let is_kept = hashed.content.is_some();
    check(args, is_kept)?;
    let mut client = ApiClient::find(&args.node)?;
    if let Some(content) = hashed.content {
        let path = format!("/manifests/{}", segment(&id));
        let answer = client.put_bytes(&path, content, PATIENCE).await?;
        client.accepted(&path, answer)?;
    }
    let path = format!("/providers/{}", segment(&id));
    let answer = client.ask(Method::POST, &path, Some(&provider(args)), PATIENCE).await?;
    let provider: Value = client.accepted(&path, answer)?.read(&path)?;
    let name = match &args.name {
        Some(name) => Some(names::put(&mut client, name, &id, args.ttl).await?.read::<Value>("/names")?),
        None => None,
    };
    let cid = hashed.id.cid_text();
    if args.node.json {
        let answer = json!({"b3": id, "cid": cid, "bytes": hashed.bytes, "kept": is_kept,
            "provider": provider["provider"], "name": name});
        return Ok(Report::clean(format!("{answer}\n")));
    }
    let mut rows = vec![row(["b3", &id]), row(["cid", &cid])];
    let kept = if is_kept { "kept by the node" } else { "not kept by the node: too large to be a manifest" };
    rows.push(row(["content", &format!("{}, {kept}", bytes(hashed.bytes))]));
    rows.push(row(["provider", provider["provider"]["peer_id"].as_str().unwrap_or("?")]));
    let until = if provider["renewed"] == true { "renewed until `index unprovide`" } else { "ends by itself" };
    rows.push(row(["record", until]));
    if let Some(name) = &name {
        rows.push(row(["name", name["name"].as_str().unwrap_or("?")]));
    }
    Ok(Report::clean(table(0, &rows)))
}

/// Refuses what the node would refuse later, when part of it is published, and a record that would not be true: nobody
/// gets a file from a node that does not keep it.
fn check(args: &PublishArgs, is_kept: bool) -> Result<(), Failure> {
    let refused = |message: String| Err(Failure::new(Code::ArgumentsUnusable, message));
    if !is_kept && args.addr.is_empty() {
        let (file, most) = (args.file.display(), bytes(MANIFEST_BYTES_MAX as u64));
        return refused(format!(
            "{file} is larger than the {most} that a node keeps itself: say with --addr where it can be fetched"
        ));
    }
    for (option, count, max) in
        [("--addr", args.addr.len(), ADDRS_MAX), ("--protocol", args.protocol.len(), PROTOCOLS_MAX)]
    {
        if count > max {
            return refused(format!("{option} {count} times: {max} at most"));
        }
    }
    Ok(())
}

/// Takes back that somebody has some content.
pub async fn unprovide(args: &UnprovideArgs) -> Result<Report, Failure> {
    let query = args.peer.as_ref().map(|peer| format!("?peer_id={}", segment(peer))).unwrap_or_default();
    let path = format!("/providers/{}{query}", segment(&args.id));
    let mut client = ApiClient::find(&args.node)?;
    let answer = client.ask(Method::DELETE, &path, None, PATIENCE).await?;
    let answer = client.accepted(&path, answer)?;
    if args.node.json {
        return Ok(Report::clean(answer.text() + "\n"));
    }
    let withdrawn: Value = answer.read(&path)?;
    let peer = one_line(withdrawn["provider"]["peer_id"].as_str().unwrap_or("?"));
    Ok(Report::clean(format!("{} is no longer said to be at {peer}\n", one_line(&args.id))))
}

fn provider(args: &PublishArgs) -> Value {
    let addrs: Vec<String> = args.addr.iter().map(ToString::to_string).collect();
    let mut body = json!({"addrs": addrs, "protocols": args.protocol});
    if let Some(ttl) = args.ttl {
        body["ttl_s"] = Value::from(ttl.duration().as_secs());
    }
    body
}

/// Reads a file once, however large it is.
fn hash(path: &Path) -> io::Result<Hashed> {
    let mut file = File::open(path)?;
    let mut hasher = blake3::Hasher::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let (mut count, mut content) = (0_u64, Vec::new());
    loop {
        let read = match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hasher.update(&chunk[..read]);
        count += read as u64;
        if count <= MANIFEST_BYTES_MAX as u64 {
            content.extend_from_slice(&chunk[..read]);
        }
    }
    let id = ContentId::blake3(*hasher.finalize().as_bytes());
    Ok(Hashed { id, bytes: count, content: (count <= MANIFEST_BYTES_MAX as u64).then(|| content.into()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_hashed_whole_and_kept_only_if_it_is_small() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, "abc").expect("written");
        let hashed = hash(&path).expect("read");
        assert_eq!(hashed.id.to_string(), "b3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85");
        assert_eq!((hashed.bytes, hashed.content.as_deref()), (3, Some(&b"abc"[..])));
        let large = vec![7; MANIFEST_BYTES_MAX + 1];
        std::fs::write(&path, &large).expect("written");
        let hashed = hash(&path).expect("read");
        assert_eq!((hashed.id, hashed.content), (ContentId::of_bytes(&large), None));
    }
}
