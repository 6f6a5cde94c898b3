//! The node's listening sockets: taken before anything else is built, kept across restarts of the tasks that use them.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// Connections that may wait to be accepted; the system lowers it to its own maximum.
const BACKLOG: i32 = 4096;

/// The sockets by plane ("api", "admin", "oap").
#[derive(Debug, Default)]
pub struct Listeners(Mutex<Sockets>);

#[derive(Debug, Default)]
struct Sockets {
    bound: BTreeMap<&'static str, Bound>,
    /// Sockets bound ahead of the restart that will take them.
    staged: BTreeMap<&'static str, Bound>,
}

#[derive(Debug)]
struct Bound {
    asked: SocketAddr,
    listener: TcpListener,
}

impl Listeners {
    /// Binds a plane's next address while the plane still answers at the old one, so that an address that cannot be
    /// had refuses a reload instead of leaving the plane without a socket.
    pub fn stage(&self, plane: &'static str, address: SocketAddr) -> io::Result<()> {
        let mut sockets = self.lock();
        sockets.staged.remove(plane);
        if sockets.bound.get(plane).is_none_or(|bound| bound.asked != address) {
            let staged = Bound::beside(sockets.bound.get(plane), address)?;
            sockets.staged.insert(plane, staged);
        }
        Ok(())
    }

    /// Lets go of what was bound ahead for a reload that did not come about.
    pub fn unstage(&self) {
        self.lock().staged.clear();
    }

    /// A handle on the plane's socket. For a new address it is bound first, unless it was ahead, and `moved` is told
    /// where every plane listens now, one change at a time.
    pub fn take(
        &self,
        plane: &'static str,
        address: SocketAddr,
        moved: impl FnOnce(&BTreeMap<&'static str, SocketAddr>),
    ) -> io::Result<TcpListener> {
        let mut sockets = self.lock();
        let known = sockets.bound.get(plane).filter(|known| known.asked == address);
        if let Some(known) = known {
            return known.listener.try_clone();
        }
        let next = match sockets.staged.remove(plane).filter(|staged| staged.asked == address) {
            Some(staged) => staged,
            None => Bound::beside(sockets.bound.get(plane), address)?,
        };
        // One handle stays here, so that connections in the backlog survive a restart of the task that accepts.
        let handle = next.listener.try_clone()?;
        sockets.bound.insert(plane, next);
        moved(&addresses(&sockets.bound));
        Ok(handle)
    }

    /// Lets go of the plane's socket, so that nobody waits at a port that will not be answered again.
    pub fn close(&self, plane: &'static str) {
        let mut sockets = self.lock();
        sockets.bound.remove(plane);
        sockets.staged.remove(plane);
    }

    /// Address each plane is bound to, by the plane's name.
    pub fn addresses(&self) -> BTreeMap<&'static str, SocketAddr> {
        addresses(&self.lock().bound)
    }

    fn lock(&self) -> MutexGuard<'_, Sockets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bound {
    /// Binds an address beside the socket it will replace.
    fn beside(old: Option<&Bound>, address: SocketAddr) -> io::Result<Bound> {
        let old = old.filter(|old| address.port() != 0 && old.address().port() == address.port());
        let listener = match old {
            Some(old) => share_port(&old.listener, address)?,
            None => listen(address)?,
        };
        listener.set_nonblocking(true)?;
        Ok(Bound { asked: address, listener })
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap_or(self.asked)
    }
}

/// Binds an address on the port of `old`, as from 127.0.0.1 to 0.0.0.0, without closing `old` first: closed, it could
/// be lost to somebody else with neither address served. Sharing is allowed for this moment alone, and only sockets of
/// the same user share.
fn share_port(old: &TcpListener, address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket_for(address)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    sockopt::set_socket_reuseport(old, true)?;
    let bound = bind_and_listen(&socket, address);
    sockopt::set_socket_reuseport(old, false)?;
    sockopt::set_socket_reuseport(&socket, false)?;
    bound?;
    Ok(TcpListener::from(socket))
}

/// Binds an address. Not with the standard library, which lets 128 connections wait.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket_for(address)?;
    bind_and_listen(&socket, address)?;
    Ok(TcpListener::from(socket))
}

fn socket_for(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    Ok(socket)
}

fn bind_and_listen(socket: &OwnedFd, address: SocketAddr) -> io::Result<()> {
    rustix::net::bind(socket, &address)?;
    Ok(rustix::net::listen(socket, BACKLOG)?)
}

fn addresses(bound: &BTreeMap<&'static str, Bound>) -> BTreeMap<&'static str, SocketAddr> {
    bound.iter().map(|(plane, bound)| (*plane, bound.address())).collect()
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

    #[test]
    fn more_connections_wait_than_the_standard_library_lets() {
        let listeners = Listeners::default();
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let listener = listeners.take("api", any, |_| {}).expect("bound");
        let address = listener.local_addr().expect("bound");
        // Nobody accepts: a connection that does not fit into the queue is never made.
        let connect = || std::net::TcpStream::connect_timeout(&address, std::time::Duration::from_secs(10));
        let waiting: Vec<_> =
            (0..300).map(|number| connect().unwrap_or_else(|error| panic!("{number}: {error}"))).collect();
        drop(waiting);
    }

    #[test]
    fn the_same_port_on_other_addresses_is_bound_before_the_old_socket_goes() {
        let listeners = Listeners::default();
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let first = listeners.take("api", any, |_| {}).expect("bound").local_addr().expect("bound");
        let everywhere = SocketAddr::from(([0, 0, 0, 0], first.port()));
        listeners.stage("api", everywhere).expect("bound ahead");
        assert_eq!(listeners.addresses()["api"], first, "it is not in use yet");
        let moved = listeners.take("api", everywhere, |_| {}).expect("taken").local_addr().expect("bound");
        assert_eq!(moved, everywhere);
        listeners.stage("api", first).expect("and back");
        let back = listeners.take("api", first, |_| {}).expect("taken").local_addr().expect("bound");
        assert_eq!(back, first);
    }

    #[test]
    fn an_address_that_somebody_else_has_leaves_the_old_socket() {
        let listeners = Listeners::default();
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let first = listeners.take("api", any, |_| {}).expect("bound").local_addr().expect("bound");
        let taken = TcpListener::bind(SocketAddr::from(([127, 0, 0, 2], first.port()))).expect("free");
        let everywhere = SocketAddr::from(([0, 0, 0, 0], first.port()));
        for address in [everywhere, taken.local_addr().expect("bound")] {
            listeners.stage("api", address).expect_err("somebody has it");
            listeners.take("api", address, |_| {}).expect_err("somebody has it");
        }
        std::net::TcpStream::connect(first).expect("the old socket is there");
        assert_eq!(listeners.addresses()["api"], first);
    }
}
