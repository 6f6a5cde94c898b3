//! Bare servers that give back a copy of the node's answer: from memory, and from Redis.

use std::path::{Path, PathBuf};

use axum::Router;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::routing::get;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use testkit::Reply;

use crate::servers;

/// Route of all answers.
const ROUTE: &str = "/resolve/{id}";
/// Headers that the server under a handler writes by itself.
const WRITTEN_BY_SERVERS: [&str; 4] = ["date", "content-length", "connection", "transfer-encoding"];

/// An answer of the node that another server gives as well.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Copied {
    headers: Vec<(String, String)>,
    body: String,
}

/// Where a copy is.
#[derive(Debug, clap::Args)]
pub struct CopyArgs {
    /// File of the answer
    file: PathBuf,
    /// Port of a Redis server on loopback that has the body under its id
    #[arg(long, value_name = "PORT")]
    redis: Option<u16>,
}

impl Copied {
    /// The answer with the headers that its handler wrote.
    pub fn of(reply: &Reply) -> Copied {
        let is_own = |name: &&HeaderName| !WRITTEN_BY_SERVERS.contains(&name.as_str());
        let names = reply.headers.keys().filter(is_own);
        let headers = names.map(|name| (name.to_string(), reply.header(name.as_str()).to_owned())).collect();
        Copied { headers, body: reply.text() }
    }

    /// Writes it for a server to read.
    pub fn write(&self, file: &Path) -> anyhow::Result<()> {
        Ok(std::fs::write(file, serde_json::to_vec(self)?)?)
    }

    /// The body.
    #[cfg(feature = "peers")]
    pub fn body(&self) -> &str {
        &self.body
    }

    fn headers(&self) -> anyhow::Result<HeaderMap> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            headers.append(HeaderName::try_from(name)?, HeaderValue::try_from(value)?);
        }
        Ok(headers)
    }
}

/// Serves a copy; prints the port.
pub fn serve(arguments: &CopyArgs) -> anyhow::Result<()> {
    let copied: Copied = serde_json::from_slice(&std::fs::read(&arguments.file)?)?;
    let headers = copied.headers()?;
    if let Some(port) = arguments.redis {
        return serve_redis(headers, port);
    }
    let body = Bytes::from(copied.body);
    servers::serve(Router::new().route(
        ROUTE,
        get(move || {
            let answer = (headers.clone(), body.clone());
            async move { answer }
        }),
    ))
}

/// One connection carries the requests of all others, as the Redis client is made for.
#[cfg(feature = "peers")]
fn serve_redis(headers: HeaderMap, port: u16) -> anyhow::Result<()> {
    use axum::extract::Path as Id;
    use axum::http::StatusCode;
    use axum::response::IntoResponse as _;
    use redis::aio::MultiplexedConnection;
    use tokio::sync::OnceCell;

    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/"))?;
    let connection: std::sync::Arc<OnceCell<MultiplexedConnection>> = std::sync::Arc::default();
    let handler = move |Id(id): Id<String>| {
        let (headers, client, connection) = (headers.clone(), client.clone(), connection.clone());
        async move {
            let connect = || async { client.get_multiplexed_async_connection().await };
            let Ok(connection) = connection.get_or_try_init(connect).await else {
                return StatusCode::BAD_GATEWAY.into_response();
            };
            let found: redis::RedisResult<Option<Vec<u8>>> =
                redis::cmd("GET").arg(&id).query_async(&mut connection.clone()).await;
            match found {
                Ok(Some(body)) => (headers, body).into_response(),
                Ok(None) => StatusCode::NOT_FOUND.into_response(),
                Err(_) => StatusCode::BAD_GATEWAY.into_response(),
            }
        }
    };
    servers::serve(Router::new().route(ROUTE, get(handler)))
}

#[cfg(not(feature = "peers"))]
fn serve_redis(_headers: HeaderMap, _port: u16) -> anyhow::Result<()> {
    anyhow::bail!("this binary was built without the feature `peers`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_headers_of_the_handler_and_not_those_of_the_server() {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        headers.insert("date", HeaderValue::from_static("today"));
        let reply = Reply { status: 200, headers, body: Bytes::from_static(b"{}") };
        let copied = Copied::of(&reply);
        let headers = copied.headers().expect("headers");
        assert_eq!((headers.len(), copied.body.as_str()), (1, "{}"));
        assert_eq!(headers["content-type"], "application/json");
    }
}
