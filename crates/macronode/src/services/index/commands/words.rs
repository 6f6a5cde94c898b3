//! Answers of the node about ids, as far as people are shown of them.

use serde::{Deserialize, Serialize};

use crate::commands::table::{row, shortened, table};
use crate::commands::text::{one_line, span};

/// What an id stands for and who has it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct Resolved {
    /// The id, as the node writes it.
    pub id: String,
    /// `found`, `absent`, `unknown` or `degraded`.
    pub outcome: String,
    /// `cache`, `store` or `dht`.
    pub source: String,
    /// Age of the answer.
    pub age_ms: u64,
    /// Time the node took.
    pub took_ms: f64,
    /// Targets that were left out because their breaker is open.
    pub open_targets: u64,
    /// The record of the name, if the id is one.
    pub name: Option<NameView>,
    /// The content that the id stands for.
    pub content: Option<ContentView>,
    /// The manifest, if the node has it.
    pub manifest: Option<ManifestView>,
    /// Those who have the content, best first.
    pub providers: Vec<Provider>,
    /// Everybody who was asked.
    pub course: Vec<Ask>,
}

/// A name and what it stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct NameView {
    /// The name with its owner.
    pub name: String,
    /// Content that it stands for.
    pub value: String,
    /// Number of the record: the highest counts.
    pub sequence: u64,
    /// Moment at which the record ends.
    pub expires_ms: u64,
}

/// Content under both of its names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct ContentView {
    /// `b3:` and the digest, if its hash is BLAKE3.
    pub b3: Option<String>,
    /// The CID.
    pub cid: String,
}

/// A document of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct ManifestView {
    /// Path of its bytes on the public plane.
    pub href: String,
    /// Size of it.
    pub bytes: u64,
}

/// Somebody who has the content.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct Provider {
    /// Who.
    pub peer_id: String,
    /// Where.
    pub addrs: Vec<String>,
    /// How.
    pub protocols: Vec<String>,
    /// The higher, the better.
    pub score: f64,
    /// Moment at which the record ends.
    pub expires_ms: u64,
    /// Whether somebody else signed for the provider.
    pub vouched: bool,
}

/// Somebody who was asked, and how that ended.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct Ask {
    /// The peer or the router.
    pub target: String,
    /// `peer` or `upstream`.
    pub class: String,
    /// Whether it was asked because others took too long.
    pub hedge: bool,
    /// Milliseconds after the beginning at which it was asked.
    pub asked_ms: f64,
    /// Milliseconds after the beginning at which that ended; none for one that was not asked.
    pub ended_ms: Option<f64>,
    /// `won`, `empty`, `cancelled`, `failed`, `timed_out` or `skipped`.
    pub end: String,
    /// State of its breaker.
    pub breaker: String,
}

impl Resolved {
    /// The answer in a few lines.
    pub fn show(&self) -> String {
        let mut text = format!("{}  {}\n", self.outcome, one_line(&self.id));
        let mut facts = vec![row(["from", &self.origin()])];
        if let Some(name) = &self.name {
            let value = format!("{}, number {}", one_line(&name.value), name.sequence);
            facts.push(row(["stands for", &value]));
        }
        if let Some(content) = &self.content {
            facts.extend(content.b3.iter().map(|b3| row(["b3", &one_line(b3)])));
            facts.push(row(["cid", &one_line(&content.cid)]));
        }
        if let Some(manifest) = &self.manifest {
            let manifest = format!("{} bytes at {}", manifest.bytes, one_line(&manifest.href));
            facts.push(row(["manifest", &manifest]));
        }
        text += &table(2, &facts);
        text + &providers_table(&self.providers)
    }

    fn origin(&self) -> String {
        let mut origin = format!("{} in {}", one_line(&self.source), milliseconds(self.took_ms));
        if self.age_ms > 0 {
            origin += &format!(", {} old", span(self.age_ms));
        }
        if self.open_targets > 0 {
            origin += &format!(", {} not asked: their breakers are open", self.open_targets);
        }
        origin
    }
}

/// The providers, one a line.
pub fn providers_table(providers: &[Provider]) -> String {
    if providers.is_empty() {
        return "  no providers\n".to_owned();
    }
    let mut rows = vec![row(["score", "provider", "protocols", "addresses"])];
    rows.extend(providers.iter().map(|provider| {
        let vouched = if provider.vouched { " (vouched)" } else { "" };
        let who = format!("{}{vouched}", one_line(&provider.peer_id));
        let protocols = if provider.protocols.is_empty() { "-".to_owned() } else { provider.protocols.join(",") };
        let addrs = if provider.addrs.is_empty() { "-".to_owned() } else { provider.addrs.join(" ") };
        row([&format!("{:.2}", provider.score), &who, &one_line(&protocols), &one_line(&addrs)])
    }));
    table(2, &rows)
}

/// The beginning and the end of an id, which of peers is what differs.
pub fn short(id: &str) -> String {
    let id = one_line(id);
    let count = id.chars().count();
    if count <= 20 {
        return id;
    }
    if id.contains("://") {
        return shortened(&id, 28);
    }
    let tail: String = id.chars().skip(count - 6).collect();
    format!("{}…{tail}", id.chars().take(6).collect::<String>())
}

/// A time in milliseconds with as many digits as are worth reading.
pub fn milliseconds(time: f64) -> String {
    if time < 10.0 { format!("{time:.1} ms") } else { format!("{time:.0} ms") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_is_shown_with_where_it_came_from() {
        let resolved: Resolved = serde_json::from_value(json!({
            "id": "name:site@aa", "outcome": "found", "source": "dht", "age_ms": 61_000, "took_ms": 3.21,
            "open_targets": 2, "name": {"name": "name:site@aa", "value": "b3:00", "sequence": 4, "expires_ms": 9},
            "content": {"b3": "b3:00", "cid": "bafk"}, "manifest": {"href": "/manifests/b3:00", "bytes": 12},
            "providers": [
                {"peer_id": "12D3KooW", "addrs": ["/ip4/127.0.0.1/tcp/1"], "protocols": [], "score": 0.914,
                 "expires_ms": 1, "vouched": true, "terms": {"rtt": 1.0}},
                {"peer_id": "x\u{1b}[2J", "addrs": [], "protocols": ["a", "b"], "score": 0.1},
            ],
        }))
        .expect("the shape of the answer");
        let expected = "found  name:site@aa\n\
            \x20 from        dht in 3.2 ms, 1 min old, 2 not asked: their breakers are open\n\
            \x20 stands for  b3:00, number 4\n\
            \x20 b3          b3:00\n\
            \x20 cid         bafk\n\
            \x20 manifest    12 bytes at /manifests/b3:00\n\
            \x20 score  provider            protocols  addresses\n\
            \x20 0.91   12D3KooW (vouched)  -          /ip4/127.0.0.1/tcp/1\n\
            \x20 0.10   x\\u{1b}[2J          a,b        -\n";
        assert_eq!(resolved.show(), expected);
        assert!(Resolved::default().show().ends_with("no providers\n"));
    }

    #[test]
    fn long_ids_keep_both_ends() {
        assert_eq!(short("12D3KooWAbcdefghijklmnopqrstuvwxyz"), "12D3Ko…uvwxyz");
        assert_eq!(short("http://127.0.0.1:80"), "http://127.0.0.1:80");
        assert_eq!(short("https://router.example.org/with/a/path"), "https://router.example.org/…");
    }
}
