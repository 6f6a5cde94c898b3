//! Requests of SQS as bytes for the wire, signed as the SDKs do it.

use std::net::SocketAddr;

use aws_lc_rs::{digest, hmac};
use ron_kernel::clock;

const REGION: &str = "us-east-1";
const SIGNED_HEADERS: &str = "content-type;host;x-amz-date;x-amz-target";
const CONTENT_TYPE: &str = "application/x-amz-json-1.0";
/// A signature is good for a quarter of an hour; none is used for longer than this.
const REUSE_MS_MAX: u64 = 60_000;

/// Signs for one server with one access key.
#[derive(Clone, Debug)]
pub struct Signer {
    /// Address of the server.
    pub address: SocketAddr,
    access_key: String,
    secret: String,
    day: String,
    day_key: hmac::Key,
}

/// A request that is sent again and again, signed anew each minute.
#[derive(Debug)]
pub struct Repeated {
    action: &'static str,
    body: String,
    bytes: Vec<u8>,
    signed_ms: u64,
}

impl Signer {
    /// A signer with this access key.
    pub fn new(address: SocketAddr, access_key: &str, secret: &str) -> Signer {
        let day = day_of(clock::unix_millis());
        let day_key = derive(secret, &day);
        Signer { address, access_key: access_key.to_owned(), secret: secret.to_owned(), day, day_key }
    }

    /// Bytes of a whole request, signed now.
    pub fn request(&self, action: &str, json: &str) -> Vec<u8> {
        self.request_at(action, json, clock::unix_millis())
    }

    fn request_at(&self, action: &str, json: &str, now_ms: u64) -> Vec<u8> {
        let (day, host) = (day_of(now_ms), self.address);
        let date = format!("{day}T{}Z", time_of(now_ms));
        let scope = format!("{day}/{REGION}/sqs/aws4_request");
        let canonical = format!(
            "POST\n/\n\ncontent-type:{CONTENT_TYPE}\nhost:{host}\nx-amz-date:{date}\nx-amz-target:AmazonSQS.{action}\n\n\
             {SIGNED_HEADERS}\n{}",
            hash(json.as_bytes())
        );
        let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hash(canonical.as_bytes()));
        let signature = if day == self.day {
            hmac::sign(&self.day_key, text.as_bytes())
        } else {
            hmac::sign(&derive(&self.secret, &day), text.as_bytes())
        };
        format!(
            "POST / HTTP/1.1\r\nhost: {host}\r\ncontent-type: {CONTENT_TYPE}\r\nx-amz-target: AmazonSQS.{action}\r\n\
             x-amz-date: {date}\r\nauthorization: AWS4-HMAC-SHA256 Credential={}/{scope}, \
             SignedHeaders={SIGNED_HEADERS}, Signature={}\r\ncontent-length: {}\r\n\r\n{json}",
            self.access_key,
            hex(signature.as_ref()),
            json.len()
        )
        .into_bytes()
    }
}

impl Repeated {
    /// A request that is signed when it is first sent.
    pub fn new(action: &'static str, body: String) -> Repeated {
        Repeated { action, body, bytes: Vec::new(), signed_ms: 0 }
    }

    /// Bytes for the wire, signed anew when the signature is old.
    pub fn bytes(&mut self, signer: &Signer) -> &[u8] {
        let now_ms = clock::unix_millis();
        if now_ms.saturating_sub(self.signed_ms) >= REUSE_MS_MAX {
            self.bytes = signer.request_at(self.action, &self.body, now_ms);
            self.signed_ms = now_ms;
        }
        &self.bytes
    }
}

fn derive(secret: &str, day: &str) -> hmac::Key {
    let keyed = |key: &[u8]| hmac::Key::new(hmac::HMAC_SHA256, key);
    let first = keyed(format!("AWS4{secret}").as_bytes());
    let steps = [day, REGION, "sqs", "aws4_request"];
    steps.iter().fold(first, |key, step| keyed(hmac::sign(&key, step.as_bytes()).as_ref()))
}

fn hash(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// Day of a time, as in 20260102.
fn day_of(unix_ms: u64) -> String {
    testkit::civil_date(unix_ms / 86_400_000).replace('-', "")
}

/// Time of day, as in 030405.
fn time_of(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000 % 86_400;
    format!("{:02}{:02}{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The signature was made by botocore.
    #[test]
    fn signatures_are_those_of_the_sdk() {
        let signer = Signer::new(SocketAddr::from(([127, 0, 0, 1], 8080)), "MNSQEXAMPLE", "a secret");
        let body = r#"{"QueueUrl":"http://127.0.0.1:8080/000000000000/bench","MessageBody":"hello"}"#;
        let request = signer.request_at("SendMessage", body, 1_767_323_045_999);
        let text = std::str::from_utf8(&request).expect("text");
        let signature = "f0b54f81f5314381942a31d22e568e0a962c6f0d7556881c7a2e6b7889362847";
        for part in [
            "\r\nx-amz-date: 20260102T030405Z\r\n",
            "Credential=MNSQEXAMPLE/20260102/us-east-1/sqs/aws4_request, ",
            &format!(", Signature={signature}\r\ncontent-length: {}\r\n\r\n{body}", body.len()),
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn what_is_repeated_is_signed_again_after_a_minute() {
        let signer = Signer::new(SocketAddr::from(([127, 0, 0, 1], 80)), "key", "secret");
        let mut repeated = Repeated::new("ListQueues", "{}".to_owned());
        let first = repeated.bytes(&signer).to_vec();
        assert_eq!(repeated.bytes(&signer), first, "the same while it is young");
        repeated.signed_ms -= REUSE_MS_MAX;
        let old_ms = repeated.signed_ms;
        repeated.bytes(&signer);
        assert!(repeated.signed_ms > old_ms);
    }
}
