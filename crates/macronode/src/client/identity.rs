//! Whose node listens at an address: asked before a token that the program found by itself is sent there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::Method;
use ron_kernel::Deadline;
use serde::Deserialize;

use super::Client;
use crate::errors::{Code, Failure};

/// Answer to a nonce.
#[derive(Default, Deserialize)]
struct Identity {
    #[serde(default)]
    proof: String,
}

impl Client {
    /// An error unless what listens here proves that it knows the token: an address may have passed to somebody else
    /// since the node wrote it down, and a token shown there would be lost.
    pub(super) async fn check_identity(&self, path: &str, token: &str, token_source: &str) -> Result<(), Failure> {
        let mut random = [0_u8; 32];
        getrandom::fill(&mut random)
            .map_err(|error| Failure::new(Code::TokenUnusable, format!("no randomness: {error}")))?;
        let nonce: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let answer = self.send(self.request(Method::GET, &format!("{path}?nonce={nonce}"))?).await?;
        let Identity { proof } = serde_json::from_slice(&answer.body).unwrap_or_default();
        if self.dialled().await.iter().any(|at| ron_auth::is_proof(token, &nonce, *at, &proof)) {
            return Ok(());
        }
        let message = format!(
            "what listens at {} is not the node that {token_source} belongs to, or passes on what it is told, so that the \
             token was not sent; to send it nevertheless, as through a forwarded port, name it with --token-file",
            self.address()
        );
        Err(Failure::new(Code::TokenUnusable, message))
    }

    /// Addresses that the name of the node stands for, as a connection is accepted there.
    async fn dialled(&self) -> Vec<SocketAddr> {
        let looked_up = Deadline::after(super::DEADLINE).run("lookup", tokio::net::lookup_host(self.address())).await;
        let accepted = |at: SocketAddr| match at.ip() {
            // Nobody accepts at "any address": the system connects to this machine.
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), at.port()),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => SocketAddr::new(Ipv6Addr::LOCALHOST.into(), at.port()),
            _ => at,
        };
        looked_up.ok().and_then(Result::ok).map_or_else(Vec::new, |found| found.map(accepted).collect())
    }
}
