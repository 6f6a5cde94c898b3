//! How a node is asked: where it is, what opens it, and how long it may take.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request};
use http_body_util::Full;
use tokio::time::Instant;

use crate::endpoint::Endpoint;
use crate::error::{Error, LinkError};
use crate::gather::now;
use crate::link::Link;

/// Maximum part of a call's time that is kept for the way there and back, so that what the node says at its own
/// deadline arrives within the call.
const TRAVEL_MAX: Duration = Duration::from_secs(2);

/// Address of a node and how to speak to it.
#[derive(Clone)]
pub struct Options {
    /// `http://HOST:PORT` or `https://HOST:PORT`.
    pub url: String,
    /// The capability: what `macronode token mint` gave, or what is in `operator.token`.
    pub token: String,
    /// The root certificates to trust, in PEM; https needs them.
    pub root_pem: Option<Vec<u8>>,
    /// Connections that carry sends and acknowledgements.
    pub connections: usize,
    /// Maximum duration of a call, with everything it waits for and tries again; a receive has its wait on top. Only
    /// [`Consumer::next`](crate::Consumer::next) waits for its message as long as that takes.
    pub patience: Duration,
    /// Calls that may wait for a connection; more of them wait to be let in.
    pub pending_max: usize,
}

/// A node as every request needs it.
pub struct Node {
    pub endpoint: Endpoint,
    pub patience: Duration,
    bearer: HeaderValue,
}

impl Options {
    /// A node and the token that opens it.
    pub fn new(url: impl Into<String>, token: impl Into<String>) -> Options {
        Options {
            url: url.into(),
            token: token.into(),
            root_pem: None,
            connections: 4,
            patience: Duration::from_secs(10),
            pending_max: 10_000,
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the token.
        formatter.debug_struct("Options").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Node {
    pub fn new(options: &Options) -> Result<Node, Error> {
        let endpoint = Endpoint::new(&options.url, options.root_pem.as_deref());
        let endpoint = endpoint.map_err(|error| Error::unanswered(&options.url, &error))?;
        let bearer = HeaderValue::from_str(&format!("Bearer {}", options.token.trim()));
        let mut bearer = bearer.map_err(|_| Error::Options("this is not a token".to_owned()))?;
        bearer.set_sensitive(true);
        Ok(Node { endpoint, patience: options.patience, bearer })
    }

    /// A first connection, so that a wrong address is known early.
    pub async fn link(&self) -> Result<Link, Error> {
        self.in_time(self.patience, Link::opened(&self.endpoint), LinkError::Closed).await
    }

    /// The body of a good answer that comes by `until`. The node has until shortly before that.
    pub async fn post(&self, link: &mut Link, path: &str, body: Vec<u8>, until: Instant) -> Result<Bytes, Error> {
        let left = until.saturating_duration_since(now());
        let nodes_time = left.saturating_sub(TRAVEL_MAX.min(left / 4)).max(Duration::from_millis(1));
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(HOST, self.endpoint.address())
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(AUTHORIZATION, self.bearer.clone())
            .header("x-request-deadline-ms", HeaderValue::from(nodes_time.as_millis() as u64))
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| Error::Options(error.to_string()))?;
        let response = self.in_time(left, link.exchange(&self.endpoint, request), LinkError::Lost).await?;
        if response.status().is_success() {
            return Ok(response.into_body());
        }
        Err(Error::refused(response.status(), response.body()))
    }

    /// What came of the work; if its time ran out first, that is an error of the kind given.
    #[expect(clippy::disallowed_methods, reason = "whoever uses a client has no kernel that names waits")]
    async fn in_time<T>(
        &self,
        time: Duration,
        work: impl Future<Output = Result<T, LinkError>>,
        too_late: fn(String) -> LinkError,
    ) -> Result<T, Error> {
        let done = tokio::time::timeout(time, work).await;
        let done = done.unwrap_or_else(|_| Err(too_late(format!("it was silent for {time:?}"))));
        done.map_err(|error| Error::unanswered(self.endpoint.address(), &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_line_and_is_never_shown() {
        let refused = Node::new(&Options::new("http://127.0.0.1:1", "a\nb")).map(|_| ()).expect_err("refused");
        assert_eq!(refused, Error::Options("this is not a token".to_owned()));
        assert!(!format!("{:?}", Options::new("http://127.0.0.1:1", "secret")).contains("secret"));
    }
}
