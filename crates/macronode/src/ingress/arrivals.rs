//! Where connections come from: TCP, and QUIC where it is built in and turned on.

use std::io;
use std::net::SocketAddr;

use oap::Hello;
#[cfg(feature = "quic")]
use ron_transport::quic;
use ron_transport::{ConnectError, Session, SessionLimits, Tls};
use tokio::net::{TcpListener, TcpStream};

use super::Ingress;

/// The sockets of the plane.
pub struct Arrivals {
    tcp: TcpListener,
    #[cfg(feature = "quic")]
    quic: Option<quic::Endpoint>,
}

/// Somebody who wants a session.
pub enum Arrival {
    Tcp(TcpStream),
    #[cfg(feature = "quic")]
    Quic(quic::Incoming),
}

impl Arrivals {
    /// Takes the listener, and the UDP port of the same number if `overlay.quic` says so.
    #[cfg(feature = "quic")]
    pub fn new(tcp: TcpListener, ingress: &Ingress) -> io::Result<Self> {
        use svc_overlay::config::{Options, QuicChoice};
        let is_on = ingress.config.get().value.section::<Options>().quic == QuicChoice::On;
        let endpoint = |address: SocketAddr| quic::Endpoint::bind(address, &ingress.tls);
        let quic = if is_on { Some(endpoint(tcp.local_addr()?)?) } else { None };
        Ok(Arrivals { tcp, quic })
    }

    #[cfg(not(feature = "quic"))]
    pub fn new(tcp: TcpListener, _ingress: &Ingress) -> io::Result<Self> {
        Ok(Arrivals { tcp })
    }

    /// The next one, and its address. Cancel safe.
    #[cfg(feature = "quic")]
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
                Ok((Arrival::Quic(incoming), address))
            }
        }
    }

    #[cfg(not(feature = "quic"))]
    pub async fn next(&self) -> io::Result<(Arrival, SocketAddr)> {
        self.tcp.accept().await.map(|(stream, address)| (Arrival::Tcp(stream), address))
    }

    /// Takes nobody any more; those who are here go on.
    pub fn close(self) {
        #[cfg(feature = "quic")]
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
            #[cfg(feature = "quic")]
            Arrival::Quic(incoming) => incoming.accept(hello, limits).await,
        }
    }
}
