//! The DHT's section of the configuration: every key once, with its meaning, bounds and reload class.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use ron_transport::PeerAddress;
use ron_types::TimeSpan;
use ron_types::limits::dht as limits;
use ron_types::settings::{
    DAY_MS, MINUTE_MS, SECOND_MS, ValueKind, choice, live, nodes, process, restarts, time, whole,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The DHT.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Where it listens, over TCP and over QUIC on the same port; port 0 takes a free one.
    #[schemars(extend("x-setting" = restarts("dht", ValueKind::Address).flag("--dht")))]
    pub addr: SocketAddr,
    /// Nodes through which the network is joined: the id of each, and the address of its DHT port.
    #[schemars(extend("x-setting" = live(nodes(limits::BOOTSTRAP_MAX)).flag("--bootstrap")))]
    pub bootstrap: Vec<String>,
    /// Part in the network: keep records for others (`server`), only ask (`client`), or the former once others can
    /// reach the node (`auto`).
    #[schemars(extend("x-setting" = restarts("dht", choice(&["auto", "client", "server"]))))]
    pub mode: Mode,
    /// Nodes nearest to a key that keep its records.
    #[schemars(extend("x-setting" = live(whole(1, limits::REPLICATION_MAX as u64))))]
    pub replication: usize,
    /// Nodes known at once.
    #[schemars(extend("x-setting" = process(whole(16, 65_536))))]
    pub peers_max: usize,
    /// Connections with other nodes at once.
    #[schemars(extend("x-setting" = live(whole(8, 65_536))))]
    pub connections_max: usize,
    /// Connections that others may open from one IP address at once; loopback is exempt.
    #[schemars(extend("x-setting" = live(whole(1, 65_536))))]
    pub connections_per_ip_max: usize,
    /// Questions and offers of one node in a second.
    #[schemars(extend("x-setting" = live(whole(1, 1_000_000))))]
    pub asks_per_peer_per_second: u64,
    /// The neighbourhood of the node is looked up again this often.
    #[schemars(extend("x-setting" = restarts("dht", time(SECOND_MS, DAY_MS))))]
    pub refresh_interval: TimeSpan,
    /// Every held record is looked at, and moved if its nearest nodes have changed, once in this time.
    #[schemars(extend("x-setting" = live(time(MINUTE_MS, DAY_MS))))]
    pub republish_interval: TimeSpan,
}

/// Part in the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Server once others can reach the node.
    #[default]
    Auto,
    /// It asks others and keeps nothing for them.
    Client,
    /// It keeps records for others.
    Server,
}

/// What the tasks read: each at its start, or whenever it needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveOptions {
    /// Where it listens.
    pub addr: SocketAddr,
    /// Nodes through which the network is joined.
    pub bootstrap: Vec<PeerAddress>,
    /// Part in the network.
    pub mode: Mode,
    /// Nodes nearest to a key that keep its records.
    pub replication: usize,
    /// Nodes known at once.
    pub peers_max: usize,
    /// Connections with other nodes at once.
    pub connections_max: usize,
    /// Connections that others may open from one IP address at once.
    pub connections_per_ip_max: usize,
    /// Questions and offers of one node in a second.
    pub asks_per_peer_per_second: u64,
    /// The neighbourhood is looked up again this often.
    pub refresh_interval: Duration,
    /// Every held record is looked at once in this time.
    pub republish_interval: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            // A free port: several nodes on one machine are the common case, and peers learn of a new port by gossip.
            addr: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            bootstrap: Vec::new(),
            mode: Mode::Auto,
            replication: limits::REPLICATION,
            peers_max: limits::PEERS_MAX,
            connections_max: limits::CONNECTIONS_MAX,
            connections_per_ip_max: limits::CONNECTIONS_PER_IP_MAX,
            asks_per_peer_per_second: limits::ASKS_PER_PEER_PER_SECOND,
            refresh_interval: TimeSpan::from_duration(limits::REFRESH_INTERVAL),
            republish_interval: TimeSpan::from_duration(limits::REPUBLISH_INTERVAL),
        }
    }
}

impl Options {
    /// What the tasks read. A node that cannot be read is left out: the check of the key refuses it before.
    pub fn live(&self) -> LiveOptions {
        LiveOptions {
            addr: self.addr,
            bootstrap: self.bootstrap.iter().filter_map(|peer| peer.parse().ok()).collect(),
            mode: self.mode,
            replication: self.replication,
            peers_max: self.peers_max,
            connections_max: self.connections_max,
            connections_per_ip_max: self.connections_per_ip_max,
            asks_per_peer_per_second: self.asks_per_peer_per_second,
            refresh_interval: self.refresh_interval.duration(),
            republish_interval: self.republish_interval.duration(),
        }
    }
}

impl Default for LiveOptions {
    fn default() -> Self {
        Options::default().live()
    }
}
