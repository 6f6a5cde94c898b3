//! Who may have a connection: a total, a share for those who dial us, a number for each address and each peer.
//!
//! libp2p's own limits know no addresses and remember every peer id that ever connected.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use libp2p::core::transport::PortUse;
use libp2p::core::{ConnectedPoint, Endpoint};
use libp2p::swarm::behaviour::{ConnectionClosed, ConnectionEstablished, DialFailure, FromSwarm, ListenFailure};
use libp2p::swarm::{
    ConnectionDenied, ConnectionId, NetworkBehaviour, THandler, THandlerInEvent, THandlerOutEvent, ToSwarm, dummy,
};
use libp2p::{Multiaddr, PeerId};
use ron_kernel::connection_limiter::{ConnectionLimiter, ConnectionLimits, Slot};
use ron_kernel::{Metrics, Snapshot};
use ron_types::limits;

use crate::config::LiveOptions;
use crate::convert::ip_of;

/// The listener's name in the metrics of connections.
const LISTENER: &str = "dht";

/// Reason why a connection is not let in.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(&'static str);

/// Counts connections and refuses those past the limits.
pub(crate) struct Admission {
    live: Snapshot<LiveOptions>,
    limiter: ConnectionLimiter,
    /// Places of connections that others opened, from the first packet to their end.
    inbound: HashMap<ConnectionId, Slot>,
    dialing: HashSet<ConnectionId>,
    established: HashMap<ConnectionId, PeerId>,
    /// Connections of each connected peer; a peer without one is not remembered.
    by_peer: HashMap<PeerId, usize>,
    /// Inbound connections that are still in their handshake.
    in_handshake: HashSet<ConnectionId>,
}

impl Admission {
    pub fn new(live: Snapshot<LiveOptions>, metrics: &Arc<Metrics>) -> Self {
        let limits = limits_of(&live, None);
        Admission {
            live,
            limiter: ConnectionLimiter::new(LISTENER, metrics, limits),
            inbound: HashMap::new(),
            dialing: HashSet::new(),
            established: HashMap::new(),
            by_peer: HashMap::new(),
            in_handshake: HashSet::new(),
        }
    }

    /// Forgets addresses that were quiet. Called about twice a second.
    pub fn tidy(&mut self) {
        self.limiter.tidy();
    }

    fn check_established(&self, peer: &PeerId) -> Result<(), ConnectionDenied> {
        if self.established.len() >= self.live.get().value.connections_max {
            return Err(ConnectionDenied::new(Refused("too many connections")));
        }
        let of_peer = self.by_peer.get(peer).copied().unwrap_or(0);
        if of_peer >= limits::dht::CONNECTIONS_PER_PEER_MAX {
            return Err(ConnectionDenied::new(Refused("too many connections of one peer")));
        }
        Ok(())
    }

    fn forget_attempt(&mut self, connection: &ConnectionId) {
        self.in_handshake.remove(connection);
        self.dialing.remove(connection);
    }
}

/// Those who dial us get three quarters of the places, so that they cannot keep us from dialling whom we choose.
fn limits_of(live: &Snapshot<LiveOptions>, ip: Option<IpAddr>) -> ConnectionLimits {
    let live = live.get();
    let live = &live.value;
    // A cluster on one machine has one address.
    let is_exempt = ip.is_some_and(|ip| ip.is_loopback());
    ConnectionLimits {
        total: (live.connections_max * 3 / 4).max(1),
        per_ip: if is_exempt { usize::MAX } else { live.connections_per_ip_max },
        per_ip_per_second: limits::ACCEPTS_PER_IP_PER_SECOND,
    }
}

impl NetworkBehaviour for Admission {
    type ConnectionHandler = dummy::ConnectionHandler;
    type ToSwarm = Infallible;

    fn handle_pending_inbound_connection(
        &mut self,
        connection: ConnectionId,
        _: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<(), ConnectionDenied> {
        if self.in_handshake.len() >= limits::dht::HANDSHAKES_MAX {
            return Err(ConnectionDenied::new(Refused("too many handshakes")));
        }
        let ip = ip_of(remote).ok_or_else(|| ConnectionDenied::new(Refused("an address without an IP address")))?;
        let slot = self.limiter.admit(ip, limits_of(&self.live, Some(ip)));
        let slot = slot.map_err(|_| ConnectionDenied::new(Refused("too many connections of one address")))?;
        self.inbound.insert(connection, slot);
        self.in_handshake.insert(connection);
        Ok(())
    }

    fn handle_established_inbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: PeerId,
        _: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.forget_attempt(&connection);
        self.check_established(&peer)?;
        Ok(dummy::ConnectionHandler)
    }

    fn handle_pending_outbound_connection(
        &mut self,
        connection: ConnectionId,
        _: Option<PeerId>,
        _: &[Multiaddr],
        _: Endpoint,
    ) -> Result<Vec<Multiaddr>, ConnectionDenied> {
        if self.dialing.len() >= limits::dht::HANDSHAKES_MAX {
            return Err(ConnectionDenied::new(Refused("too many dials")));
        }
        self.dialing.insert(connection);
        Ok(Vec::new())
    }

    fn handle_established_outbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.forget_attempt(&connection);
        self.check_established(&peer)?;
        Ok(dummy::ConnectionHandler)
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match event {
            FromSwarm::ConnectionEstablished(ConnectionEstablished { peer_id, connection_id, endpoint, .. }) => {
                debug_assert!(
                    matches!(endpoint, ConnectedPoint::Dialer { .. }) || self.inbound.contains_key(&connection_id)
                );
                self.established.insert(connection_id, peer_id);
                *self.by_peer.entry(peer_id).or_default() += 1;
            }
            FromSwarm::ConnectionClosed(ConnectionClosed { peer_id, connection_id, .. }) => {
                self.inbound.remove(&connection_id);
                self.established.remove(&connection_id);
                if let Some(count) = self.by_peer.get_mut(&peer_id) {
                    *count -= 1;
                    if *count == 0 {
                        self.by_peer.remove(&peer_id);
                    }
                }
            }
            FromSwarm::DialFailure(DialFailure { connection_id, .. }) => self.forget_attempt(&connection_id),
            FromSwarm::ListenFailure(ListenFailure { connection_id, .. }) => {
                self.inbound.remove(&connection_id);
                self.forget_attempt(&connection_id);
            }
            _ => {}
        }
    }

    fn on_connection_handler_event(&mut self, _: PeerId, _: ConnectionId, event: THandlerOutEvent<Self>) {
        match event {}
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use libp2p::swarm::ListenError;

    use super::*;

    fn admission(live: LiveOptions) -> Admission {
        Admission::new(Snapshot::new(live), &Metrics::new())
    }

    fn knock(admission: &mut Admission, number: usize, ip: &str) -> bool {
        let address: Multiaddr = format!("/ip4/{ip}/tcp/4001").parse().expect("an address");
        let id = ConnectionId::new_unchecked(number);
        admission.handle_pending_inbound_connection(id, &address, &address).is_ok()
    }

    fn hang_up(admission: &mut Admission, number: usize, ip: &str) {
        let address: Multiaddr = format!("/ip4/{ip}/tcp/4001").parse().expect("an address");
        let failure = ListenFailure {
            local_addr: &address,
            send_back_addr: &address,
            error: &ListenError::Aborted,
            connection_id: ConnectionId::new_unchecked(number),
            peer_id: None,
        };
        admission.on_swarm_event(FromSwarm::ListenFailure(failure));
    }

    #[test]
    fn one_address_has_few_places_and_gets_them_back() {
        let mut admission = admission(LiveOptions::default());
        let most = limits::dht::CONNECTIONS_PER_IP_MAX;
        for number in 0..most {
            assert!(knock(&mut admission, number, "192.0.2.1"), "{number}");
        }
        assert!(!knock(&mut admission, most, "192.0.2.1"));
        assert!(knock(&mut admission, most + 1, "192.0.2.2"), "another address");
        hang_up(&mut admission, 0, "192.0.2.1");
        assert!(knock(&mut admission, most + 2, "192.0.2.1"));
        assert_eq!(admission.inbound.len(), most + 1);
    }

    #[test]
    fn loopback_is_one_machine_and_handshakes_are_bounded() {
        let mut admission = admission(LiveOptions::default());
        let let_in = (0..1000).filter(|number| knock(&mut admission, *number, "127.0.0.1")).count();
        assert_eq!(let_in, limits::dht::HANDSHAKES_MAX);
        for number in 0..1000 {
            hang_up(&mut admission, number, "127.0.0.1");
        }
        assert!(admission.inbound.is_empty() && admission.in_handshake.is_empty());
    }

    #[test]
    fn those_who_dial_us_leave_places_for_those_we_dial() {
        let mut admission = admission(LiveOptions { connections_max: 40, ..LiveOptions::default() });
        let mut let_in = 0;
        for number in 0..100 {
            let_in += usize::from(knock(&mut admission, number, "127.0.0.1"));
        }
        assert_eq!(let_in, 30);
    }

    #[test]
    fn one_peer_has_few_connections_and_leaves_nothing_behind() {
        let mut admission = admission(LiveOptions::default());
        let peer = PeerId::random();
        let endpoint = ConnectedPoint::Dialer {
            address: "/ip4/192.0.2.1/tcp/4001".parse().expect("an address"),
            role_override: Endpoint::Dialer,
            port_use: PortUse::Reuse,
        };
        let most = limits::dht::CONNECTIONS_PER_PEER_MAX;
        for number in 0..most {
            assert!(admission.check_established(&peer).is_ok());
            admission.on_swarm_event(FromSwarm::ConnectionEstablished(ConnectionEstablished {
                peer_id: peer,
                connection_id: ConnectionId::new_unchecked(number),
                endpoint: &endpoint,
                failed_addresses: &[],
                other_established: number,
            }));
        }
        assert!(admission.check_established(&peer).is_err());
        assert!(admission.check_established(&PeerId::random()).is_ok());
        for number in 0..most {
            admission.on_swarm_event(FromSwarm::ConnectionClosed(ConnectionClosed {
                peer_id: peer,
                connection_id: ConnectionId::new_unchecked(number),
                endpoint: &endpoint,
                cause: None,
                remaining_established: most - number - 1,
            }));
        }
        assert!(admission.by_peer.is_empty() && admission.established.is_empty());
    }
}
