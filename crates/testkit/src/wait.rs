//! Small words of black-box tests: one request, and waiting for something to come about.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::Method;

use crate::client::{Client, Reply};

/// Maximum wait on a loaded two-core machine for anything that is not measured.
pub const PATIENCE_MAX: Duration = Duration::from_secs(60);

/// One request on a new connection.
pub async fn ask(
    address: SocketAddr,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Result<Reply, Box<dyn std::error::Error>> {
    Ok(Client::connect(address).await?.request(method, path, headers, body).await?)
}

/// Asks again and again until there is something.
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let found = tokio::time::timeout(PATIENCE_MAX, looking).await;
    found.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE_MAX:?}"))
}
