//! The one place every surface asks: may the bearer of this token do this?

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use ron_types::{Error, Kind, limits};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::cache::{Bounds, Cache};
use crate::capabilities::Action;
use crate::envelope::Envelope;
use crate::key::{PublicKey, RootKey};
use crate::revocations::Revocations;
use crate::token;
use crate::types::{AuthError, Grant, Subject};
use crate::verified::{Verified, refusal, unauthenticated};

const BOUNDS: Bounds =
    Bounds { bytes_max: limits::CAPABILITY_CACHE_BYTES_MAX, ttl_ms: limits::CAPABILITY_CACHE_TTL.as_millis() as u64 };

/// Decides on capabilities; cheap to clone, shared by all surfaces.
#[derive(Clone)]
pub struct Authority(Arc<Inner>);

struct Inner {
    root: RootKey,
    operator: Option<(Zeroizing<String>, Arc<Subject>)>,
    clock: Box<dyn Fn() -> u64 + Send + Sync>,
    cache: Cache<Verified>,
    /// Replaced before the cache is swept, and asked again when a token enters it: a revoked one cannot slip in.
    revoked: ArcSwap<HashSet<String>>,
    /// Counts the lists of revoked tokens there were.
    revocations: AtomicU64,
}

/// The bearer of a token that was looked up: what one request asks about it needs no second look.
#[derive(Clone)]
pub struct Identified {
    subject: Arc<Subject>,
    /// None for the operator, who may do everything.
    verified: Option<Arc<Verified>>,
    /// Number of the list of revoked tokens that it was not on.
    revocations: u64,
}

impl Identified {
    /// Who bears the token.
    pub fn subject(&self) -> &Arc<Subject> {
        &self.subject
    }
}

impl Authority {
    /// Decides on tokens signed by `root`. The bearer of `operator_token` may do everything. `clock` tells the
    /// milliseconds since 1970.
    pub fn new(root: RootKey, operator_token: Option<&str>, clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Authority::assemble(root, operator_token, Box::new(clock), BOUNDS)
    }

    fn assemble(
        root: RootKey,
        operator_token: Option<&str>,
        clock: Box<dyn Fn() -> u64 + Send + Sync>,
        bounds: Bounds,
    ) -> Self {
        let operator = operator_token.map(|token| {
            (Zeroizing::new(token.trim().to_owned()), Arc::new(Subject::operator(ron_types::names::OPERATOR)))
        });
        let (cache, revoked, revocations) = (Cache::new(bounds), ArcSwap::default(), AtomicU64::new(0));
        Authority(Arc::new(Inner { root, operator, clock, cache, revoked, revocations }))
    }

    /// May the bearer of this token do `action` to `resource`? An empty resource stands for what concerns no single
    /// one; only a right on every resource of the service covers it.
    ///
    /// With `at_ms` the time of the request is that, if it is past: what was begun before a token expired, such as a
    /// lease, can be brought to its end. A revocation holds nevertheless.
    ///
    /// The error is `Unauthenticated` where there is no token or it is invalid, tampered with, expired or revoked, and
    /// `Forbidden` where it is good but does not cover the request.
    pub fn authorize(
        &self,
        bearer: Option<&str>,
        action: Action,
        resource: &str,
        at_ms: Option<u64>,
    ) -> Result<Arc<Subject>, Error> {
        self.allows(&self.look_up(bearer)?, action, resource, at_ms)
    }

    /// The same for a token that was looked up before; what was revoked or has expired since then is refused.
    pub fn allows(
        &self,
        bearer: &Identified,
        action: Action,
        resource: &str,
        at_ms: Option<u64>,
    ) -> Result<Arc<Subject>, Error> {
        let Identified { subject, verified: Some(verified), revocations } = bearer else {
            return Ok(Arc::clone(&bearer.subject));
        };
        let now_ms = (self.0.clock)();
        check_expiry(verified, at_ms.map_or(now_ms, |at_ms| at_ms.min(now_ms)))?;
        // Seldom true, and spares every other request a look at the list.
        let is_old = self.0.revocations.load(Ordering::Acquire) != *revocations;
        if is_old && self.is_revoked(&verified.ids) {
            return Err(revoked());
        }
        let is_allowed = verified.allows(action, resource);
        is_allowed.then(|| Arc::clone(subject)).ok_or_else(|| forbidden(subject, action, resource))
    }

    /// Is the bearer of this token the operator of the node? `Forbidden` if the token is another good one.
    pub fn authorize_operator(&self, bearer: Option<&str>) -> Result<Arc<Subject>, Error> {
        let Identified { subject, verified, .. } = self.identify(bearer, false)?;
        let refused = || Error::new(Kind::Forbidden, "only the operator of the node may do this");
        verified.is_none().then_some(subject).ok_or_else(refused)
    }

    /// Is this a token of the node, whatever it allows and even if it has expired by now? A revoked one is not.
    pub fn recognize(&self, bearer: Option<&str>) -> Result<(), Error> {
        self.look_up(bearer).map(drop)
    }

    /// The bearer of this token, whatever it allows. A token that ran out is taken only if `even_expired` is set.
    pub fn identify(&self, bearer: Option<&str>, even_expired: bool) -> Result<Identified, Error> {
        let identified = self.look_up(bearer)?;
        if let (Some(verified), false) = (&identified.verified, even_expired) {
            check_expiry(verified, (self.0.clock)())?;
        }
        Ok(identified)
    }

    /// Replaces the list of revoked tokens, given by the hex ids of their blocks; holds from the next request on.
    pub fn set_revoked(&self, ids: impl IntoIterator<Item = String>) {
        let ids: HashSet<String> = ids.into_iter().map(|id| id.to_ascii_lowercase()).collect();
        self.0.revoked.store(Arc::new(ids));
        self.0.revocations.fetch_add(1, Ordering::Release);
        self.0.cache.retain((self.0.clock)(), |verified| !self.is_revoked(&verified.ids));
    }

    /// Adds to the list of revoked tokens; what was revoked stays so.
    pub fn add_revoked(&self, ids: impl IntoIterator<Item = String>) {
        let known = self.0.revoked.load_full();
        self.set_revoked(known.iter().cloned().chain(ids));
    }

    /// Takes up the list as it was read now, and returns what is wrong with it, if something is. What nobody can read
    /// takes nothing back: a list that is gone or holds no id while some are in force is the trace of an accident, such
    /// as a file that is cut off while it is written, and not the wish to let everybody in again who was locked out.
    pub fn follow(&self, list: io::Result<Revocations>) -> Option<String> {
        let list = match list {
            Ok(list) => list,
            Err(error) => return Some(format!("it cannot be read: {error}; the last one stays in force")),
        };
        let in_force = self.0.revoked.load_full();
        if let Some(problem) = list.problem() {
            // A line that became unreadable may have been one that was in force.
            self.add_revoked(list.ids);
            return Some(problem);
        }
        if list.ids.is_empty() && !in_force.is_empty() {
            let count = in_force.len();
            return Some(format!(
                "it is gone or empty while {count} of its ids are in force; they stay in force. Restore it, or leave an \
                 empty file there and restart the node if none of them is to be revoked any more"
            ));
        }
        if list.may_be_unfinished {
            // Ids that are not there yet would be free until the rest of it is written.
            if list.ids.iter().any(|id| !in_force.contains(id)) {
                self.add_revoked(list.ids);
            }
            return None;
        }
        let is_same = list.ids.len() == in_force.len() && list.ids.iter().all(|id| in_force.contains(id));
        if !is_same {
            self.set_revoked(list.ids);
        }
        None
    }

    /// Forgets tokens past their time; to be called now and then.
    pub fn trim(&self) {
        let now_ms = (self.0.clock)();
        let is_good = |verified: &Verified| verified.subject.expires_ms.is_none_or(|expires_ms| now_ms < expires_ms);
        self.0.cache.retain(now_ms, is_good);
    }

    /// Tokens remembered.
    pub fn cached(&self) -> usize {
        self.0.cache.len()
    }

    /// A new token that allows this.
    pub fn mint(&self, grant: &Grant) -> Result<String, AuthError> {
        token::mint(&self.0.root, grant)
    }

    /// Answer to somebody who asks whether this node knows its operator token; none if it has no such token, or if the
    /// nonce is none.
    pub fn prove_operator(&self, nonce: &str, at: SocketAddr) -> Option<String> {
        let (token, _) = self.0.operator.as_ref()?;
        crate::proof::prove(token, nonce, at)
    }

    /// The key that verifies the tokens of this node.
    pub fn public_key(&self) -> PublicKey {
        self.0.root.public()
    }

    /// Takes as long for a near miss as for a far one; a token of another length cannot be the operator's.
    fn operator(&self, token: &str) -> Option<Arc<Subject>> {
        let (expected, subject) = self.0.operator.as_ref()?;
        is_same_secret(expected.as_bytes(), token.as_bytes()).then(|| Arc::clone(subject))
    }

    fn look_up(&self, bearer: Option<&str>) -> Result<Identified, Error> {
        let token = shown(bearer)?;
        // Before the look at the table: a list that comes in between makes this one old, never the other way round.
        let revocations = self.0.revocations.load(Ordering::Acquire);
        if let Some(subject) = self.operator(token) {
            return Ok(Identified { subject, verified: None, revocations });
        }
        let now_ms = (self.0.clock)();
        let verified = self.0.cache.find(token, now_ms).map_or_else(|| self.verify(token, now_ms), Ok)?;
        Ok(Identified { subject: Arc::clone(&verified.subject), verified: Some(verified), revocations })
    }

    fn verify(&self, token: &str, now_ms: u64) -> Result<Arc<Verified>, Error> {
        let envelope = Envelope::open(token).map_err(refusal)?;
        // Before anything that costs more than reading: a revoked token is never remembered, so that its bearer could
        // make the node verify it again with each request.
        if self.is_revoked(&envelope.ids()) {
            return Err(revoked());
        }
        let verified = Arc::new(Verified::new(&envelope, self.public_key())?);
        let remembered = (&verified, verified.bytes());
        match self.0.cache.put(token, remembered, now_ms, || self.is_revoked(&verified.ids)) {
            true => Ok(verified),
            false => Err(revoked()),
        }
    }

    fn is_revoked(&self, ids: &[String]) -> bool {
        let revoked = self.0.revoked.load();
        ids.iter().any(|id| revoked.contains(id))
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("key", &self.public_key()).finish_non_exhaustive()
    }
}

/// Compares eight bytes at a time, which every request of the operator pays for.
fn is_same_secret(expected: &[u8], shown: &[u8]) -> bool {
    let (words, rest) = expected.as_chunks();
    let (shown_words, shown_rest) = shown.as_chunks();
    let same_word = |(a, b): (&[u8; 8], &[u8; 8])| u64::from_ne_bytes(*a).ct_eq(&u64::from_ne_bytes(*b));
    let same = words.iter().zip(shown_words).map(same_word).fold(rest.ct_eq(shown_rest), |all, word| all & word);
    expected.len() == shown.len() && bool::from(same)
}

/// The token a caller shows, if it is one that may be looked at.
fn shown(bearer: Option<&str>) -> Result<&str, Error> {
    let token = bearer.ok_or_else(|| unauthenticated("no token was shown"))?;
    match token.len() > limits::CAPABILITY_BYTES_MAX {
        true => Err(unauthenticated("the token is too long")),
        false => Ok(token),
    }
}

fn revoked() -> Error {
    unauthenticated("the token was revoked")
}

fn check_expiry(verified: &Verified, at_ms: u64) -> Result<(), Error> {
    match verified.subject.expires_ms.is_some_and(|expires_ms| at_ms >= expires_ms) {
        true => Err(unauthenticated("the token has expired")),
        false => Ok(()),
    }
}

fn forbidden(subject: &Subject, action: Action, resource: &str) -> Error {
    let what = match resource {
        "" => "the service as a whole".to_owned(),
        resource => format!("{resource:?}"),
    };
    Error::new(Kind::Forbidden, format!("the token of {:?} does not allow {action} on {what}", subject.name))
}

#[cfg(test)]
mod tests;
