//! The node that runs with this data directory: its ports are not taken by somebody else, and it can say how it stands.

use std::net::SocketAddr;

use super::Finding;
use crate::client::{Addresses, Client, addresses};
use crate::commands::status::headline;
use crate::commands::view::Status;
use crate::commands::wait;
use crate::config::Config;
use crate::data_dir::TOKEN_FILE;
use crate::errors::Failure;

/// A running node that has proven to be the one of this data directory.
pub struct OwnNode {
    addresses: Addresses,
    status: Status,
}

impl OwnNode {
    /// Asks at the address that was written down there; none if nobody answers, or somebody else.
    pub fn find(config: &Config) -> Option<OwnNode> {
        let addresses = addresses(&config.data_dir);
        let admin = addresses.admin.clone().filter(|_| !config.amnesia)?;
        let scheme = if config.admin.tls_cert.is_some() { "https" } else { "http" };
        let token_file = config.data_dir.join(TOKEN_FILE);
        let client = Client::to(&format!("{scheme}://{admin}"), config.admin.tls_cert.as_deref(), token_file).ok()?;
        let asked = async {
            client.check_own().await?;
            Ok::<_, Failure>(client.status().await?.0)
        };
        Some(OwnNode { status: wait(asked).ok()?, addresses })
    }

    /// How the node stands.
    pub fn finding(&self) -> Finding {
        let stands = format!("runs{}, {}", self.named_process(), headline(&self.status));
        let advice = "`macronode status` shows each service";
        match self.status.state.as_str() {
            "ready" => Finding::ok("node", stands),
            "unready" | "stopped" => Finding::fail("node", stands, advice),
            _ => Finding::warn("node", stands, advice),
        }
    }

    /// The finding of a port that this very node listens on.
    pub fn port(&self, key: &str, address: SocketAddr) -> Option<Finding> {
        let Addresses { admin, api, oap, .. } = &self.addresses;
        let own = match key {
            "admin.addr" => admin,
            "api.addr" => api,
            _ => oap,
        };
        let is_own = own.as_ref().and_then(|own| own.parse().ok()) == Some(address);
        let finding =
            || format!("{address} ({key}) is held by the node of this data directory{}", self.named_process());
        is_own.then(|| Finding::ok("port", finding()))
    }

    fn named_process(&self) -> String {
        self.addresses.pid.map_or_else(String::new, |pid| format!(" (pid {pid})"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Level;
    use super::*;

    fn node(status: serde_json::Value) -> OwnNode {
        let addresses = json!({"admin": "127.0.0.1:9600", "api": "0.0.0.0:8080", "pid": 7});
        let read = |value| serde_json::from_value(value).expect("the shape of addresses.json");
        OwnNode { addresses: read(addresses), status: serde_json::from_value(status).expect("the shape of /readyz") }
    }

    #[test]
    fn a_node_that_refuses_writes_is_no_healthy_one() {
        let finding = |status| node(status).finding();
        assert_eq!(finding(json!({"state": "ready", "accepts_writes": true})).level, Level::Ok);
        let full = json!({"state": "degraded", "accepts_writes": false,
            "pressure": [{"service": "storage", "cause": "log_device"}]});
        let full = finding(full);
        let told = "runs (pid 7), degraded for reads only: storage under pressure: log_device";
        assert_eq!((full.level, full.finding.as_str()), (Level::Warn, told));
        assert_eq!(finding(json!({"state": "unready", "unmet": ["http: waits for access"]})).level, Level::Fail);
    }

    #[test]
    fn only_the_ports_it_listens_on_are_its_own() {
        let node = node(json!({"state": "ready"}));
        let port = |key: &str, address: &str| node.port(key, address.parse().expect("an address"));
        let own = port("api.addr", "0.0.0.0:8080").expect("its own");
        assert_eq!(own.finding, "0.0.0.0:8080 (api.addr) is held by the node of this data directory (pid 7)");
        assert_eq!(port("api.addr", "0.0.0.0:8081"), None);
        assert_eq!(port("oap.addr", "0.0.0.0:8080"), None);
    }
}
