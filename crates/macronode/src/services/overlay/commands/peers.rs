//! `macronode overlay peers`, `connect` and `disconnect`.

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::args::{ConnectArgs, DisconnectArgs};
use crate::cli::ApiArgs;
use crate::client::{ApiClient, NodeAnswer, PATIENCE};
use crate::commands::Report;
use crate::commands::table::{row, table};
use crate::commands::text::{bytes, one_line};
use crate::errors::Failure;

/// Path of the list of peers.
pub const PATH: &str = "/overlay/peers";

/// How the node stands with its peers, as it says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Peers {
    /// Id of the node that was asked.
    pub node_id: String,
    /// Address at which peers reach it.
    pub listen: Option<String>,
    /// Every peer.
    pub peers: Vec<Peer>,
}

/// How one peer stands.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Peer {
    /// Id of the peer.
    pub node_id: String,
    /// Address that is dialled, or that it came from.
    pub addr: String,
    /// State of the session.
    pub state: String,
    /// Who opened the session.
    pub direction: String,
    /// Milliseconds to the peer and back.
    pub rtt_ms: Option<f64>,
    /// Bytes that wait for it.
    pub queued_bytes: u64,
    /// Messages that its full queue has refused.
    pub busy_total: u64,
    /// Its part in each lane.
    pub lanes: Vec<Lane>,
}

/// A peer's part in one lane.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Lane {
    /// The lane.
    pub lane: String,
    /// `eager` or `lazy`.
    pub link: String,
}

impl Peer {
    /// Whether frames go to and fro.
    pub fn is_connected(&self) -> bool {
        self.state == "connected"
    }

    /// Lanes in which it has this kind of link.
    pub fn links(&self, kind: &str) -> usize {
        self.lanes.iter().filter(|lane| lane.link == kind).count()
    }
}

/// The node's answer, and what it says.
pub async fn ask_peers(args: &ApiArgs) -> Result<(NodeAnswer, Peers), Failure> {
    let answer = ApiClient::find(args)?.get(PATH).await?;
    let peers = answer.read(PATH)?;
    Ok((answer, peers))
}

/// Whether the node has a session with every peer it knows of.
pub async fn has_joined(api: &mut ApiClient) -> Result<bool, Failure> {
    let peers: Peers = api.get(PATH).await?.read(PATH)?;
    Ok(peers.peers.iter().all(Peer::is_connected))
}

/// Lists the peers.
pub async fn list(args: &ApiArgs) -> Result<Report, Failure> {
    let (answer, peers) = ask_peers(args).await?;
    Ok(Report::clean(if args.json { answer.text() + "\n" } else { show(&peers) }))
}

fn show(peers: &Peers) -> String {
    let listen = peers.listen.as_ref().map_or_else(|| "dials only".to_owned(), |address| format!("at {address}"));
    let mut text = format!("{} {listen}\n", peers.node_id);
    if peers.peers.is_empty() {
        return text + "no peers; add one with `macronode overlay connect NODEID@HOST:PORT`\n";
    }
    let mut rows = vec![row(["state", "dir", "address", "rtt", "queue", "busy", "eager", "lazy", "node"])];
    rows.extend(peers.peers.iter().map(|peer| {
        let rtt = peer.rtt_ms.map_or_else(|| "-".to_owned(), |rtt| format!("{rtt:.1} ms"));
        let (eager, lazy) = (peer.links("eager").to_string(), peer.links("lazy").to_string());
        let (address, queue, busy) = (one_line(&peer.addr), bytes(peer.queued_bytes), peer.busy_total.to_string());
        row([&peer.state, &peer.direction, &address, &rtt, &queue, &busy, &eager, &lazy, &peer.node_id])
    }));
    text += &table(0, &rows);
    text
}

/// Adds a peer.
pub async fn connect(args: &ConnectArgs) -> Result<Report, Failure> {
    let (node_id, addr) = (args.peer.node_id.to_string(), args.peer.address());
    let answer = ApiClient::find(&args.node)?.post(PATH, &json!({"node_id": node_id, "addr": addr})).await?;
    let text = || format!("{} is being dialled; `macronode overlay peers` shows how it stands\n", args.peer);
    Ok(Report::clean(if args.node.json { answer.text() + "\n" } else { text() }))
}

/// Removes a peer.
pub async fn disconnect(args: &DisconnectArgs) -> Result<Report, Failure> {
    let path = format!("{PATH}/{}", args.peer);
    let mut client = ApiClient::find(&args.node)?;
    let answer = client.ask(Method::DELETE, &path, None, PATIENCE).await?;
    client.accepted(&path, answer)?;
    let text = || format!("{} is no peer any more\n", args.peer);
    Ok(Report::clean(if args.node.json { "{}\n".to_owned() } else { text() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_shown_as_a_table() {
        let peers: Peers = serde_json::from_value(json!({
            "node_id": "aa", "listen": "127.0.0.1:9500", "peers": [
                {"node_id": "bb", "addr": "10.0.0.2:9500", "state": "connected", "direction": "out",
                 "tls_group": "X25519MLKEM768", "rtt_ms": 0.25, "queued_bytes": 2048, "busy_total": 3,
                 "lanes": [{"lane": "a", "link": "eager"}, {"lane": "b", "link": "lazy"},
                           {"lane": "c", "link": "eager"}]},
                {"node_id": "cc", "addr": "x\u{1b}[2J", "state": "backoff", "direction": "out", "tls_group": null,
                 "rtt_ms": null, "queued_bytes": 0, "busy_total": 0, "lanes": []},
            ],
        }))
        .expect("the shape of the answer");
        let expected = "aa at 127.0.0.1:9500\n\
            state      dir  address        rtt     queue    busy  eager  lazy  node\n\
            connected  out  10.0.0.2:9500  0.2 ms  2.0 KiB  3     2      1     bb\n\
            backoff    out  x\\u{1b}[2J     -       0 B      0     0      0     cc\n";
        assert_eq!(show(&peers), expected);
        assert!(show(&Peers::default()).contains("dials only\nno peers; add one"));
    }
}
