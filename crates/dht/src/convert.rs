//! Between the words of libp2p and those of the rest of the node.

use std::net::{IpAddr, SocketAddr};

use libp2p::Multiaddr;
use libp2p::identity::Keypair;
use libp2p::multiaddr::Protocol;
use ron_store::PeerId;
use ron_transport::NodeKey;
use ron_types::limits::dht::ADDRESSES_PER_PEER_MAX;

/// Addresses of one node that are looked at: more are of no use to anybody.
const ADDRESSES_LOOKED_AT_MAX: usize = 8 * ADDRESSES_PER_PEER_MAX;
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

/// Kinds of addresses, beside public ones, that are dialled on somebody's word. Where an address means another machine
/// for each network, whoever names it decides which of our neighbours is dialled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scope {
    loopback: bool,
    private_v4: bool,
    private_v6: bool,
    link_local: bool,
}

impl Scope {
    /// What is dialled on the operator's word, who knows his networks.
    pub const OPERATOR: Scope = Scope { loopback: true, private_v4: true, private_v6: true, link_local: true };

    /// What is dialled on the word of others by a node that is told to listen at `configured` and does so at `listens`:
    /// private addresses if it has one of that kind itself, loopback if it is told to listen there, and nowhere what
    /// means another machine on every link.
    pub fn of(configured: IpAddr, listens: &[Multiaddr]) -> Self {
        let mut scope = Scope { loopback: configured.is_loopback(), ..Scope::default() };
        for ip in listens.iter().filter_map(ip_of).chain([configured]) {
            match (reach_of(ip), ip.to_canonical()) {
                (Some(Reach::Private), IpAddr::V4(_)) => scope.private_v4 = true,
                (Some(Reach::Private), IpAddr::V6(_)) => scope.private_v6 = true,
                _ => {}
            }
        }
        scope
    }

    fn admits(self, ip: IpAddr) -> bool {
        match reach_of(ip) {
            Some(Reach::Public) => true,
            Some(Reach::Private) if ip.to_canonical().is_ipv4() => self.private_v4,
            Some(Reach::Private) => self.private_v6,
            Some(Reach::Loopback) => self.loopback,
            Some(Reach::LinkLocal) => self.link_local,
            None => false,
        }
    }
}

/// From where an address is reached, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// From anywhere, unless a firewall stands before it.
    Public,
    /// From the same private network.
    Private,
    /// From the same link.
    LinkLocal,
    /// From the same machine.
    Loopback,
}

/// From where an address is reached; none if it is no address of one machine.
pub(crate) fn reach_of(ip: IpAddr) -> Option<Reach> {
    let (is_loopback, is_link_local, is_private, is_none) = match ip.to_canonical() {
        IpAddr::V4(ip) => {
            let [a, b, ..] = ip.octets();
            // What providers share among their customers (RFC 6598) is as private as the rest.
            let is_private = ip.is_private() || (a == 100 && (64..128).contains(&b));
            (ip.is_loopback(), ip.is_link_local(), is_private, a == 0 || ip.is_multicast() || a >= 240)
        }
        IpAddr::V6(ip) => {
            let is_private = ip.is_unique_local() || ip.segments()[0] & 0xffc0 == 0xfec0;
            (ip.is_loopback(), ip.is_unicast_link_local(), is_private, ip.is_unspecified() || ip.is_multicast())
        }
    };
    match () {
        () if is_none => None,
        () if is_loopback => Some(Reach::Loopback),
        () if is_link_local => Some(Reach::LinkLocal),
        () if is_private => Some(Reach::Private),
        () => Some(Reach::Public),
    }
}

/// What of these addresses can be dialled: an IP address with TCP or QUIC and nothing more, without the peer's id. A
/// name would have the node ask DNS for whoever sent it. Of many the best reached stay.
pub(crate) fn dialable<'a>(addresses: impl IntoIterator<Item = &'a Multiaddr>, scope: Scope) -> Vec<Multiaddr> {
    let mut found: Vec<(Option<Reach>, Multiaddr)> = Vec::new();
    for address in addresses.into_iter().take(ADDRESSES_LOOKED_AT_MAX) {
        let bare: Multiaddr = address.iter().filter(|part| !matches!(part, Protocol::P2p(_))).collect();
        if is_dialable(&bare, scope) {
            found.push((ip_of(&bare).and_then(reach_of), bare));
        }
    }
    // In one order, whoever lists them: libp2p ranks addresses by itself when it dials.
    found.sort();
    found.dedup();
    found.truncate(ADDRESSES_PER_PEER_MAX);
    found.into_iter().map(|(_, address)| address).collect()
}

fn is_dialable(address: &Multiaddr, scope: Scope) -> bool {
    let is_admitted = ip_of(address).is_some_and(|ip| scope.admits(ip));
    let rest: Vec<Protocol<'_>> = address.iter().skip(1).collect();
    is_admitted && matches!(rest.as_slice(), [Protocol::Tcp(1..)] | [Protocol::Udp(1..), Protocol::QuicV1])
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
        let (nothing, loopback) = (Scope::default(), Scope::of([127, 0, 0, 1].into(), &[]));
        let check = |text: &str, scope: Scope, expected: &[&str]| {
            let address: Multiaddr = text.parse().expect("an address");
            let found: Vec<String> = dialable([&address], scope).iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{text}");
        };
        check("/ip4/192.0.2.1/tcp/4001", nothing, &["/ip4/192.0.2.1/tcp/4001"]);
        check("/ip6/2001:db8::1/udp/4001/quic-v1", nothing, &["/ip6/2001:db8::1/udp/4001/quic-v1"]);
        let peer = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";
        check(&format!("/ip4/192.0.2.1/tcp/1/p2p/{peer}"), nothing, &["/ip4/192.0.2.1/tcp/1"]);
        check("/ip4/127.0.0.1/tcp/1", loopback, &["/ip4/127.0.0.1/tcp/1"]);
        check("/ip4/127.0.0.1/tcp/1", nothing, &[]);
        check("/ip6/::ffff:127.0.0.1/tcp/1", nothing, &[]);
        for nowhere in ["/ip4/0.0.0.0/tcp/1", "/ip4/0.1.2.3/tcp/1", "/ip4/255.255.255.255/tcp/1", "/ip6/::/tcp/1"] {
            check(nowhere, Scope::OPERATOR, &[]);
        }
        check("/ip4/224.0.0.1/udp/1/quic-v1", loopback, &[]);
        check("/ip4/192.0.2.1/tcp/0", loopback, &[]);
        check("/ip4/192.0.2.1/udp/9", loopback, &[]);
        check("/ip4/192.0.2.1/tcp/9/ws", loopback, &[]);
        check("/dns4/example.org/tcp/9", Scope::OPERATOR, &[]);
        let many: Vec<Multiaddr> = (1..100).map(|port| over_tcp(([192, 0, 2, 1], port).into())).collect();
        assert_eq!(dialable(&many, loopback).len(), ADDRESSES_PER_PEER_MAX);
        let (own, ours) = ("/ip4/10.0.0.1/tcp/7".parse().expect("an address"), Scope::of([0, 0, 0, 0].into(), &many));
        let best =
            dialable(many.iter().take(20).chain([&own]), Scope::of([0, 0, 0, 0].into(), std::slice::from_ref(&own)));
        assert!(best.len() == ADDRESSES_PER_PEER_MAX && !best.contains(&own), "public ones first");
        assert_eq!(dialable([&own], ours), Vec::<Multiaddr>::new());
    }

    #[test]
    fn private_addresses_are_dialled_on_anothers_word_by_those_who_have_one_and_link_local_ones_by_nobody() {
        let addr = |text: &str| -> Multiaddr { text.parse().expect("an address") };
        let private_v4 =
            ["/ip4/10.9.9.9/tcp/1", "/ip4/172.16.0.1/tcp/1", "/ip4/192.168.0.1/tcp/1", "/ip4/100.64.0.1/tcp/1"];
        let private_v6 = ["/ip6/fd00::1/tcp/1", "/ip6/fec0::1/tcp/1"];
        let link_local = ["/ip4/169.254.169.254/tcp/80", "/ip6/fe80::1/tcp/1", "/ip6/::ffff:169.254.1.1/tcp/1"];
        let public = ["/ip4/192.0.2.1/tcp/1", "/ip6/2001:db8::1/tcp/1"];
        let check = |listens: &[&str], v4: bool, v6: bool| {
            let listens: Vec<Multiaddr> = listens.iter().map(|text| addr(text)).collect();
            let scope = Scope::of([0, 0, 0, 0].into(), &listens);
            let is_dialled = |text: &str| !dialable([&addr(text)], scope).is_empty();
            assert!(private_v4.iter().all(|text| is_dialled(text) == v4), "{listens:?}");
            assert!(private_v6.iter().all(|text| is_dialled(text) == v6), "{listens:?}");
            assert!(!link_local.iter().any(|text| is_dialled(text)), "{listens:?}");
            assert!(public.iter().all(|text| is_dialled(text)), "{listens:?}");
            assert!(!is_dialled("/ip4/127.0.0.1/tcp/6379"), "what listens everywhere is not told to listen there");
        };
        check(&["/ip4/203.0.113.1/tcp/1", "/ip4/127.0.0.1/tcp/1", "/ip4/169.254.3.4/tcp/1"], false, false);
        check(&["/ip4/203.0.113.1/tcp/1", "/ip4/10.1.2.3/tcp/1"], true, false);
        check(&["/ip6/fd12::1/tcp/1", "/ip6/fe80::5/tcp/1"], false, true);
        check(&["/ip4/192.168.7.7/tcp/1", "/ip6/fd12::1/tcp/1"], true, true);
        // The operator names what he likes.
        let all = private_v4.iter().chain(&private_v6).chain(&link_local).chain(&public);
        assert!(all.into_iter().all(|text| !dialable([&addr(text)], Scope::OPERATOR).is_empty()));
    }
}
