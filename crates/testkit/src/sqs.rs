//! A client of SQS that signs by itself: in headers, or in the query of an address.

use std::net::SocketAddr;
use std::time::SystemTime;

use aws_lc_rs::{digest, hmac};
use http::Method;

use crate::client::Reply;
use crate::wait::ask;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Access key of a node, and the region its owner thinks he is in.
#[derive(Clone, Debug)]
pub struct SqsKey {
    /// Public half.
    pub id: String,
    /// Secret half.
    pub secret: String,
    /// Region of the scope of signatures.
    pub region: String,
}

impl SqsKey {
    /// A key for the region that clients have by default.
    pub fn new(id: impl Into<String>, secret: impl Into<String>) -> SqsKey {
        SqsKey { id: id.into(), secret: secret.into(), region: "us-east-1".to_owned() }
    }

    /// The same key in another region.
    pub fn in_region(&self, region: &str) -> SqsKey {
        SqsKey { region: region.to_owned(), ..self.clone() }
    }

    /// An action in JSON, signed as clients do it.
    pub async fn call(&self, node: SocketAddr, action: &str, json: &str) -> Reply {
        let target = format!("AmazonSQS.{action}");
        let headers = [("content-type", "application/x-amz-json-1.0"), ("x-amz-target", target.as_str())];
        let signed = self.sign(node, "POST", "/", &headers, json.as_bytes());
        let signed = signed.iter().map(|(name, value)| (*name, value.as_str()));
        let headers: Vec<_> = headers.into_iter().chain(signed).collect();
        ask(node, Method::POST, "/", &headers, json.to_owned()).await.expect("an answer")
    }

    /// The headers that sign a request with these headers and this body, all of which are covered.
    pub fn sign(
        &self,
        node: SocketAddr,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Vec<(&'static str, String)> {
        let stamp = timestamp();
        let host = node.to_string();
        let mut covered = headers.to_vec();
        covered.extend([("host", host.as_str()), ("x-amz-date", stamp.as_str())]);
        covered.sort_unstable();
        let names: Vec<&str> = covered.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let signature = self.signature(&stamp, method, (path, query), &covered, body);
        let credential = format!("{}/{}", self.id, self.scope(&stamp));
        let authorization =
            format!("{ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}");
        vec![("x-amz-date", stamp), ("authorization", authorization)]
    }

    /// A target with its signature in the query, good for so many seconds; its own query must be encoded already.
    pub fn presign(&self, node: SocketAddr, method: &str, target: &str, expires_s: u32, body: &[u8]) -> String {
        let stamp = timestamp();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let scope = self.scope(&stamp).replace('/', "%2F");
        let query = format!(
            "{query}&X-Amz-Algorithm={ALGORITHM}&X-Amz-Credential={}%2F{scope}&X-Amz-Date={stamp}\
             &X-Amz-Expires={expires_s}&X-Amz-SignedHeaders=host",
            self.id
        );
        let host = node.to_string();
        let signature = self.signature(&stamp, method, (path, &query), &[("host", &host)], body);
        format!("{path}?{query}&X-Amz-Signature={signature}")
    }

    /// Keys derived one from another for today; the last one signs.
    pub fn signing_keys(&self) -> Vec<Vec<u8>> {
        self.signing_keys_at(&timestamp())
    }

    fn signing_keys_at(&self, stamp: &str) -> Vec<Vec<u8>> {
        let next = |key: &mut Vec<u8>, part: &str| {
            *key = keyed(key, part);
            Some(key.clone())
        };
        self.scope(stamp).split('/').scan(format!("AWS4{}", self.secret).into_bytes(), next).collect()
    }

    fn scope(&self, stamp: &str) -> String {
        format!("{}/{}/sqs/aws4_request", &stamp[..8], self.region)
    }

    fn signature(
        &self,
        stamp: &str,
        method: &str,
        (path, query): (&str, &str),
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> String {
        let mut pairs: Vec<&str> = query.split('&').filter(|pair| !pair.is_empty()).collect();
        pairs.sort_unstable();
        let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
        let (query, names) = (pairs.join("&"), names.join(";"));
        let request = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{}", sha256(body));
        let scope = self.scope(stamp);
        let text = format!("{ALGORITHM}\n{stamp}\n{scope}\n{}", sha256(request.as_bytes()));
        let key = self.signing_keys_at(stamp).pop().expect("a scope has parts");
        hex(&keyed(&key, &text))
    }
}

fn keyed(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The time as signatures write it, by the civil calendar.
fn timestamp() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time after 1970");
    let (days, rest) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let date = crate::civil_date(days).replace('-', "");
    format!("{date}T{:02}{:02}{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}
