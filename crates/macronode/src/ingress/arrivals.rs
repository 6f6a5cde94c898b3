//! Where connections come from: TCP, and QUIC where `overlay.quic` is on.

use std::io;
use std::net::SocketAddr;

use oap::Hello;
use ron_transport::quic;
use ron_transport::{ConnectError, Session, SessionLimits, Tls};
use tokio::net::{TcpListener, TcpStream};

use super::Ingress;

/// The sockets of the plane.
pub struct Arrivals {
    tcp: TcpListener,
    quic: Option<quic::Endpoint>,
}

/// Somebody who wants a session.
pub enum Arrival {
    Tcp(TcpStream),
    Quic(Box<quic::Incoming>),
}

impl Arrivals {
    /// Takes the listener, and the UDP port of the same number if `overlay.quic` says so.
    pub fn new(tcp: TcpListener, ingress: &Ingress) -> io::Result<Self> {
        use svc_overlay::config::{Options, QuicChoice};
        let is_on = ingress.config.get().value.section::<Options>().quic == QuicChoice::On;
        let endpoint = |address: SocketAddr| quic::Endpoint::bind(address, &ingress.tls);
        let quic = if is_on { Some(endpoint(tcp.local_addr()?)?) } else { None };
        Ok(Arrivals { tcp, quic })
    }

    /// The next one, and its address. Cancel safe.
    pub async fn next(&self) -> io::Result<(Arrival, SocketAddr)> {
        let incoming = async {
            match &self.quic {
                Some(endpoint) => endpoint.incoming().await,
                None => None,
            }
        };
        tokio::select! {
            accepted = self.tcp.accept() => accepted.map(|(stream, address)| (Arrival::Tcp(stream), address)),
            Some(incoming) = incoming => {
                let address = incoming.address();
                Ok((Arrival::Quic(Box::new(incoming)), address))
            }
        }
    }

    /// Takes nobody any more; those who are here go on.
    pub fn close(self) {
        if let Some(endpoint) = &self.quic {
            endpoint.refuse_new();
        }
    }
}

impl Arrival {
    /// The handshake.
    pub async fn accept(self, tls: &Tls, hello: Hello, limits: &SessionLimits) -> Result<Session, ConnectError> {
        match self {
            Arrival::Tcp(stream) => ron_transport::accept(stream, tls, hello, limits).await,
            // Boxed: it is larger than the other, and those who come over TCP would carry it along.
            Arrival::Quic(incoming) => Box::pin(incoming.accept(hello, limits)).await,
        }
    }
}
