//! Connections of others that have not yet shown who they are: so many at once on each transport, and where there is no
//! place for one more, the oldest of the address that has the most gives way.
//!
//! A place that is held until its handshake is given up would be cheap to hold: whoever opens as many connections as
//! there are places, and says nothing, would keep everybody else out. Over UDP even the address may be made up, so the
//! places of QUIC are not those of TCP.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, TryFutureExt as _};
use libp2p::core::transport::{DialOpts, ListenerId, TransportError, TransportEvent};
use libp2p::{Multiaddr, Transport};
use ron_kernel::connection_limiter::network_of;
use tokio::sync::oneshot;

use crate::convert::ip_of;

/// A transport whose half-open connections are bounded.
pub(super) struct HalfOpen<T> {
    inner: T,
    places: Arc<Mutex<Places>>,
}

impl<T> HalfOpen<T> {
    /// At most `most` half-open connections at once.
    pub fn new(inner: T, most: usize) -> Self {
        HalfOpen { inner, places: Arc::new(Mutex::new(Places { most, next: 0, held: BTreeMap::new() })) }
    }
}

/// The places, by the order in which they were taken.
struct Places {
    most: usize,
    next: u64,
    held: BTreeMap<u64, Held>,
}

/// A place that is taken.
struct Held {
    network: Option<IpAddr>,
    /// Dropped when the connection has to give way.
    _stays: oneshot::Sender<()>,
}

/// The place of one connection; given back when dropped.
struct Place {
    places: Arc<Mutex<Places>>,
    number: u64,
}

impl Places {
    fn take(&mut self, ip: Option<IpAddr>) -> (u64, oneshot::Receiver<()>) {
        while self.held.len() >= self.most
            && let Some(number) = self.dispensable()
        {
            self.held.remove(&number);
        }
        let ((stays, gives_way), number) = (oneshot::channel(), self.next);
        self.next += 1;
        self.held.insert(number, Held { network: ip.map(network_of), _stays: stays });
        (number, gives_way)
    }

    /// The oldest of those of the networks that have the most.
    fn dispensable(&self) -> Option<u64> {
        let mut counts: HashMap<Option<IpAddr>, usize> = HashMap::new();
        for held in self.held.values() {
            *counts.entry(held.network).or_default() += 1;
        }
        let most = counts.values().copied().max()?;
        self.held.iter().find(|(_, held)| counts.get(&held.network) == Some(&most)).map(|(number, _)| *number)
    }
}

fn lock(places: &Mutex<Places>) -> MutexGuard<'_, Places> {
    places.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.places).held.remove(&self.number);
    }
}

impl<T> Transport for HalfOpen<T>
where
    T: Transport + Unpin,
    T::Error: Send + Sync + 'static,
    T::ListenerUpgrade: Send + 'static,
    T::Dial: Send + 'static,
{
    type Output = T::Output;
    type Error = io::Error;
    type ListenerUpgrade = BoxFuture<'static, io::Result<T::Output>>;
    type Dial = BoxFuture<'static, io::Result<T::Output>>;

    fn listen_on(&mut self, id: ListenerId, address: Multiaddr) -> Result<(), TransportError<io::Error>> {
        self.inner.listen_on(id, address).map_err(|error| error.map(io::Error::other))
    }

    fn remove_listener(&mut self, id: ListenerId) -> bool {
        self.inner.remove_listener(id)
    }

    fn dial(&mut self, address: Multiaddr, options: DialOpts) -> Result<Self::Dial, TransportError<io::Error>> {
        let dialling = self.inner.dial(address, options).map_err(|error| error.map(io::Error::other))?;
        Ok(dialling.map_err(io::Error::other).boxed())
    }

    fn poll(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<TransportEvent<Self::ListenerUpgrade, Self::Error>> {
        let HalfOpen { inner, places } = self.get_mut();
        let event = ready!(Pin::new(inner).poll(context));
        let ip = match &event {
            TransportEvent::Incoming { send_back_addr, .. } => ip_of(send_back_addr),
            _ => None,
        };
        let bounded = |upgrade: T::ListenerUpgrade| {
            let (number, gives_way) = lock(places).take(ip);
            let place = Place { places: Arc::clone(places), number };
            async move {
                // Held until the handshake is over, or nobody waits for it any more.
                let _place = place;
                let upgrade = pin!(upgrade);
                tokio::select! {
                    opened = upgrade => opened.map_err(io::Error::other),
                    _ = gives_way => Err(io::Error::new(io::ErrorKind::TimedOut, "it made room for another")),
                }
            }
            .boxed()
        };
        Poll::Ready(event.map_err(io::Error::other).map_upgrade(bounded))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use futures_util::StreamExt as _;
    use futures_util::future::poll_fn;
    use futures_util::stream::FuturesUnordered;
    use libp2p::core::upgrade::Version;
    use libp2p::identity::Keypair;
    use libp2p::{tcp, yamux};
    use tokio::net::TcpStream;

    use super::*;
    use crate::network::security::Security;

    fn places(most: usize) -> Places {
        Places { most, next: 0, held: BTreeMap::new() }
    }

    fn is_open(gives_way: &mut oneshot::Receiver<()>) -> bool {
        gives_way.try_recv() == Err(oneshot::error::TryRecvError::Empty)
    }

    #[test]
    fn few_silent_connections_do_not_shut_newcomers_out() {
        let mut places = places(128);
        let mut honest = places.take(Some([192, 0, 2, 1].into())).1;
        // Sixteen addresses, and one network of IPv6 that has as many addresses as it likes.
        let addresses = |round: u16| {
            [IpAddr::from([203, 0, 113, (round % 16) as u8]), [0x2001, 0xdb8, 0, 0, 0, 0, 0, round].into()]
        };
        let mut silent: Vec<oneshot::Receiver<()>> = Vec::new();
        for round in 0..5000 {
            silent.extend(addresses(round).map(|ip| places.take(Some(ip)).1));
            assert!(places.held.len() <= 128);
        }
        assert!(is_open(&mut honest), "those who have many places give way to each other");
        assert_eq!(silent.iter_mut().filter_map(|one| is_open(one).then_some(())).count(), 127);
        // Of addresses without end none has two places: the oldest goes, and a newcomer has the time of all others.
        let mut silent: Vec<oneshot::Receiver<()>> = (0..10_000_u32)
            .map(|number| places.take(Some(IpAddr::from((number + (11 << 24)).to_be_bytes()))).1)
            .collect();
        assert!(!is_open(&mut honest));
        assert!(silent.iter_mut().rev().take(128).all(is_open) && !silent.iter_mut().rev().skip(128).any(is_open));
    }

    #[tokio::test]
    async fn the_oldest_half_open_connection_is_closed_for_the_next() {
        let pair = Keypair::generate_ed25519();
        let security = Security::new(&pair).expect("a key");
        let tcp = tcp::tokio::Transport::new(tcp::Config::default()).upgrade(Version::V1Lazy);
        let mut transport = HalfOpen::new(tcp.authenticate(security).multiplex(yamux::Config::default()), 4);
        transport
            .listen_on(ListenerId::next(), "/ip4/127.0.0.1/tcp/0".parse().expect("an address"))
            .expect("it listens");
        let mut next = async || poll_fn(|context| Pin::new(&mut transport).poll(context)).await;
        let address = match next().await {
            TransportEvent::NewAddress { listen_addr, .. } => crate::convert::tcp_port_of(&listen_addr),
            other => panic!("{other:?}"),
        };
        let address = SocketAddr::from(([127, 0, 0, 1], address.expect("a port")));
        let (mut silent, mut upgrades) = (Vec::new(), FuturesUnordered::new());
        for _ in 0..6 {
            silent.push(TcpStream::connect(address).await.expect("connected"));
            let TransportEvent::Incoming { upgrade, .. } = next().await else { panic!("nothing came in") };
            upgrades.push(upgrade);
        }
        for _ in 0..2 {
            let closed = upgrades.next().await.expect("some").map(|_| ()).expect_err("nobody said anything");
            assert_eq!(closed.kind(), io::ErrorKind::TimedOut);
        }
        assert!(upgrades.next().now_or_never().is_none(), "the others go on");
        // Whoever leaves gives its place back.
        drop(upgrades);
        assert_eq!(lock(&transport.places).held.len(), 0);
    }
}
