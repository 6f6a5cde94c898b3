//! Between the words of libp2p and those of the rest of the node.

use std::net::{IpAddr, SocketAddr};

use libp2p::Multiaddr;
use libp2p::identity::Keypair;
use libp2p::multiaddr::Protocol;
use ron_store::PeerId;
use ron_transport::NodeKey;
use ron_types::limits::dht::ADDRESSES_PER_PEER_MAX;

/// What stands before the 32 bytes of the key in PKCS #8, version 1, for Ed25519 (RFC 8410).
const PKCS8_PREFIX: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// The node's key in the shape libp2p takes; none if the key is not written as every Ed25519 key is.
pub(crate) fn keypair_of(key: &NodeKey) -> Option<Keypair> {
    let document = key.to_pkcs8().ok()?;
    let mut secret: [u8; 32] = document.strip_prefix(&PKCS8_PREFIX)?.try_into().ok()?;
    // The bytes are wiped by the callee.
    let pair = Keypair::ed25519_from_bytes(&mut secret).ok()?;
    let is_same = pair.public().try_into_ed25519().is_ok_and(|public| public.to_bytes() == *key.node_id().as_bytes());
    is_same.then_some(pair)
}

/// A peer as libp2p names it.
pub(crate) fn theirs(peer: &PeerId) -> Option<libp2p::PeerId> {
    libp2p::PeerId::from_bytes(peer.as_bytes()).ok()
}

/// A peer as we name it.
pub(crate) fn ours(peer: &libp2p::PeerId) -> Option<PeerId> {
    PeerId::from_bytes(&peer.to_bytes()).ok()
}

/// The IP address at the beginning of an address.
pub(crate) fn ip_of(address: &Multiaddr) -> Option<IpAddr> {
    match address.iter().next()? {
        Protocol::Ip4(ip) => Some(IpAddr::V4(ip)),
        Protocol::Ip6(ip) => Some(IpAddr::V6(ip)),
        _ => None,
    }
}

/// The addresses of a node that listens here over TCP and over QUIC.
pub(crate) fn both_transports(address: SocketAddr) -> [Multiaddr; 2] {
    [over_tcp(address), over_quic(address)]
}

/// The address over TCP.
pub(crate) fn over_tcp(address: SocketAddr) -> Multiaddr {
    Multiaddr::from(address.ip()).with(Protocol::Tcp(address.port()))
}

/// The address over QUIC.
pub(crate) fn over_quic(address: SocketAddr) -> Multiaddr {
    Multiaddr::from(address.ip()).with(Protocol::Udp(address.port())).with(Protocol::QuicV1)
}

/// The port of an address over TCP.
pub(crate) fn tcp_port_of(address: &Multiaddr) -> Option<u16> {
    address.iter().find_map(|part| match part {
        Protocol::Tcp(port) => Some(port),
        _ => None,
    })
}

/// What of these addresses can be dialled: an IP address with TCP or QUIC and nothing more, without the peer's id. A
/// name would have the node ask DNS for whoever sent it, and a loopback address of somebody far away is our own.
pub(crate) fn dialable<'a>(addresses: impl IntoIterator<Item = &'a Multiaddr>, with_loopback: bool) -> Vec<Multiaddr> {
    let mut found: Vec<Multiaddr> = Vec::new();
    for address in addresses {
        let bare: Multiaddr = address.iter().filter(|part| !matches!(part, Protocol::P2p(_))).collect();
        if is_dialable(&bare, with_loopback) && !found.contains(&bare) {
            found.push(bare);
        }
        if found.len() == ADDRESSES_PER_PEER_MAX {
            break;
        }
    }
    // In one order, whoever lists them: libp2p ranks addresses by itself when it dials.
    found.sort();
    found
}

fn is_dialable(address: &Multiaddr, with_loopback: bool) -> bool {
    let Some(ip) = ip_of(address) else { return false };
    let ip = ip.to_canonical();
    if ip.is_unspecified() || ip.is_multicast() || (ip.is_loopback() && !with_loopback) {
        return false;
    }
    let rest: Vec<Protocol<'_>> = address.iter().skip(1).collect();
    matches!(rest.as_slice(), [Protocol::Tcp(1..)] | [Protocol::Udp(1..), Protocol::QuicV1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_the_node_is_the_peer_id() {
        let key = NodeKey::generate().expect("randomness");
        let pair = keypair_of(&key).expect("an Ed25519 key");
        let peer = PeerId::from(key.node_id());
        assert_eq!(ours(&pair.public().to_peer_id()), Some(peer));
        assert_eq!(theirs(&peer), Some(pair.public().to_peer_id()));
        let message = b"the same key signs";
        assert!(key.node_id().verifies(message, &pair.sign(message).expect("signed")));
    }

    #[test]
    fn only_plain_addresses_are_dialled() {
        let check = |text: &str, with_loopback: bool, expected: &[&str]| {
            let address: Multiaddr = text.parse().expect("an address");
            let found: Vec<String> = dialable([&address], with_loopback).iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{text}");
        };
        check("/ip4/192.0.2.1/tcp/4001", false, &["/ip4/192.0.2.1/tcp/4001"]);
        check("/ip6/2001:db8::1/udp/4001/quic-v1", false, &["/ip6/2001:db8::1/udp/4001/quic-v1"]);
        let peer = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";
        check(&format!("/ip4/192.0.2.1/tcp/1/p2p/{peer}"), false, &["/ip4/192.0.2.1/tcp/1"]);
        check("/ip4/127.0.0.1/tcp/1", true, &["/ip4/127.0.0.1/tcp/1"]);
        check("/ip4/127.0.0.1/tcp/1", false, &[]);
        check("/ip6/::ffff:127.0.0.1/tcp/1", false, &[]);
        check("/ip4/0.0.0.0/tcp/1", true, &[]);
        check("/ip4/224.0.0.1/udp/1/quic-v1", true, &[]);
        check("/ip4/192.0.2.1/tcp/0", true, &[]);
        check("/ip4/192.0.2.1/udp/9", true, &[]);
        check("/ip4/192.0.2.1/tcp/9/ws", true, &[]);
        check("/dns4/example.org/tcp/9", true, &[]);
        let many: Vec<Multiaddr> = (1..100).map(|port| over_tcp(([192, 0, 2, 1], port).into())).collect();
        assert_eq!(dialable(&many, true).len(), ADDRESSES_PER_PEER_MAX);
    }
}
