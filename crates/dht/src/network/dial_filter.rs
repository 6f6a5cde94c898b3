//! What is dialled on somebody's word: addresses of nodes of this network, and few of them.
//!
//! libp2p's protocols remember where peers say that they, or others, are, and hand all of it to whoever dials: an
//! answer of Kademlia may place a node at our own loopback, or at a thousand ports of somebody who has nothing to do
//! with it.

use std::ops::{Deref, DerefMut};
use std::task::{Context, Poll};

use libp2p::core::Endpoint;
use libp2p::core::transport::PortUse;
use libp2p::swarm::behaviour::FromSwarm;
use libp2p::swarm::{
    ConnectionDenied, ConnectionId, NetworkBehaviour, THandler, THandlerInEvent, THandlerOutEvent, ToSwarm,
};
use libp2p::{Multiaddr, PeerId};

use crate::convert::dialable;

/// Protocols whose addresses are looked at before they are dialled. Those that a dial names itself were looked at where
/// they came from, or an operator named them.
pub(crate) struct DialFilter<B> {
    protocols: B,
    with_loopback: bool,
}

impl<B> DialFilter<B> {
    pub fn new(protocols: B, with_loopback: bool) -> Self {
        DialFilter { protocols, with_loopback }
    }
}

impl<B> Deref for DialFilter<B> {
    type Target = B;

    fn deref(&self) -> &B {
        &self.protocols
    }
}

impl<B> DerefMut for DialFilter<B> {
    fn deref_mut(&mut self) -> &mut B {
        &mut self.protocols
    }
}

impl<B: NetworkBehaviour> NetworkBehaviour for DialFilter<B> {
    type ConnectionHandler = B::ConnectionHandler;
    type ToSwarm = B::ToSwarm;

    fn handle_pending_outbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: Option<PeerId>,
        addresses: &[Multiaddr],
        role: Endpoint,
    ) -> Result<Vec<Multiaddr>, ConnectionDenied> {
        let known = self.protocols.handle_pending_outbound_connection(connection, peer, addresses, role)?;
        Ok(dialable(&known, self.with_loopback))
    }

    fn handle_pending_inbound_connection(
        &mut self,
        connection: ConnectionId,
        local: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<(), ConnectionDenied> {
        self.protocols.handle_pending_inbound_connection(connection, local, remote)
    }

    fn handle_established_inbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: PeerId,
        local: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.protocols.handle_established_inbound_connection(connection, peer, local, remote)
    }

    fn handle_established_outbound_connection(
        &mut self,
        connection: ConnectionId,
        peer: PeerId,
        address: &Multiaddr,
        role: Endpoint,
        port_use: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.protocols.handle_established_outbound_connection(connection, peer, address, role, port_use)
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        self.protocols.on_swarm_event(event);
    }

    fn on_connection_handler_event(&mut self, peer: PeerId, connection: ConnectionId, event: THandlerOutEvent<Self>) {
        self.protocols.on_connection_handler_event(peer, connection, event);
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        self.protocols.poll(context)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use libp2p::identity::Keypair;
    use ron_kernel::{Metrics, Snapshot};
    use ron_types::limits::dht::ADDRESSES_PER_PEER_MAX;

    use super::*;
    use crate::config::LiveOptions;
    use crate::metrics::Counts;
    use crate::network;

    /// Where a node that listens here would dial a peer that the network says is at these addresses.
    fn dialled(listen: &str, said: &[&str]) -> Vec<String> {
        let live = LiveOptions { addr: listen.parse().expect("an address"), ..LiveOptions::default() };
        let metrics = Metrics::new();
        let counts = Arc::new(Counts::default());
        let mut swarm =
            network::build(Keypair::generate_ed25519(), &Snapshot::new(live), &counts, &metrics).expect("a network");
        let peer = PeerId::random();
        for addr in said {
            swarm.behaviour_mut().kad.add_address(&peer, addr.parse().expect("an address"));
        }
        let connection = ConnectionId::new_unchecked(1);
        let found =
            swarm.behaviour_mut().handle_pending_outbound_connection(connection, Some(peer), &[], Endpoint::Dialer);
        found.expect("let through").iter().map(ToString::to_string).collect()
    }

    #[tokio::test]
    async fn nobody_is_dialled_at_our_own_loopback_or_by_a_name_on_anothers_word() {
        let said =
            ["/ip4/127.0.0.1/tcp/6379", "/dns4/example.org/tcp/80", "/ip4/0.0.0.0/tcp/1", "/ip4/192.0.2.1/tcp/1"];
        assert_eq!(dialled("0.0.0.0:4001", &said), ["/ip4/192.0.2.1/tcp/1"]);
        // Nodes of one machine know each other by these.
        assert_eq!(dialled("127.0.0.1:0", &said[..1]), ["/ip4/127.0.0.1/tcp/6379"]);
    }

    #[tokio::test]
    async fn nobody_is_dialled_at_a_thousand_ports() {
        let said: Vec<String> = (1..=1000).map(|port| format!("/ip4/192.0.2.1/tcp/{port}")).collect();
        let said: Vec<&str> = said.iter().map(String::as_str).collect();
        assert_eq!(dialled("0.0.0.0:4001", &said).len(), ADDRESSES_PER_PEER_MAX);
    }
}
