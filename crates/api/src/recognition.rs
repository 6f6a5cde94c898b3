//! Who sends a request, told from its head alone: asked before a permit is taken and before its body is read.

use std::sync::Arc;

use axum::response::{IntoResponse as _, Response};
use http::header;
use http::request::Parts;
use ron_auth::Authority;

use crate::auth::Bearer;
use crate::corr::CorrId;
use crate::fair_share::Claim;
use crate::problem::Problem;

/// What the head of a request says of its sender.
pub(crate) enum Recognized {
    /// The bearer of a good token.
    Bearer(Bearer),
    /// The credential is good, and names this subject.
    Subject(Arc<str>),
    /// The credential names this key of the node, but only the body can prove it. Until then the caller has a share of
    /// its own among those of its address: otherwise anybody could use up the share of a key whose name they know.
    Claimed(Arc<str>),
    /// No credential is asked for.
    Anyone,
}

impl Recognized {
    /// Whose share the request is counted to.
    pub(crate) fn claim(&self) -> Claim {
        match self {
            Recognized::Bearer(bearer) => bearer.subject().map_or(Claim::Nobody, Claim::Proven),
            Recognized::Subject(subject) => Claim::Proven(Arc::clone(subject)),
            Recognized::Claimed(key) => Claim::Named(Arc::clone(key)),
            Recognized::Anyone => Claim::Nobody,
        }
    }

    /// The token with what is known of it, so that the handler need not look it up again.
    pub(crate) fn bearer(self) -> Option<Bearer> {
        if let Recognized::Bearer(bearer) = self { Some(bearer) } else { None }
    }
}

/// The way in which an operation recognizes its callers.
pub(crate) trait Recognizer: Send + Sync + 'static {
    /// The sender of a request, or the answer that turns it away.
    fn recognize(&self, head: &Parts, corr_id: &CorrId) -> Result<Recognized, Box<Response>>;
}

/// Recognizes the bearers of tokens.
pub(crate) struct TokenRecognizer {
    pub authority: Authority,
    /// Whether a token that ran out is taken, for operations that end what was begun while it was good.
    pub even_expired: bool,
}

impl Recognizer for TokenRecognizer {
    fn recognize(&self, head: &Parts, _corr_id: &CorrId) -> Result<Recognized, Box<Response>> {
        let bearer = Bearer::of(&head.headers)
            .and_then(|bearer| bearer.identified(&self.authority, self.even_expired).map_err(Problem::from));
        // The guard finds the problem in the answer and writes it in the format of the operation.
        bearer.map(Recognized::Bearer).map_err(|problem| Box::new(problem.into_response()))
    }
}

/// Recognizes the bearers of tokens, and takes those without one too; the handler decides what they may see.
pub(crate) struct OptionalTokenRecognizer {
    pub authority: Authority,
}

impl Recognizer for OptionalTokenRecognizer {
    fn recognize(&self, head: &Parts, corr_id: &CorrId) -> Result<Recognized, Box<Response>> {
        if !head.headers.contains_key(header::AUTHORIZATION) {
            return Ok(Recognized::Anyone);
        }
        TokenRecognizer { authority: self.authority.clone(), even_expired: false }.recognize(head, corr_id)
    }
}

/// Takes everybody.
pub(crate) struct AnyoneRecognizer;

impl Recognizer for AnyoneRecognizer {
    fn recognize(&self, _head: &Parts, _corr_id: &CorrId) -> Result<Recognized, Box<Response>> {
        Ok(Recognized::Anyone)
    }
}
