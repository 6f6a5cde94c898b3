//! How a connection over TCP proves who is there: by Noise or by TLS, whichever the other side speaks.

use std::io;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, TryFutureExt as _};
use libp2p::core::UpgradeInfo;
use libp2p::core::upgrade::{InboundConnectionUpgrade, OutboundConnectionUpgrade};
use libp2p::futures::{AsyncRead, AsyncWrite};
use libp2p::identity::Keypair;
use libp2p::{PeerId, noise, tls};

const NOISE: &str = "/noise";
const TLS: &str = "/tls/1.0.0";

/// A stream of bytes, both ways.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Duplex for T {}

type Proven = (PeerId, Box<dyn Duplex>);

/// Both ways to prove it, Noise first.
#[derive(Clone)]
pub(super) struct Security {
    noise: noise::Config,
    tls: tls::Config,
}

impl Security {
    pub fn new(pair: &Keypair) -> Result<Self, String> {
        let noise = noise::Config::new(pair).map_err(|error| format!("Noise: {error}"))?;
        let tls = tls::Config::new(pair).map_err(|error| format!("TLS: {error}"))?;
        Ok(Security { noise, tls })
    }
}

impl UpgradeInfo for Security {
    type Info = &'static str;
    type InfoIter = [&'static str; 2];

    fn protocol_info(&self) -> Self::InfoIter {
        [NOISE, TLS]
    }
}

fn boxed((peer, stream): (PeerId, impl Duplex + 'static)) -> Proven {
    (peer, Box::new(stream))
}

impl<C: Duplex + 'static> InboundConnectionUpgrade<C> for Security {
    type Output = Proven;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Proven>>;

    fn upgrade_inbound(self, socket: C, protocol: &'static str) -> Self::Future {
        match protocol {
            TLS => self.tls.upgrade_inbound(socket, TLS).map_ok(boxed).map_err(io::Error::other).boxed(),
            _ => self.noise.upgrade_inbound(socket, NOISE).map_ok(boxed).map_err(io::Error::other).boxed(),
        }
    }
}

impl<C: Duplex + 'static> OutboundConnectionUpgrade<C> for Security {
    type Output = Proven;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Proven>>;

    fn upgrade_outbound(self, socket: C, protocol: &'static str) -> Self::Future {
        match protocol {
            TLS => self.tls.upgrade_outbound(socket, TLS).map_ok(boxed).map_err(io::Error::other).boxed(),
            _ => self.noise.upgrade_outbound(socket, NOISE).map_ok(boxed).map_err(io::Error::other).boxed(),
        }
    }
}
