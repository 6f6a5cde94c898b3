//! What the overlay of a node may hold in memory: the one formula, from the bounds that the node runs with.
//!
//! docs/overlay.md says it in words. Buffers of the kernel, stacks and what an allocator keeps are not in it.

use ron_gossip::CoreConfig;
use ron_gossip::budget::Rate;
use ron_transport::quic::session_bytes_max;
use ron_types::limits::overlay as limits;

use crate::config::{EngineOptions, LiveOptions};
use crate::engine::CATCH_UP_BYTES;

/// Bytes that a session over TCP may hold beside its outbox and frames: what a read gave, and what was encrypted and
/// not taken.
const SESSION_BYTES: usize = 256 * 1024;
/// Frames that a session over TCP may hold in part: one that arrives, in a buffer that grows by doubling, and one being
/// written.
const SESSION_FRAMES: usize = 3;

/// What a node is used for: what can only be held for a peer that is there costs nothing without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Engines that have a lane.
    pub engines: usize,
    /// Peers with a session.
    pub peers: usize,
    /// Peers among them whose session is over QUIC.
    pub quic_peers: usize,
    /// Subscriptions over HTTP.
    pub subscriptions: usize,
}

impl Use {
    /// As much as a node allows, over TCP.
    pub const MOST: Use = Use {
        engines: limits::ENGINES,
        peers: limits::PEERS_MAX,
        quic_peers: 0,
        subscriptions: limits::SUBSCRIPTIONS_MAX,
    };
}

/// The bounds of each core, as the node's configuration has them.
pub(crate) fn core_config(options: &EngineOptions) -> CoreConfig {
    let policies = options.lane_overflow.iter().map(|(lane, overflow)| (*lane, (*overflow).into()));
    CoreConfig {
        peers_max: limits::PEERS_MAX,
        ring_bytes_max: options.ring_bytes,
        ring_bytes_per_lane: options.ring_bytes,
        lane_frames: Rate { per_second: options.lane_messages_per_second, burst: options.lane_burst },
        slow_consumer: options.egress_overflow.into(),
        slow_consumer_of: policies.collect(),
        signatures: options.signatures.into(),
        ..CoreConfig::default()
    }
}

/// Bytes that wait for one of so many peers at most.
pub(crate) fn egress_bytes_max(configured: usize, peers: usize) -> usize {
    configured.min(limits::EGRESS_TOTAL_BYTES_MAX / peers.max(1))
}

/// Bytes that the overlay of a node never exceeds with these settings, used like this.
pub fn bytes_max(options: &LiveOptions, usage: Use) -> usize {
    let core = CoreConfig { peers_max: usage.peers, ..core_config(&options.engine) };
    let engines = usage.engines * (core.memory_bytes_max() + limits::INGRESS_BYTES_MAX);
    let frame_bytes_max = options.frames.frame_bytes_max;
    let outbox = egress_bytes_max(options.egress_bytes_max, usage.peers).max(frame_bytes_max);
    let over_tcp = SESSION_FRAMES * frame_bytes_max + SESSION_BYTES;
    let quic_peers = usage.quic_peers.min(usage.peers);
    let sessions = (usage.peers - quic_peers) * over_tcp + quic_peers * session_bytes_max(frame_bytes_max);
    let peers = usage.peers * outbox + sessions;
    // A subscriber below its part may grow to it although the others have taken all there is.
    let subscribers = (usage.subscriptions * limits::SUBSCRIBER_BYTES_MAX).min(2 * limits::SUBSCRIBERS_BYTES_MAX);
    engines + peers + subscribers + usage.subscriptions * CATCH_UP_BYTES
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{FrameLimits, Options};

    const MIB: usize = 1 << 20;

    fn live(options: &Options) -> LiveOptions {
        let second = Duration::from_secs(1);
        options.live(FrameLimits { frame_bytes_max: MIB, read_timeout: second, write_timeout: second })
    }

    #[test]
    fn the_page_says_what_the_formula_gives() {
        let page = include_str!("../../../docs/overlay.md");
        let options = live(&Options::default());
        let small = Use { engines: limits::ENGINES, peers: 8, quic_peers: 0, subscriptions: 16 };
        let over_quic = |usage: Use| Use { quic_peers: usage.peers, ..usage };
        let rows = [
            ("8 peers and 16 subscriptions", small),
            ("as much as a node allows", Use::MOST),
            ("as much as a node allows, over QUIC", over_quic(Use::MOST)),
        ];
        assert!(bytes_max(&options, over_quic(small)) >= bytes_max(&options, small));
        for (what, usage) in rows {
            let said = format!("| {what} | {} MiB |", bytes_max(&options, usage).div_ceil(MIB));
            assert!(page.contains(&said), "docs/overlay.md does not say: {said}");
        }
    }

    #[test]
    fn settings_and_use_count() {
        let bytes = |options: &Options, usage| bytes_max(&live(options), usage);
        let (options, one) = (Options::default(), Use { engines: 1, peers: 1, quic_peers: 0, subscriptions: 1 });
        let larger = Options { ring_bytes: ron_types::Size(limits::RING_BYTES + MIB), ..Options::default() };
        assert_eq!(bytes(&larger, one) - bytes(&options, one), MIB);
        assert_eq!(bytes(&larger, Use { engines: 4, ..one }) - bytes(&options, Use { engines: 4, ..one }), 4 * MIB);
        let most = |peers| bytes(&options, Use { peers, ..one });
        assert!(most(33) - most(32) < most(2) - most(1), "many peers share what waits for all of them");
    }
}
