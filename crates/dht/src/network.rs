//! The libp2p network: transports, protocols and their bounds. Only this crate instantiates it.

pub(crate) mod admission;
pub(crate) mod codec;
mod dial_filter;
mod no_records;

use std::num::NonZeroUsize;
use std::sync::Arc;

use libp2p::identity::Keypair;
use libp2p::swarm::NetworkBehaviour;
use libp2p::{StreamProtocol, Swarm, SwarmBuilder, identify, kad, noise, ping, request_response, tcp, tls, yamux};
use ron_kernel::{Metrics, Snapshot};
use ron_types::limits::dht as limits;

use crate::config::LiveOptions;
use crate::metrics::Counts;
use crate::network::admission::Admission;
use crate::network::codec::IndexCodec;
use crate::network::dial_filter::DialFilter;
use crate::network::no_records::NoRecords;

/// Protocol of the membership. A network of its own: whoever shares an id with another network merges with it.
pub(crate) const KAD_PROTOCOL: StreamProtocol = StreamProtocol::new("/macronode/kad/1.0.0");
/// What nodes say they speak, to tell them from nodes of other networks.
const IDENTITY: &str = "/macronode/1.0.0";

/// Time in which one step of a walk through the network must be done.
const KAD_STREAM_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(3);
/// Time in which a walk through the network must be done.
const KAD_QUERY_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(20);
/// Bytes that may be under way on one QUIC stream, and on all streams of one connection.
const QUIC_WINDOWS: (u32, u32) = (512 * 1024, 4 * 1024 * 1024);

/// What the network speaks. The order matters: who is not let in meets none of the others.
#[derive(NetworkBehaviour)]
pub(crate) struct Protocols {
    pub admission: Admission,
    pub identify: identify::Behaviour,
    pub ping: ping::Behaviour,
    pub kad: kad::Behaviour<NoRecords>,
    pub index: request_response::Behaviour<IndexCodec>,
}

/// What the network does.
pub(crate) type Behaviour = DialFilter<Protocols>;
/// What happens in it.
pub(crate) type BehaviourEvent = ProtocolsEvent;

/// A network that listens nowhere and knows nobody yet.
pub(crate) fn build(
    keypair: Keypair,
    live: &Snapshot<LiveOptions>,
    counts: &Arc<Counts>,
    metrics: &Arc<Metrics>,
) -> Result<Swarm<Behaviour>, String> {
    let (refresh, with_loopback) = (live.get().value.refresh_interval, live.get().value.addr.ip().is_loopback());
    let admission = Admission::new(live.clone(), metrics);
    let protocols = |pair: &Keypair| Protocols {
        admission,
        identify: identify::Behaviour::new(
            identify::Config::new(IDENTITY.to_owned(), pair.public())
                .with_agent_version(concat!("macronode/", env!("CARGO_PKG_VERSION")).to_owned())
                .with_push_listen_addr_updates(true),
        ),
        ping: ping::Behaviour::new(
            ping::Config::new().with_interval(limits::PING_INTERVAL).with_timeout(limits::PING_TIMEOUT),
        ),
        kad: membership(pair, refresh),
        index: request_response::Behaviour::with_codec(
            IndexCodec::new(Arc::clone(counts)),
            [(codec::PROTOCOL, request_response::ProtocolSupport::Full)],
            request_response::Config::default()
                .with_request_timeout(limits::ASK_TIME_MAX)
                // More than a connection can have: libp2p would tell the log of each stream that finds no room.
                .with_max_concurrent_streams(2 * limits::STREAMS_MAX),
        ),
    };
    let swarm = SwarmBuilder::with_existing_identity(keypair)
        .with_tokio()
        .with_tcp(tcp::Config::default().nodelay(true), (noise::Config::new, tls::Config::new), multiplexer)
        .map_err(|error| format!("the transport over TCP: {error}"))?
        .with_quic_config(|mut config| {
            (config.max_stream_data, config.max_connection_data) = QUIC_WINDOWS;
            config.max_concurrent_stream_limit = limits::STREAMS_MAX as u32;
            config.handshake_timeout = limits::HANDSHAKE_TIMEOUT;
            config
        })
        .with_behaviour(|pair| DialFilter::new(protocols(pair), with_loopback))
        .map_err(|error| format!("the protocols: {error}"))?
        .with_swarm_config(|config| {
            config
                .with_idle_connection_timeout(limits::IDLE_TIMEOUT)
                .with_max_negotiating_inbound_streams(limits::STREAMS_NEGOTIATING_MAX)
                .with_smart_dial()
        })
        .with_connection_timeout(limits::HANDSHAKE_TIMEOUT)
        .build();
    Ok(swarm)
}

fn multiplexer() -> yamux::Config {
    let mut config = yamux::Config::default();
    config.set_max_num_streams(limits::STREAMS_MAX);
    config
}

/// Kademlia as a table of neighbours and nothing else: what it stores is nothing, and who enters it we decide.
fn membership(pair: &Keypair, refresh: std::time::Duration) -> kad::Behaviour<NoRecords> {
    let mut config = kad::Config::new(KAD_PROTOCOL);
    config
        .set_kbucket_inserts(kad::BucketInserts::Manual)
        .set_record_filtering(kad::StoreInserts::FilterBoth)
        .set_replication_factor(NonZeroUsize::new(limits::REPLICATION).unwrap_or(kad::K_VALUE))
        .set_replication_interval(None)
        .set_publication_interval(None)
        .set_provider_publication_interval(None)
        .set_caching(kad::Caching::Disabled)
        .set_query_timeout(KAD_QUERY_TIMEOUT)
        .set_substreams_timeout(KAD_STREAM_TIMEOUT)
        .set_periodic_bootstrap_interval(Some(refresh));
    let mut behaviour = kad::Behaviour::with_config(pair.public().to_peer_id(), NoRecords, config);
    // Nobody counts on this node until it is known that others reach it.
    behaviour.set_mode(Some(kad::Mode::Client));
    behaviour
}
