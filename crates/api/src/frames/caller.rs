//! Who asks over frames.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use oap::Frame;
use ron_auth::{Authority, Identified};
use ron_kernel::connection_limiter::network_of;
use ron_transport::Remote;
use ron_types::{Error, Kind};
use zeroize::Zeroizing;

use super::chain::Chain;
use crate::admission::{Admission, SharedShares};
use crate::fair_share::{Claim, Sharer};
use crate::problem::Problem;

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
    shares: Arc<SharedShares>,
    /// Held while something is made that later requests of the session need, and by those that wait for it in line.
    turn: tokio::sync::Mutex<()>,
}

impl Caller {
    /// The other side of a session: who it is, where it calls from, the token of its HELLO, unchecked, and what it
    /// shares with all other callers of the node.
    pub fn new(remote: Remote, address: IpAddr, token: Option<&str>, shares: Arc<SharedShares>) -> Caller {
        let token = token.map(|token| Zeroizing::new(token.to_owned()));
        let (incoming, outgoing, turn) = (Chain::default(), Chain::default(), tokio::sync::Mutex::default());
        let identified = OnceLock::new();
        Caller(Arc::new(State { remote, address, token, identified, incoming, outgoing, shares, turn }))
    }

    /// Lets a request of this bearer begin, if it is within the share of its subject and of its address. To be held
    /// until it is answered.
    pub(crate) fn admit(&self, bearer: &Identified, request: &Frame) -> Result<Admission, Problem> {
        let claim = Claim::Proven(Arc::clone(&bearer.subject().name));
        let sharer = Sharer { claim, address: network_of(self.0.address) };
        self.0.shares.admit_frame(sharer, request.payload.len())
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

    /// Does something in the order of the session's requests even where the first of them has to make what all of them
    /// need, such as a topic, and waits for the disk over it. While it is not `made` they go one by one. Once it is,
    /// each lets the next one go as soon as it has begun, and nobody waits where nobody is in line.
    pub async fn in_order<T>(&self, made: impl Fn() -> bool, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let mut turn = None;
        // Those in line are given the lock in order, so it is free only if nobody is.
        if !made() || self.0.turn.try_lock().is_err() {
            turn = Some(self.0.turn.lock().await);
        }
        if made() {
            let begun = std::future::poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
            if let Poll::Ready(done) = begun {
                return done;
            }
            drop(turn.take());
        }
        work.await
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
