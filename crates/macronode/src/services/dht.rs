//! The DHT: a network of nodes that keep signed records near their keys.

mod commands;
mod gossip;

use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use ron_api::{DHT_SURFACE, Surface};
use ron_auth::Capabilities;
use ron_kernel::metrics::MetricSpec;
use ron_kernel::spec::{QueueSpec, ServiceSpec};
use svc_dht::capabilities::CAPABILITIES;
use svc_dht::config::Options;
use svc_dht::{DhtOptions, Gossip, specs};
use svc_overlay::Overlay;

use self::gossip::OverlayGossip;
use super::{ApiClient, Config, Failure, Finding, Installed, Pane, Parts, Routes, Section, Service, ServiceCommand};

/// Name of the file of known nodes in the data directory.
const PEERS_FILE: &str = "dht-peers";

/// The DHT as a service of the node.
pub struct Dht;

impl Service for Dht {
    fn spec(&self) -> &'static ServiceSpec {
        &specs::DHT
    }

    fn queues(&self) -> Vec<&'static QueueSpec> {
        specs::queues().collect()
    }

    fn metrics(&self) -> &'static [MetricSpec] {
        svc_dht::METRICS
    }

    fn sections(&self) -> &'static [Section] {
        const SECTIONS: &[Section] = &[Section::of::<Options>("dht")];
        SECTIONS
    }

    fn examine(&self, config: &Config) -> Vec<Finding> {
        vec![reach(config.section::<Options>())]
    }

    fn descriptors(&self) -> u64 {
        ron_types::limits::dht::CONNECTIONS_MAX as u64
    }

    fn capabilities(&self) -> Option<&'static Capabilities> {
        Some(&CAPABILITIES)
    }

    fn surfaces(&self) -> &'static [&'static Surface] {
        static SURFACES: [&Surface; 1] = [&DHT_SURFACE];
        &SURFACES
    }

    fn commands(&self) -> Vec<ServiceCommand> {
        vec![ServiceCommand::new(
            "dht",
            "See the network of nodes that keep records, and follow the way to one",
            &["macronode dht peers                    the nodes this one knows, nearest first"],
            commands::dht,
        )]
    }

    fn panes(&self) -> Vec<Box<dyn Pane>> {
        commands::panes()
    }

    fn has_joined<'a>(&'a self, api: &'a mut ApiClient) -> LocalBoxFuture<'a, Result<bool, Failure>> {
        Box::pin(commands::has_joined(api))
    }

    fn install(&self, node: &mut Parts<'_>) -> Result<Installed, Failure> {
        let live = node.config.derive(|config| config.section::<Options>().live());
        // The overlay starts earlier; a node without it knows only whom it is told of and whom it meets.
        let overlay = node.ports.find::<Overlay>();
        let gossip = overlay.map(|overlay| Arc::new(OverlayGossip::new(overlay)) as Arc<dyn Gossip>);
        let fixed = DhtOptions { key: node.key.clone(), peers_file: node.data.path(PEERS_FILE), gossip };
        let dht = svc_dht::install(node.builder, fixed, live);
        node.ports.offer(dht.clone());
        let (authority, key) = (node.authority.clone(), node.key.clone());
        let routes: Routes = Box::new(move |plane| ron_api::dht_routes(plane, dht, authority, key));
        Ok(routes.into())
    }
}

/// Whether others can reach the node, and the node others.
fn reach(options: &Options) -> Finding {
    let listen = options.addr;
    match (listen.ip().is_loopback(), options.bootstrap.is_empty()) {
        (true, false) => Finding::warn(
            "dht",
            format!("listens on {listen}, which other machines cannot reach, and has nodes to join"),
            "set `dht.addr` to an address that they can reach, or `dht.mode` to client",
        ),
        (_, true) => Finding::ok("dht", format!("listens on {listen}; meets the nodes that the overlay knows")),
        (false, false) => {
            Finding::ok("dht", format!("listens on {listen}; joins through {} nodes", options.bootstrap.len()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli;
    use crate::doctor::Level;

    #[test]
    fn every_command_parses() {
        for line in [
            "dht peers --json",
            "dht get b3:00 --data-dir d",
            "dht trace name:a@00 --json",
            "dht provide b3:00 --addr /ip4/1.2.3.4/tcp/1 --ttl 1h",
            "dht bootstrap",
            "dht bootstrap 12D3 --addr /ip4/1.2.3.4/tcp/1 --json",
        ] {
            let line = format!("macronode {line}");
            assert!(cli::parse(line.split_whitespace().map(Into::into)).is_ok(), "{line}");
        }
        for line in ["dht", "dht get", "dht bootstrap 12D3", "dht bootstrap --addr /ip4/1.2.3.4/tcp/1"] {
            let line = format!("macronode {line}");
            assert!(cli::parse(line.split_whitespace().map(Into::into)).is_err(), "{line}");
        }
    }

    #[test]
    fn a_node_that_nobody_can_reach_is_told() {
        let found = |addr: &str, bootstrap: Vec<String>| {
            reach(&Options { addr: addr.parse().expect("an address"), bootstrap, ..Options::default() }).level
        };
        assert_eq!(found("127.0.0.1:0", Vec::new()), Level::Ok);
        assert_eq!(found("127.0.0.1:0", vec!["x".to_owned()]), Level::Warn);
        assert_eq!(found("0.0.0.0:4001", vec!["x".to_owned()]), Level::Ok);
    }
}
