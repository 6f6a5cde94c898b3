//! `macronode dht get`, `trace` and `provide`.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::args::{ProvideArgs, RecordArgs};
use super::short;
use crate::client::{ApiClient, NodeAnswer};
use crate::commands::Report;
use crate::commands::table::{row, table};
use crate::commands::text::{counted, one_line, relative, segment};
use crate::errors::{Exit, Failure};

/// Time of a walk: slow nodes are waited for.
const WALK_TIME: Duration = Duration::from_secs(12);
/// Characters of the time line.
const WIDTH: usize = 30;

/// A walk through the network, as far as people are shown of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Walk {
    key: String,
    records: Vec<Record>,
    own_records: u64,
    converged: bool,
    took_ms: f64,
    hops: Vec<Hop>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Record {
    kind: String,
    about: String,
    value: Option<String>,
    addrs: Vec<String>,
    sequence: u64,
    expires_ms: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Hop {
    peer_id: String,
    depth: u64,
    shared_bits: u64,
    asked_ms: f64,
    took_ms: f64,
    records: Option<u64>,
    closer: Option<u64>,
    failure: Option<String>,
}

/// Shows the records of an id. Exits with 70 if there are none.
pub async fn get(args: &RecordArgs) -> Result<Report, Failure> {
    let (answer, walk) = walk(args).await?;
    let exit = if walk.records.is_empty() { Exit::Failed } else { Exit::Clean };
    let text = if args.node.json { answer.text() + "\n" } else { records_table(&walk) };
    Ok(Report { text, exit })
}

/// Draws the way to an id.
pub async fn trace(args: &RecordArgs) -> Result<Report, Failure> {
    let (answer, walk) = walk(args).await?;
    Ok(Report::clean(if args.node.json { answer.text() + "\n" } else { draw(&walk) }))
}

async fn walk(args: &RecordArgs) -> Result<(NodeAnswer, Walk), Failure> {
    let path = format!("/dht/records/{}", segment(&args.id));
    let mut client = ApiClient::find(&args.node)?;
    let answer = client.ask(http::Method::GET, &path, None, WALK_TIME).await?;
    let answer = client.accepted(&path, answer)?;
    let walk = answer.read(&path)?;
    Ok((answer, walk))
}

fn records_table(walk: &Walk) -> String {
    if walk.records.is_empty() {
        return "no records\n".to_owned();
    }
    let mut rows = vec![row(["kind", "number", "ends", "about", "says"])];
    rows.extend(walk.records.iter().map(|record| {
        let says = record.value.clone().unwrap_or_else(|| record.addrs.join(" "));
        let (number, ends) = (record.sequence.to_string(), relative(record.expires_ms));
        row([&one_line(&record.kind), &number, &ends, &one_line(&record.about), &one_line(&says)])
    }));
    table(0, &rows)
}

fn draw(walk: &Walk) -> String {
    let end = walk.hops.iter().map(|hop| hop.asked_ms + hop.took_ms).fold(walk.took_ms, f64::max).max(0.001);
    let records = counted(walk.records.len() as u64, "record");
    let own = format!("  held by this node itself: {}\n", counted(walk.own_records, "record"));
    if walk.hops.is_empty() {
        let nobody = "nobody was asked: this node knows no other node";
        return format!("{records}; {nobody}\n{own}  towards {}\n", one_line(&walk.key));
    }
    let how = if walk.converged { "the nearest all answered" } else { "not all of the nearest answered" };
    let nodes = counted(walk.hops.len() as u64, "node");
    let mut text = format!("{records} after {:.1} ms, {nodes}, {how}\n", walk.took_ms);
    if walk.own_records > 0 {
        text += &own;
    }
    let mut rows = vec![row(["node", "hop", "bits", "time", "ms", "says"])];
    rows.extend(walk.hops.iter().map(|hop| {
        let (depth, bits) = (hop.depth.to_string(), hop.shared_bits.to_string());
        let times = format!("{:.1}-{:.1}", hop.asked_ms, hop.asked_ms + hop.took_ms);
        row([short(&one_line(&hop.peer_id)), &depth, &bits, &bar(hop, end), &times, &said(hop)])
    }));
    text += &table(2, &rows);
    text + &format!("  towards {}\n", one_line(&walk.key))
}

fn bar(hop: &Hop, end: f64) -> String {
    let place = |time: f64| ((time / end).clamp(0.0, 1.0) * WIDTH as f64).round() as usize;
    let from = place(hop.asked_ms).min(WIDTH - 1);
    let to = place(hop.asked_ms + hop.took_ms).max(from + 1);
    let filled = if hop.failure.is_some() { "╳" } else { "█" };
    format!("{:<WIDTH$}", " ".repeat(from) + &filled.repeat(to - from))
}

fn said(hop: &Hop) -> String {
    match (&hop.failure, hop.records, hop.closer) {
        (Some(failure), ..) => one_line(failure),
        (None, records, closer) => {
            let (records, closer) = (records.unwrap_or(0), closer.unwrap_or(0));
            format!("{}, {} nearer", counted(records, "record"), counted(closer, "node"))
        }
    }
}

/// Places a record that the node has some content.
pub async fn provide(args: &ProvideArgs) -> Result<Report, Failure> {
    let path = format!("/dht/records/{}", segment(&args.id));
    let mut body = json!({"addrs": args.addr});
    if let Some(ttl) = args.ttl {
        body["ttl_s"] = Value::from(ttl.duration().as_secs());
    }
    let answer = ApiClient::find(&args.node)?.post(&path, &body).await?;
    if args.node.json {
        return Ok(Report::clean(answer.text() + "\n"));
    }
    let record: Record = answer.read(&path)?;
    let addrs = one_line(&record.addrs.join(" "));
    let text = format!("{} provides it at {addrs}; the record is being placed\n", one_line(&record.about));
    Ok(Report::clean(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_is_drawn_with_what_everybody_said() {
        let walk: Walk = serde_json::from_value(json!({
            "id": "b3:0", "key": "00ff", "converged": true, "took_ms": 10.0, "records": [{}],
            "hops": [
                {"peer_id": "12D3KooWaaaaaaaa", "depth": 0, "shared_bits": 1, "asked_ms": 0.0, "took_ms": 5.0,
                 "records": 0, "closer": 1},
                {"peer_id": "12D3KooWbbbbbbbb", "depth": 1, "shared_bits": 7, "asked_ms": 5.0, "took_ms": 5.0,
                 "failure": "the peer did not answer in time"},
            ],
        }))
        .expect("the shape of the answer");
        let expected = format!(
            "1 record after 10.0 ms, 2 nodes, the nearest all answered\n\
             \x20 node      hop  bits  {:<30}  ms        says\n\
             \x20 aaaaaaaa  0    1     {:<30}  0.0-5.0   0 records, 1 node nearer\n\
             \x20 bbbbbbbb  1    7     {:<30}  5.0-10.0  the peer did not answer in time\n\
             \x20 towards 00ff\n",
            "time",
            "█".repeat(15),
            " ".repeat(15) + &"╳".repeat(15),
        );
        assert_eq!(draw(&walk), expected);
        assert_eq!(records_table(&Walk::default()), "no records\n");
        let own = Walk { own_records: 1, ..walk };
        assert!(draw(&own).contains("answered\n  held by this node itself: 1 record\n"));
        let alone = Walk { hops: Vec::new(), ..own };
        let expected = "1 record; nobody was asked: this node knows no other node\n\
            \x20 held by this node itself: 1 record\n  towards 00ff\n";
        assert_eq!(draw(&alone), expected);
    }
}
