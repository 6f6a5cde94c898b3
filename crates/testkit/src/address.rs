//! Addresses that a test may let go of and take again.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};

/// An address that nobody listens on and that nobody else is given.
///
/// A port that was free a moment ago can be anyone's the next, also a caller's own end of a connection. So each process
/// has a loopback host to itself, named by its number, and its ports lie below the range that the system hands out.
pub fn own_address() -> SocketAddr {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, 64 | high, middle, low);
    SocketAddr::from((host, 20_000 + TAKEN.fetch_add(1, Ordering::Relaxed)))
}
