//! The index: a name or a hash to the content it stands for, and to those who have it.

mod commands;
mod examine;
mod ports;
mod upstream;

use std::path::PathBuf;
use std::sync::Arc;

use ron_api::{INDEX_SURFACE, Surface};
use ron_auth::Capabilities;
use ron_kernel::clock;
use ron_kernel::metrics::MetricSpec;
use ron_kernel::spec::{GateSpec, QueueSpec, ServiceSpec};
use ron_store::Store;
use ron_types::limits::records::ADDRS_MAX;
use svc_dht::Dht;
use svc_index::capabilities::CAPABILITIES;
use svc_index::config::Options;
use svc_index::ports::{Network, Upstream};
use svc_index::{IndexOptions, OwnAddresses, specs};

use self::ports::{DhtNetwork, IndexRecords};
use self::upstream::{Router, system_trust};
use super::{Code, Config, Failure, Finding, Installed, Pane, Parts, Routes, Section, Service, ServiceCommand};

/// Name of the index's folder in the data directory.
const FOLDER: &str = "index";
/// Name of the file of records in it.
const STORE_FILE: &str = "records.redb";

/// The index as a service of the node.
pub struct Index;

impl Service for Index {
    fn spec(&self) -> &'static ServiceSpec {
        &specs::INDEX
    }

    fn queues(&self) -> Vec<&'static QueueSpec> {
        specs::queues().collect()
    }

    fn gates(&self) -> &'static [&'static GateSpec] {
        static GATES: [&GateSpec; 1] = [&specs::INGEST_GATE];
        &GATES
    }

    fn metrics(&self) -> &'static [MetricSpec] {
        svc_index::METRICS
    }

    fn sections(&self) -> &'static [Section] {
        const SECTIONS: &[Section] = &[Section::of::<Options>("index")];
        SECTIONS
    }

    fn examine(&self, config: &Config) -> Vec<Finding> {
        examine::examine(config)
    }

    fn descriptors(&self) -> u64 {
        // The file of records, and a connection to each upstream router for a lookup under way.
        1 + ron_types::limits::index::UPSTREAMS_MAX as u64
    }

    fn capabilities(&self) -> Option<&'static Capabilities> {
        Some(&CAPABILITIES)
    }

    fn surfaces(&self) -> &'static [&'static Surface] {
        static SURFACES: [&Surface; 1] = [&INDEX_SURFACE];
        &SURFACES
    }

    fn commands(&self) -> Vec<ServiceCommand> {
        vec![ServiceCommand::new(
            "index",
            "Find out what a name or a hash stands for and who has it; publish, name and pin",
            &["macronode index publish FILE --name N  make a file known; then: index resolve name:N"],
            commands::index,
        )]
    }

    fn panes(&self) -> Vec<Box<dyn Pane>> {
        commands::panes()
    }

    fn install(&self, node: &mut Parts<'_>) -> Result<Installed, Failure> {
        let config = node.config.keep();
        let options = config.value.section::<Options>();
        let live = node.config.derive(|config| config.section::<Options>().live());
        let folder = node.data.path(FOLDER);
        let is_amnesia = folder.is_none();
        let store = open_store(folder, options)?;
        // The DHT starts earlier; a node without it answers from its own store and from routers.
        let dht = node.ports.find::<Dht>();
        let network = dht.clone().map(|dht| Arc::new(DhtNetwork(dht)) as Arc<dyn Network>);
        let fixed = IndexOptions {
            store: store.clone(),
            network,
            upstreams: upstreams(options, node)?,
            key: node.key.clone(),
            own_addresses: own_addresses(dht.clone()),
            wall_clock: Arc::new(clock::unix_millis),
            is_amnesia,
            resolvers: options.resolvers,
            cache_bytes: options.cache_bytes.bytes(),
            warmup_keys: options.warmup_keys.clone(),
            ingest_permits: config.value.permits_of(&specs::INGEST_GATE),
        };
        let index = svc_index::install(node.builder, fixed, live);
        if let Some(dht) = dht {
            dht.serve(Arc::new(IndexRecords { index: index.downgrade(), store, own: node.key.node_id().into() }));
        }
        let authority = node.authority.clone();
        let routes: Routes = Box::new(move |plane| ron_api::index_routes(plane, index, authority));
        Ok(routes.into())
    }
}

/// Where others reach the node: where its DHT listens.
fn own_addresses(dht: Option<Dht>) -> OwnAddresses {
    Arc::new(move || dht.iter().flat_map(Dht::listen_addrs).take(ADDRS_MAX).collect())
}

fn open_store(folder: Option<PathBuf>, options: &Options) -> Result<Store, Failure> {
    let Some(folder) = folder else {
        let store = Store::in_memory(options.bounds(true));
        return store.map_err(|error| Failure::new(Code::CannotStart, error.to_string()));
    };
    let unusable =
        |error: &dyn std::fmt::Display| Failure::new(Code::DataDirUnusable, format!("{}: {error}", folder.display()));
    std::fs::create_dir_all(&folder).map_err(|error| unusable(&error))?;
    let opened = Store::open(&folder.join(STORE_FILE), options.bounds(false)).map_err(|error| unusable(&error))?;
    if let Some(lost) = opened.lost {
        tracing::error!("the records of the index were damaged and are begun anew: {lost}");
    }
    Ok(opened.store)
}

/// The routers that are asked beside the peers.
fn upstreams(options: &Options, node: &Parts<'_>) -> Result<Vec<Arc<dyn Upstream>>, Failure> {
    if options.upstreams.is_empty() {
        return Ok(Vec::new());
    }
    let refused = |error: String| Failure::new(Code::CannotStart, format!("index.upstreams: {error}"));
    let tls = system_trust().map_err(refused)?;
    let router = |address: &String| {
        let router = Router::new(address, &tls, node.key.clone()).map_err(refused)?;
        Ok(Arc::new(router) as Arc<dyn Upstream>)
    };
    options.upstreams.iter().map(router).collect()
}

#[cfg(test)]
mod tests {
    use crate::cli;

    #[test]
    fn every_command_parses() {
        for line in [
            "index resolve name:a --trace --fresh --max 5 --json",
            "index providers b3:00",
            "index publish f --name n --addr /ip4/1.2.3.4/tcp/1 --addr /ip4/1.2.3.4/udp/1 --ttl 1h --protocol p",
            "index pin b3:00 --key k",
            "index unpin b3:00",
            "index unprovide b3:00 --peer 12D3 --json",
            "index name remove a",
            "index watch name:a --count 2",
            "index name set a b3:00 --ttl 1h --json",
            "index name get a",
            "index capacity --json",
            "index kept pins",
            "index kept provided --json",
            "index kept names",
            "index reindex name:a",
        ] {
            let line = format!("macronode {line}");
            assert!(cli::parse(line.split_whitespace().map(Into::into)).is_ok(), "{line}");
        }
        for line in [
            "index",
            "index resolve",
            "index resolve a --max 0",
            "index name",
            "index name set a",
            "index pin",
            "index kept",
            "index kept all",
        ] {
            let line = format!("macronode {line}");
            assert!(cli::parse(line.split_whitespace().map(Into::into)).is_err(), "{line}");
        }
    }
}
