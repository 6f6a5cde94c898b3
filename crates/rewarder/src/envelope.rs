//! Signed documents: DSSE v1 envelopes with Ed25519 signatures.
//!
//! What is signed is the type and the payload together (PAE), so that a signature over one kind of document is none
//! over another kind. The key id of a signature is only a hint: the key that it names is tried first, then the others,
//! and distinct keys are counted. However many signatures there are, and however wrong, the tries are bounded.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::keys::{PublicKey, SigningKey, TrustedKeys};

/// Type of a signed reward policy.
pub const POLICY_TYPE: &str = "application/vnd.macronode.reward-policy+json";
/// Type of a signed correction.
pub const CORRECTION_TYPE: &str = "application/vnd.macronode.reward-correction+json";
/// Longest envelope, in bytes: a policy of 1 MiB in base64 with its signatures.
pub const ENVELOPE_BYTES_MAX: usize = 2 << 20;
/// Most signatures in one envelope.
const SIGNATURES_MAX: usize = 64;
/// Verifications of one envelope beyond one for each trusted key: for signatures that name no trusted key, or a wrong
/// one. Eight such keys that have all signed need half of them.
const TRIES_MORE: usize = 64;

/// Why an envelope is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// Not an envelope, or one past the bounds.
    #[error("the envelope cannot be read: {0}")]
    Malformed(String),
    /// An envelope around something else.
    #[error("the envelope holds `{found}`, not `{expected}`")]
    OtherType {
        /// Type that it has.
        found: String,
        /// Type that was asked for.
        expected: &'static str,
    },
    /// Too few of the trusted keys have signed.
    #[error("{valid} of the trusted keys have signed this; {threshold} must")]
    TooFewSignatures {
        /// Distinct trusted keys with a valid signature.
        valid: usize,
        /// Keys that are needed.
        threshold: u32,
    },
    /// Nobody waits for the answer any more.
    #[error("stopped before all signatures were verified")]
    Stopped,
}

fn malformed(reason: impl Into<String>) -> EnvelopeError {
    EnvelopeError::Malformed(reason.into())
}

/// An envelope as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    /// The document, in base64.
    pub payload: String,
    /// Type of the document.
    pub payload_type: String,
    /// Signatures over type and document.
    pub signatures: Vec<EnvelopeSignature>,
}

/// One signature of an envelope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvelopeSignature {
    /// Id of the key; a hint.
    #[serde(default)]
    pub keyid: String,
    /// The signature, in base64.
    pub sig: String,
}

/// Says whether a signature is one of this key, or that nobody wants to know any more.
type Verifies<'a> = dyn FnMut(&PublicKey, &[u8]) -> Result<bool, EnvelopeError> + 'a;

/// What an envelope held, and who signed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The document.
    pub payload: Vec<u8>,
    /// The trusted keys that signed it, sorted.
    pub signers: Vec<PublicKey>,
}

impl Envelope {
    /// An envelope around a policy, without signatures yet.
    pub fn around(payload: &[u8]) -> Envelope {
        Envelope::of(POLICY_TYPE, payload)
    }

    /// An envelope around a document of this type, without signatures yet.
    pub fn of(payload_type: &str, payload: &[u8]) -> Envelope {
        Envelope { payload: STANDARD.encode(payload), payload_type: payload_type.to_owned(), signatures: Vec::new() }
    }

    /// Reads an envelope within its bounds.
    pub fn parse(bytes: &[u8]) -> Result<Envelope, EnvelopeError> {
        if bytes.len() > ENVELOPE_BYTES_MAX {
            return Err(malformed(format!("it has more than {ENVELOPE_BYTES_MAX} bytes")));
        }
        let envelope: Envelope = serde_json::from_slice(bytes).map_err(|error| malformed(error.to_string()))?;
        if envelope.signatures.len() > SIGNATURES_MAX {
            return Err(malformed(format!("it has more than {SIGNATURES_MAX} signatures")));
        }
        Ok(envelope)
    }

    /// Whether this looks like an envelope: an object with a payload type.
    pub fn is_one(bytes: &[u8]) -> bool {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Shape {
            #[serde(rename = "payloadType")]
            _payload_type: serde::de::IgnoredAny,
        }
        serde_json::from_slice::<Shape>(bytes).is_ok()
    }

    /// The document inside, whoever signed it.
    pub fn payload(&self) -> Result<Vec<u8>, EnvelopeError> {
        STANDARD.decode(&self.payload).map_err(|error| malformed(format!("the payload is not base64: {error}")))
    }

    /// Adds a signature, in place of an earlier one of this key.
    pub fn sign(&mut self, key: &SigningKey) -> Result<(), EnvelopeError> {
        let signed = pae(&self.payload_type, &self.payload()?);
        let keyid = key.public().id();
        self.signatures.retain(|signature| signature.keyid != keyid);
        if self.signatures.len() == SIGNATURES_MAX {
            return Err(malformed(format!("it has {SIGNATURES_MAX} signatures already")));
        }
        self.signatures.push(EnvelopeSignature { keyid, sig: STANDARD.encode(key.sign(&signed)) });
        Ok(())
    }

    /// The policy, if enough distinct trusted keys have signed it.
    pub fn verify(&self, trusted: &TrustedKeys) -> Result<Verified, EnvelopeError> {
        self.verify_as(POLICY_TYPE, trusted)
    }

    /// The document of this type, if enough distinct trusted keys have signed it.
    pub fn verify_as(&self, expected: &'static str, trusted: &TrustedKeys) -> Result<Verified, EnvelopeError> {
        self.verify_while(expected, trusted, &|| true)
    }

    /// [`Envelope::verify_as`], given up as soon as nobody wants the answer.
    pub fn verify_while(
        &self,
        expected: &'static str,
        trusted: &TrustedKeys,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Verified, EnvelopeError> {
        if self.payload_type != expected {
            let found = self.payload_type.chars().take(128).collect();
            return Err(EnvelopeError::OtherType { found, expected });
        }
        let payload = self.payload()?;
        let signed = pae(&self.payload_type, &payload);
        let signers = self.signers(&trusted.keys, &mut |key, signature| {
            is_wanted().then(|| key.verifies(&signed, signature)).ok_or(EnvelopeError::Stopped)
        })?;
        if signers.len() < trusted.threshold as usize {
            let (valid, threshold) = (signers.len(), trusted.threshold);
            return Err(EnvelopeError::TooFewSignatures { valid, threshold });
        }
        Ok(Verified { payload, signers: signers.into_iter().collect() })
    }

    /// The keys among these that have signed. A key is tried once with the first signature that names it; what is left
    /// of signatures and keys shares a number of tries.
    fn signers(&self, keys: &[PublicKey], verifies: &mut Verifies<'_>) -> Result<BTreeSet<PublicKey>, EnvelopeError> {
        let mut by_id: BTreeMap<String, &PublicKey> = keys.iter().map(|key| (key.id(), key)).collect();
        let (mut signers, mut others) = (BTreeSet::new(), Vec::new());
        for signature in &self.signatures {
            let bytes = STANDARD.decode(&signature.sig);
            let bytes = bytes.map_err(|error| malformed(format!("a signature is not base64: {error}")))?;
            match by_id.remove(&signature.keyid) {
                Some(key) if verifies(key, &bytes)? => drop(signers.insert(*key)),
                _ => others.push(bytes),
            }
        }
        let mut tries_left = TRIES_MORE;
        for bytes in others {
            for key in keys {
                if tries_left == 0 {
                    return Ok(signers);
                }
                if signers.contains(key) {
                    continue;
                }
                tries_left -= 1;
                if verifies(key, &bytes)? {
                    signers.insert(*key);
                    break;
                }
            }
        }
        Ok(signers)
    }

    /// The envelope as the text of a file.
    pub fn to_text(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

/// What is signed: type and document with their lengths in bytes.
fn pae(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(count: usize) -> Vec<SigningKey> {
        (0..count).map(|_| SigningKey::generate().expect("made")).collect()
    }

    fn trust(threshold: u32, keys: &[SigningKey]) -> TrustedKeys {
        TrustedKeys { threshold, keys: keys.iter().map(SigningKey::public).collect() }
    }

    #[test]
    fn what_is_signed_is_what_the_protocol_says() {
        let expected = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world";
        assert_eq!(pae("http://example.com/HelloWorld", b"hello world"), expected);
        assert_eq!(pae("é", "ü".as_bytes()), "DSSEv1 2 é 2 ü".as_bytes(), "lengths are bytes");
    }

    #[test]
    fn distinct_trusted_keys_are_counted() {
        let keys = keys(3);
        let mut envelope = Envelope::around(b"{}");
        let needs_two = trust(2, &keys[..2]);
        let refused = |envelope: &Envelope| envelope.verify(&needs_two).expect_err("too few");
        assert_eq!(refused(&envelope), EnvelopeError::TooFewSignatures { valid: 0, threshold: 2 });
        envelope.sign(&keys[0]).expect("signed");
        let twice = envelope.signatures[0].clone();
        envelope.signatures.push(EnvelopeSignature { keyid: "another name".into(), ..twice });
        assert_eq!(refused(&envelope), EnvelopeError::TooFewSignatures { valid: 1, threshold: 2 }, "one key twice");
        envelope.sign(&keys[2]).expect("signed");
        assert_eq!(refused(&envelope), EnvelopeError::TooFewSignatures { valid: 1, threshold: 2 }, "a stranger");
        envelope.sign(&keys[1]).expect("signed");
        let verified = envelope.verify(&needs_two).expect("two of two");
        assert_eq!((verified.payload.as_slice(), verified.signers.len()), (b"{}".as_slice(), 2));
        let read = Envelope::parse(envelope.to_text().as_bytes()).expect("read");
        assert_eq!(read, envelope);
    }

    #[test]
    fn a_changed_envelope_is_not_believed() {
        let keys = keys(1);
        let trusted = trust(1, &keys);
        let mut envelope = Envelope::around(b"{\"id\":\"a\"}");
        envelope.sign(&keys[0]).expect("signed");
        envelope.verify(&trusted).expect("as signed");
        let payload = Envelope { payload: STANDARD.encode(b"{\"id\":\"b\"}"), ..envelope.clone() };
        assert_eq!(payload.verify(&trusted), Err(EnvelopeError::TooFewSignatures { valid: 0, threshold: 1 }));
        let other = Envelope { payload_type: "text/plain".into(), ..envelope.clone() };
        assert_eq!(
            other.verify(&trusted),
            Err(EnvelopeError::OtherType { found: "text/plain".into(), expected: POLICY_TYPE })
        );
        let loose = Envelope { payload: envelope.payload.trim_end_matches('=').to_owned() + "\n", ..envelope.clone() };
        assert!(matches!(loose.verify(&trusted), Err(EnvelopeError::Malformed(_))), "base64 is strict");
        let mut sig = STANDARD.decode(&envelope.signatures[0].sig).expect("base64");
        for byte in 0..sig.len() {
            sig[byte] ^= 1;
            let mut changed = envelope.clone();
            changed.signatures[0].sig = STANDARD.encode(&sig);
            assert!(changed.verify(&trusted).is_err(), "byte {byte} of the signature");
            sig[byte] ^= 1;
        }
    }

    #[test]
    fn signatures_cost_as_much_as_the_keys_wrong_ones_too() {
        let keys: Vec<PublicKey> = keys(256).iter().map(SigningKey::public).collect();
        let wrong = |keyid: String| EnvelopeSignature { keyid, sig: STANDARD.encode([7; 64]) };
        for what in ["nobody", "strangers", "one key", "each key"] {
            let keyid = |number: usize| match what {
                "nobody" => String::new(),
                "strangers" => format!("b3:{number}"),
                "one key" => keys[0].id(),
                _ => keys[number].id(),
            };
            let mut envelope = Envelope::around(b"{}");
            envelope.signatures = (0..SIGNATURES_MAX).map(|number| wrong(keyid(number))).collect();
            let mut tries = 0;
            let signers = envelope.signers(&keys, &mut |_, _| {
                tries += 1;
                Ok(false)
            });
            assert_eq!(signers, Ok(BTreeSet::new()));
            assert!(tries <= keys.len() + 64, "{what}: {tries} verifications for {} keys", keys.len());
        }
    }

    #[test]
    fn keys_that_signed_count_whatever_their_signatures_are_called_and_nobody_waits_for_nothing() {
        let keys = keys(8);
        let trusted = trust(8, &keys);
        let mut envelope = Envelope::around(b"{}");
        keys.iter().rev().for_each(|key| envelope.sign(key).expect("signed"));
        envelope.verify(&trusted).expect("each is named");
        envelope.signatures.iter_mut().for_each(|signature| signature.keyid.clear());
        envelope.verify(&trusted).expect("none is named");
        let ids: Vec<String> = keys.iter().map(|key| key.public().id()).collect();
        for (signature, id) in envelope.signatures.iter_mut().zip(ids) {
            signature.keyid = id;
        }
        envelope.verify(&trusted).expect("each is called by the name of another");
        let stopped = envelope.verify_while(POLICY_TYPE, &trusted, &|| false);
        assert_eq!(stopped, Err(EnvelopeError::Stopped));
    }

    #[test]
    fn bounds_hold() {
        assert!(Envelope::parse(&vec![b' '; ENVELOPE_BYTES_MAX + 1]).is_err());
        let mut envelope = Envelope::around(b"{}");
        envelope.signatures = vec![EnvelopeSignature { keyid: String::new(), sig: String::new() }; SIGNATURES_MAX + 1];
        assert!(Envelope::parse(envelope.to_text().as_bytes()).is_err());
        assert!(Envelope::is_one(envelope.to_text().as_bytes()) && !Envelope::is_one(b"{\"id\":\"a\"}"));
    }
}
