//! The one place every surface asks: may the bearer of this token do this?

use std::collections::HashSet;
use std::sync::Arc;

use arc_swap::ArcSwap;
use ron_types::{Error, Kind, limits};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::cache::{Bounds, Cache};
use crate::capabilities::Action;
use crate::envelope::Envelope;
use crate::key::{PublicKey, RootKey};
use crate::token;
use crate::types::{AuthError, Grant, Subject};
use crate::verified::{Verified, refusal, unauthenticated};

const BOUNDS: Bounds = Bounds {
    tokens_max: limits::CAPABILITY_CACHE_TOKENS_MAX,
    resources_per_token_max: limits::CAPABILITY_CACHE_RESOURCES_PER_TOKEN_MAX,
    bytes_max: limits::CAPABILITY_CACHE_BYTES_MAX,
    ttl_ms: limits::CAPABILITY_CACHE_TTL.as_millis() as u64,
};

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
        let operator = operator_token
            .map(|token| (Zeroizing::new(token.trim().to_owned()), Arc::new(Subject::operator("operator"))));
        let (cache, revoked) = (Cache::new(bounds), ArcSwap::default());
        Authority(Arc::new(Inner { root, operator, clock, cache, revoked }))
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
        let token = shown(bearer)?;
        if let Some(operator) = self.operator(token) {
            return Ok(operator);
        }
        let now_ms = (self.0.clock)();
        let (verified, verdict) = match self.0.cache.find(token, action, resource, now_ms) {
            Some(found) => (found.value, found.verdict),
            None => (self.verify(token, now_ms)?, None),
        };
        let at_ms = at_ms.map_or(now_ms, |at_ms| at_ms.min(now_ms));
        check_expiry(&verified, at_ms)?;
        let is_allowed = verdict.unwrap_or_else(|| {
            let is_allowed = verified.allows(action, resource);
            self.0.cache.put_verdict(token, &verified, action, resource, is_allowed);
            is_allowed
        });
        let subject = &verified.subject;
        is_allowed.then(|| Arc::clone(subject)).ok_or_else(|| forbidden(subject, action, resource))
    }

    /// Is the bearer of this token the operator of the node? `Forbidden` if the token is another good one.
    pub fn authorize_operator(&self, bearer: Option<&str>) -> Result<Arc<Subject>, Error> {
        let token = shown(bearer)?;
        if let Some(operator) = self.operator(token) {
            return Ok(operator);
        }
        let now_ms = (self.0.clock)();
        check_expiry(&*self.known(token, now_ms)?, now_ms)?;
        Err(Error::new(Kind::Forbidden, "only the operator of the node may do this"))
    }

    /// Is this a token of the node, whatever it allows and even if it has expired by now? A revoked one is not.
    pub fn recognize(&self, bearer: Option<&str>) -> Result<(), Error> {
        let token = shown(bearer)?;
        match self.operator(token) {
            Some(_) => Ok(()),
            None => self.known(token, (self.0.clock)()).map(drop),
        }
    }

    /// The bearer of this token, whatever it allows. A token that ran out is taken only if `even_expired` is set.
    pub fn identify(&self, bearer: Option<&str>, even_expired: bool) -> Result<Arc<Subject>, Error> {
        let token = shown(bearer)?;
        if let Some(operator) = self.operator(token) {
            return Ok(operator);
        }
        let now_ms = (self.0.clock)();
        let verified = self.known(token, now_ms)?;
        if !even_expired {
            check_expiry(&verified, now_ms)?;
        }
        Ok(Arc::clone(&verified.subject))
    }

    /// Replaces the list of revoked tokens, given by the hex ids of their blocks; holds from the next request on.
    pub fn set_revoked(&self, ids: impl IntoIterator<Item = String>) {
        let ids: HashSet<String> = ids.into_iter().map(|id| id.to_ascii_lowercase()).collect();
        self.0.revoked.store(Arc::new(ids));
        self.0.cache.retain((self.0.clock)(), |verified| !self.is_revoked(&verified.ids));
    }

    /// Adds to the list of revoked tokens; what was revoked stays so.
    pub fn add_revoked(&self, ids: impl IntoIterator<Item = String>) {
        let known = self.0.revoked.load_full();
        self.set_revoked(known.iter().cloned().chain(ids));
    }

    /// Forgets verdicts past their time; to be called now and then.
    pub fn trim(&self) {
        let now_ms = (self.0.clock)();
        let is_good = |verified: &Verified| verified.subject.expires_ms.is_none_or(|expires_ms| now_ms < expires_ms);
        self.0.cache.retain(now_ms, is_good);
    }

    /// Verdicts remembered.
    pub fn cached(&self) -> usize {
        self.0.cache.len()
    }

    /// A new token that allows this.
    pub fn mint(&self, grant: &Grant) -> Result<String, AuthError> {
        token::mint(&self.0.root, grant)
    }

    /// Answer to somebody who asks whether this node knows its operator token; none if it has no such token, or if the
    /// nonce is none.
    pub fn prove_operator(&self, nonce: &str) -> Option<String> {
        let (token, _) = self.0.operator.as_ref()?;
        crate::proof::prove(token, nonce)
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

    fn known(&self, token: &str, now_ms: u64) -> Result<Arc<Verified>, Error> {
        self.0.cache.find_token(token, now_ms).map_or_else(|| self.verify(token, now_ms), Ok)
    }

    fn verify(&self, token: &str, now_ms: u64) -> Result<Arc<Verified>, Error> {
        let envelope = Envelope::open(token).map_err(refusal)?;
        let revoked = || unauthenticated("the token was revoked");
        // Before anything that costs more than reading: a revoked token is never remembered, so that its bearer could
        // make the node verify it again with each request.
        if self.is_revoked(&envelope.ids()) {
            return Err(revoked());
        }
        let verified = Arc::new(Verified::new(&envelope, self.public_key())?);
        let remembered = (&verified, verified.bytes());
        match self.0.cache.put_token(token, remembered, now_ms, || self.is_revoked(&verified.ids)) {
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
