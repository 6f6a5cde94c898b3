//! The headers of the surface beside the token.

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{HeaderName, StatusCode};
use svc_mailbox::Durability;

use crate::call::seldom;
use crate::problem::Problem;

/// How durable an answer must be, if the caller says: `Min-Durability: fsynced`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Minimum(pub Option<Durability>);

pub(super) const MIN_DURABILITY_HEADER: HeaderName = HeaderName::from_static("min-durability");

impl<S: Sync> FromRequestParts<S> for Minimum {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        let Some(value) = seldom(&parts.headers, &MIN_DURABILITY_HEADER) else { return Ok(Minimum(None)) };
        let wanted = value.to_str().ok().and_then(|text| text.parse().ok());
        let refusal = || Problem::schema(StatusCode::BAD_REQUEST, "Min-Durability must be fsynced, written or ram");
        wanted.map(|wanted| Minimum(Some(wanted))).ok_or_else(refusal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_three_words_are_understood() {
        for (value, expected) in [
            (None, Ok(None)),
            (Some("fsynced"), Ok(Some(Durability::Fsynced))),
            (Some("written"), Ok(Some(Durability::Written))),
            (Some("ram"), Ok(Some(Durability::Ram))),
            (Some("disk"), Err(400)),
            (Some(""), Err(400)),
        ] {
            let request = http::Request::builder();
            let request = value.into_iter().fold(request, |request, value| request.header("Min-Durability", value));
            let (mut parts, ()) = request.body(()).expect("plain").into_parts();
            let read = Minimum::from_request_parts(&mut parts, &()).await;
            assert_eq!(read.map(|minimum| minimum.0).map_err(|problem| problem.status.as_u16()), expected, "{value:?}");
        }
    }
}
