//! Who asks: the token of a request, and whether it covers what is asked.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, header};
use ron_auth::{Action, Authority, Subject};
use ron_types::{Error, Kind};

use crate::problem::Problem;

/// The token a request carries; a request without one gets no further than this.
#[derive(Clone)]
pub struct Bearer {
    header: HeaderValue,
    token_start: usize,
}

const SCHEME: &[u8] = b"bearer ";

impl<S: Sync> FromRequestParts<S> for Bearer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        Bearer::of(&parts.headers)
    }
}

impl Bearer {
    /// The token in these headers.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let (value, more) = (values.next(), values.next());
        let (Some(value), None) = (value, more) else {
            return Err(unauthenticated("Authorization: Bearer <token> is needed, once"));
        };
        Bearer::new(value).ok_or_else(|| unauthenticated("Authorization must be Bearer and a token"))
    }

    fn new(header: &HeaderValue) -> Option<Self> {
        let bytes = header.as_bytes();
        let has_scheme = bytes.len() > SCHEME.len() && bytes[..SCHEME.len()].eq_ignore_ascii_case(SCHEME);
        let token_start = SCHEME.len() + bytes.get(SCHEME.len()..)?.iter().position(|byte| *byte != b' ')?;
        // Without a way out in the middle, many bytes are looked at at once.
        let is_token = bytes[token_start..].iter().fold(true, |all, byte| all & byte.is_ascii_graphic());
        (has_scheme && is_token).then(|| Bearer { header: header.clone(), token_start })
    }

    /// The bearer may do this to the resource now.
    pub fn allow(&self, authority: &Authority, action: Action, resource: &str) -> Result<Arc<Subject>, Error> {
        authority.authorize(Some(self.token()), action, resource, None)
    }

    /// The bearer was allowed this at a time that may be past.
    pub fn allowed_at(
        &self,
        authority: &Authority,
        action: Action,
        resource: &str,
        at_ms: u64,
    ) -> Result<Arc<Subject>, Error> {
        authority.authorize(Some(self.token()), action, resource, Some(at_ms))
    }

    /// The bearer is the operator of the node.
    pub fn allow_operator(&self, authority: &Authority) -> Result<(), Error> {
        authority.authorize_operator(Some(self.token())).map(drop)
    }

    /// The token is, or was until it ran out, one of this node, whatever it allows: strangers learn nothing.
    pub fn is_known(&self, authority: &Authority) -> Result<(), Error> {
        authority.recognize(Some(self.token()))
    }

    /// The bearer, whatever the token allows; one whose token ran out only if `even_expired` is set.
    pub(crate) fn subject(&self, authority: &Authority, even_expired: bool) -> Result<Arc<Subject>, Error> {
        authority.identify(Some(self.token()), even_expired)
    }

    fn token(&self) -> &str {
        let token = &self.header.as_bytes()[self.token_start..];
        std::str::from_utf8(token).expect("only visible ASCII gets in")
    }
}

fn unauthenticated(detail: &'static str) -> Problem {
    Error::new(Kind::Unauthenticated, detail).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_taken_from_its_header() {
        for (header, expected) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc=", Some("abc=")),
            ("BEARER a-b_c.d", Some("a-b_c.d")),
            ("Bearer", None),
            ("Bearer ", None),
            ("Bearer a b", None),
            ("Basic abc", None),
            ("abc", None),
            ("", None),
        ] {
            let bearer = Bearer::new(&HeaderValue::from_static(header));
            assert_eq!(bearer.as_ref().map(Bearer::token), expected, "{header:?}");
        }
    }
}
