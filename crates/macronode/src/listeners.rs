//! The node's listening sockets: taken before anything else is built, kept across restarts of the tasks that use them.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};

/// The sockets by plane ("api", "admin", "oap").
#[derive(Debug, Default)]
pub struct Listeners(Mutex<BTreeMap<&'static str, Bound>>);

#[derive(Debug)]
struct Bound {
    asked: SocketAddr,
    listener: TcpListener,
}

impl Listeners {
    /// A handle on the plane's socket. For a new address it is bound first, and `moved` is told where every plane
    /// listens now, one change at a time.
    pub fn take(
        &self,
        plane: &'static str,
        address: SocketAddr,
        moved: impl FnOnce(&BTreeMap<&'static str, SocketAddr>),
    ) -> io::Result<TcpListener> {
        let mut bound = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = bound.get(plane).filter(|known| known.asked == address);
        if let Some(known) = known {
            return known.listener.try_clone();
        }
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        // One handle stays here, so that connections in the backlog survive a restart of the task that accepts.
        let handle = listener.try_clone()?;
        bound.insert(plane, Bound { asked: address, listener });
        moved(&addresses(&bound));
        Ok(handle)
    }

    /// Lets go of the plane's socket, so that nobody waits at a port that will not be answered again.
    pub fn close(&self, plane: &'static str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(plane);
    }

    /// Address each plane is bound to, by the plane's name.
    pub fn addresses(&self) -> BTreeMap<&'static str, SocketAddr> {
        addresses(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn addresses(bound: &BTreeMap<&'static str, Bound>) -> BTreeMap<&'static str, SocketAddr> {
    let address = |bound: &Bound| bound.listener.local_addr().unwrap_or(bound.asked);
    bound.iter().map(|(plane, bound)| (*plane, address(bound))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_kept_for_its_address_and_replaced_for_another() {
        let listeners = Listeners::default();
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let first = listeners.take("api", any, |_| {}).expect("bound").local_addr().expect("bound");
        let again = listeners.take("api", any, |_| {}).expect("kept").local_addr().expect("bound");
        assert_eq!(first, again);
        let other: SocketAddr = "127.0.0.2:0".parse().expect("an address");
        let moved = listeners.take("api", other, |_| {}).expect("rebound").local_addr().expect("bound");
        assert_eq!(moved.ip(), other.ip());
        assert_eq!(listeners.addresses()["api"], moved);
        std::net::TcpStream::connect(first).expect_err("the old socket is closed");
    }
}
