//! Who asks over frames.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use oap::Frame;
use ron_auth::{Authority, Identified};
use ron_transport::Remote;
use ron_types::{Error, Kind};
use zeroize::Zeroizing;

use super::chain::Chain;

/// The other side of a session, made once for each; clones are the same caller.
#[derive(Clone)]
pub struct Caller(Arc<State>);

struct State {
    remote: Remote,
    address: IpAddr,
    /// Token of the HELLO, for requests that carry none.
    token: Option<Zeroizing<String>>,
    /// Bearer of that token, once an authority knew it: a busy session pays for the look-up once.
    identified: OnceLock<Identified>,
    incoming: Chain,
    outgoing: Chain,
}

impl Caller {
    /// The other side of a session: who it is, where it calls from, and the token of its HELLO, unchecked.
    pub fn new(remote: Remote, address: IpAddr, token: Option<&str>) -> Caller {
        let token = token.map(|token| Zeroizing::new(token.to_owned()));
        let (incoming, outgoing) = (Chain::default(), Chain::default());
        Caller(Arc::new(State { remote, address, token, identified: OnceLock::new(), incoming, outgoing }))
    }

    /// A node, or a client.
    pub fn remote(&self) -> Remote {
        self.0.remote
    }

    /// Address of the peer.
    pub fn address(&self) -> IpAddr {
        self.0.address
    }

    /// The bearer of the request's own token, or else of the session's. One that has run out is known too: what was
    /// begun with it can be brought to its end, and [`Authority::allows`] refuses the rest. `Unauthenticated` if there
    /// is no token or it is none of this node; a request is not looked into before.
    pub fn identify(&self, authority: &Authority, request: &Frame) -> Result<Identified, Error> {
        if !request.cap.is_empty() {
            return authority.identify(Some(token_text(&request.cap)?), true);
        }
        if let Some(identified) = self.0.identified.get() {
            return Ok(identified.clone());
        }
        let identified = authority.identify(self.token(), true)?;
        Ok(self.0.identified.get_or_init(|| identified).clone())
    }

    /// The token is still one of this node, whatever it allows.
    pub fn recognize(&self, authority: &Authority, request: &Frame) -> Result<(), Error> {
        match request.cap.is_empty() {
            true => authority.recognize(self.token()),
            false => authority.recognize(Some(token_text(&request.cap)?)),
        }
    }

    fn token(&self) -> Option<&str> {
        self.0.token.as_ref().map(|token| token.as_str())
    }

    /// Hash chain over the batches that came in on this session.
    pub fn incoming(&self) -> &Chain {
        &self.0.incoming
    }

    /// Hash chain over the batches that went out on this session.
    pub fn outgoing(&self) -> &Chain {
        &self.0.outgoing
    }
}

impl fmt::Debug for Caller {
    /// Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Caller({:?} at {})", self.0.remote, self.0.address)
    }
}

fn token_text(cap: &[u8]) -> Result<&str, Error> {
    let refused = || Error::new(Kind::Unauthenticated, "the capability of the frame is no token");
    std::str::from_utf8(cap).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic())).ok_or_else(refused)
}
