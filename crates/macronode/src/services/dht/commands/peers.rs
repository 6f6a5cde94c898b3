//! `macronode dht peers` and `bootstrap`.

use std::time::Duration;

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::args::BootstrapArgs;
use crate::cli::ApiArgs;
use crate::client::{ApiClient, PATIENCE};
use crate::commands::Report;
use crate::commands::table::{row, table};
use crate::commands::text::{counted, one_line};
use crate::errors::Failure;

/// Path of the list of nodes.
pub const PATH: &str = "/dht/peers";
/// Time of joining anew: slow nodes are waited for.
const BOOTSTRAP_TIME: Duration = Duration::from_secs(15);

/// The node in its network, as it says.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Network {
    /// Peer id of the node that was asked.
    pub peer_id: String,
    /// Where it listens.
    pub listen: Vec<String>,
    /// Whether it keeps records for others.
    pub server: bool,
    /// Whether it knows every node.
    pub complete: bool,
    /// Connections it has.
    pub connections: u64,
    /// The nodes it knows.
    pub peers: Vec<Peer>,
}

/// How one node stands.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Peer {
    /// Peer id.
    pub peer_id: String,
    /// Where it is reached.
    pub addrs: Vec<String>,
    /// Connections with it.
    pub connections: u64,
    /// Milliseconds to it and back.
    pub rtt_ms: Option<f64>,
    /// Dials and questions in a row that came to nothing.
    pub failures: u64,
    /// How it became known.
    pub source: String,
    /// Leading bits that its place shares with the node's.
    pub shared_bits: u64,
}

impl Network {
    /// The node in one line.
    pub fn headline(&self) -> String {
        let part = if self.server { "keeps records" } else { "only asks" };
        let known = counted(self.peers.len() as u64, "node");
        let whole = if self.complete { " (all there are)" } else { "" };
        format!("{part}, knows {known}{whole}, {}", counted(self.connections, "connection"))
    }
}

/// Path of the peers of the overlay, who tell each other where their DHT is.
const OVERLAY_PATH: &str = "/overlay/peers";

/// Whether the node listens, and knows as many nodes as its overlay has sessions with.
pub async fn has_joined(api: &mut ApiClient) -> Result<bool, Failure> {
    let network: Network = api.get(PATH).await?.read(PATH)?;
    let answer = api.ask(Method::GET, OVERLAY_PATH, None, PATIENCE).await?;
    let overlay: Value = if answer.status == 200 { answer.read(OVERLAY_PATH)? } else { Value::Null };
    let sessions = overlay["peers"].as_array().map_or(0, Vec::len);
    Ok(!network.listen.is_empty() && network.peers.len() >= sessions)
}

/// Lists the nodes.
pub async fn list(args: &ApiArgs) -> Result<Report, Failure> {
    let answer = ApiClient::find(args)?.get(PATH).await?;
    let text = if args.json { answer.text() + "\n" } else { show(&answer.read(PATH)?) };
    Ok(Report::clean(text))
}

fn show(network: &Network) -> String {
    let listen = if network.listen.is_empty() { "nowhere".to_owned() } else { network.listen.join(" ") };
    let mut text = format!("{}\n{}\nlistens {}\n", one_line(&network.peer_id), network.headline(), one_line(&listen));
    if network.peers.is_empty() {
        return text + "no nodes; join others with `macronode dht bootstrap PEER_ID --addr MULTIADDR`\n";
    }
    let mut rows = vec![row(["bits", "links", "rtt", "failed", "by", "node", "addresses"])];
    rows.extend(network.peers.iter().map(|peer| {
        let [bits, links, rtt, failures] = peer.cells();
        let addrs = one_line(&peer.addrs.join(" "));
        row([&bits, &links, &rtt, &failures, &one_line(&peer.source), &one_line(&peer.peer_id), &addrs])
    }));
    text += &table(0, &rows);
    text
}

impl Peer {
    /// The numbers of it.
    pub fn cells(&self) -> [String; 4] {
        let rtt = self.rtt_ms.map_or_else(|| "-".to_owned(), |rtt| format!("{rtt:.1} ms"));
        [self.shared_bits.to_string(), self.connections.to_string(), rtt, self.failures.to_string()]
    }
}

/// Joins the network anew.
pub async fn bootstrap(args: &BootstrapArgs) -> Result<Report, Failure> {
    const PATH: &str = "/dht/bootstrap";
    let body = match &args.peer {
        Some(peer) => json!({"peer_id": peer, "addrs": args.addr}),
        None => json!({}),
    };
    let answer = ApiClient::find(&args.node)?.post_within(PATH, &body, BOOTSTRAP_TIME).await?;
    if args.node.json {
        return Ok(Report::clean(answer.text() + "\n"));
    }
    let joined: Value = answer.read(PATH)?;
    Ok(Report::clean(format!("{} known\n", counted(joined["peers"].as_u64().unwrap_or(0), "node"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_shown_as_a_table() {
        let network: Network = serde_json::from_value(json!({
            "peer_id": "12D3me", "listen": ["/ip4/127.0.0.1/tcp/1"], "server": true, "complete": true,
            "connections": 1, "peers": [
                {"peer_id": "12D3you", "addrs": ["/ip4/127.0.0.1/tcp/2"], "connections": 1, "rtt_ms": 0.42,
                 "failures": 0, "source": "overlay", "since_ms": 5, "shared_bits": 3},
                {"peer_id": "x\u{1b}[2J", "addrs": [], "connections": 0, "rtt_ms": null, "failures": 2,
                 "source": "met", "since_ms": 5, "shared_bits": 0},
            ],
        }))
        .expect("the shape of the answer");
        let expected = "12D3me\nkeeps records, knows 2 nodes (all there are), 1 connection\n\
            listens /ip4/127.0.0.1/tcp/1\n\
            bits  links  rtt     failed  by       node        addresses\n\
            3     1      0.4 ms  0       overlay  12D3you     /ip4/127.0.0.1/tcp/2\n\
            0     0      -       2       met      x\\u{1b}[2J\n";
        assert_eq!(show(&network), expected);
        assert!(show(&Network::default()).contains("no nodes; join others"));
    }
}
