//! Where a node is: its id and the address of its OAP port, `NODEID@HOST:PORT`, or `NODEID@quic:HOST:PORT`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::identity::NodeId;

/// Bytes of a host name at most, as DNS has it.
const HOST_BYTES_MAX: usize = 253;

/// A node and the address to dial it at. Nobody is trusted by address: the id is what counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddress {
    /// The node that has to answer there.
    pub node_id: NodeId,
    /// Host name or IP address, without brackets.
    pub host: String,
    /// Port of the carrier.
    pub port: u16,
    /// What carries the session.
    pub carrier: Carrier,
}

/// What carries a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Carrier {
    /// TLS over TCP.
    #[default]
    Tcp,
    /// QUIC, over UDP: `quic:` before the host.
    Quic,
}

/// What stands before the host of a node that is dialled over QUIC.
const QUIC_PREFIX: &str = "quic:";

/// Reason why a text is no peer address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// There is no `@`.
    #[error("a peer is NODEID@HOST:PORT")]
    Shape,
    /// What stands before the `@` is no node id.
    #[error("what stands before @ is no node id: 64 lower-case hex digits")]
    NodeId,
    /// What stands between `@` and the last colon is no host.
    #[error("no host name or IP address; an IPv6 address stands in brackets")]
    Host,
    /// What stands after the last colon is no port.
    #[error("no port from 1 to 65535")]
    Port,
}

impl PeerAddress {
    /// The address of a node at `HOST:PORT`, an IPv6 address in brackets; or at `quic:HOST:PORT`.
    pub fn new(node_id: NodeId, address: &str) -> Result<Self, AddressError> {
        let (carrier, host_and_port) = Carrier::split(address);
        let (host, port) = host_and_port.rsplit_once(':').ok_or(AddressError::Port)?;
        let port = port.parse().ok().filter(|port| *port > 0).ok_or(AddressError::Port)?;
        let host = bare_host(host).ok_or(AddressError::Host)?;
        Ok(PeerAddress { node_id, host: host.to_owned(), port, carrier })
    }

    /// `HOST:PORT`, an IPv6 address in brackets.
    pub fn host_and_port(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// The address as [`PeerAddress::new`] reads it: [`PeerAddress::host_and_port`], after the carrier where it is not
    /// TCP.
    pub fn address(&self) -> String {
        match self.carrier {
            Carrier::Tcp => self.host_and_port(),
            Carrier::Quic => format!("{QUIC_PREFIX}{}", self.host_and_port()),
        }
    }
}

impl Carrier {
    /// The carrier that an address names, and the rest of it.
    fn split(address: &str) -> (Self, &str) {
        // A host may be called `quic`; then only its port follows.
        match address.strip_prefix(QUIC_PREFIX).filter(|rest| rest.contains(':')) {
            Some(rest) => (Carrier::Quic, rest),
            None => (Carrier::Tcp, address),
        }
    }
}

fn bare_host(host: &str) -> Option<&str> {
    if let Some(inner) = host.strip_prefix('[') {
        let inner = inner.strip_suffix(']')?;
        return inner.parse::<std::net::Ipv6Addr>().ok().map(|_| inner);
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    let fits = !host.is_empty() && host.len() <= HOST_BYTES_MAX && host.bytes().all(is_name);
    fits.then_some(host)
}

impl FromStr for PeerAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (node_id, address) = text.split_once('@').ok_or(AddressError::Shape)?;
        PeerAddress::new(node_id.parse().map_err(|_| AddressError::NodeId)?, address)
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.node_id, self.address())
    }
}

impl Serialize for PeerAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PeerAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    fn check(address: &str, expected: Result<(&str, u16), AddressError>) {
        let text = format!("{ID}@{address}");
        let got = text.parse::<PeerAddress>();
        assert_eq!(
            got.as_ref().map(|peer| (peer.host.as_str(), peer.port)).map_err(|error| *error),
            expected,
            "{text}"
        );
        if let Ok(peer) = got {
            assert_eq!(peer.to_string(), text, "written as it was read");
        }
    }

    #[test]
    fn addresses_are_read_and_written_alike() {
        check("node-1.example:9000", Ok(("node-1.example", 9000)));
        check("127.0.0.1:1", Ok(("127.0.0.1", 1)));
        check("[::1]:65535", Ok(("::1", 65535)));
    }

    #[test]
    fn the_carrier_stands_before_the_host() {
        check("quic:node-1.example:9000", Ok(("node-1.example", 9000)));
        check("quic:[::1]:65535", Ok(("::1", 65535)));
        check("quic:host:", Err(AddressError::Port));
        check("quic:quic:host:1", Err(AddressError::Host));
        let carrier = |address: &str| format!("{ID}@{address}").parse::<PeerAddress>().map(|peer| peer.carrier);
        assert_eq!(carrier("quic:host:9"), Ok(Carrier::Quic));
        assert_eq!(carrier("quic:9"), Ok(Carrier::Tcp), "a host of that name");
    }

    #[test]
    fn what_is_wrong_is_said() {
        check("host", Err(AddressError::Port));
        check("host:", Err(AddressError::Port));
        check("host:0", Err(AddressError::Port));
        check("host:65536", Err(AddressError::Port));
        check(":9", Err(AddressError::Host));
        check("::1:9", Err(AddressError::Host));
        check("[::1:9", Err(AddressError::Host));
        check("[host]:9", Err(AddressError::Host));
        check("ho st:9", Err(AddressError::Host));
        check(&format!("{}:9", "a".repeat(254)), Err(AddressError::Host));
        assert_eq!("host:9".parse::<PeerAddress>(), Err(AddressError::Shape));
        assert_eq!("00@host:9".parse::<PeerAddress>(), Err(AddressError::NodeId));
    }
}
