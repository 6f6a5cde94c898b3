//! A network in memory: packets arrive at once and in order, or not at all while a test wants that.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};

/// Packets that wait at one address at most; what comes on top is lost, as on any network.
const WAITING_MAX: usize = 4096;

/// Two sockets that reach each other.
#[derive(Debug, Default)]
pub(super) struct Network {
    inboxes: [Mutex<Inbox>; 2],
    is_losing: AtomicBool,
    lost: AtomicUsize,
}

#[derive(Debug, Default)]
struct Inbox {
    packets: VecDeque<Vec<u8>>,
    reader: Option<Waker>,
}

#[derive(Debug)]
struct Socket {
    network: Arc<Network>,
    own: usize,
}

#[derive(Debug)]
struct AlwaysWritable;

impl Network {
    /// The address of one of the two.
    pub(super) fn address(own: usize) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1 + own as u16)
    }

    /// The socket of one of the two.
    pub(super) fn socket(self: &Arc<Self>, own: usize) -> Arc<dyn AsyncUdpSocket> {
        Arc::new(Socket { network: Arc::clone(self), own })
    }

    /// From now on all packets are lost, or none.
    pub(super) fn lose(&self, is_losing: bool) {
        self.is_losing.store(is_losing, Ordering::Relaxed);
    }

    /// Packets that were lost.
    pub(super) fn lost(&self) -> usize {
        self.lost.load(Ordering::Relaxed)
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(AlwaysWritable)
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        assert_eq!(transmit.destination, Network::address(1 - self.own), "there is nobody else");
        let mut inbox = self.network.inboxes[1 - self.own].lock().expect("not poisoned");
        if self.network.is_losing.load(Ordering::Relaxed) || inbox.packets.len() >= WAITING_MAX {
            self.network.lost.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        inbox.packets.push_back(transmit.contents.to_vec());
        inbox.reader.take().into_iter().for_each(Waker::wake);
        Ok(())
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut inbox = self.network.inboxes[self.own].lock().expect("not poisoned");
        let mut count = 0;
        for (buffer, meta) in buffers.iter_mut().zip(metas) {
            let Some(packet) = inbox.packets.pop_front() else { break };
            buffer[..packet.len()].copy_from_slice(&packet);
            let (addr, len) = (Network::address(1 - self.own), packet.len());
            *meta = RecvMeta { addr, len, stride: len, ecn: None, dst_ip: None };
            count += 1;
        }
        if count == 0 {
            inbox.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(count))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(Network::address(self.own))
    }
}

impl UdpPoller for AlwaysWritable {
    fn poll_writable(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
