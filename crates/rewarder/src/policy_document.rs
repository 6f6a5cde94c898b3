//! A policy as it comes in: bare, where that is allowed, or in an envelope that enough trusted keys have signed.

use std::collections::BTreeMap;

use ron_calculus::policy::AssetPolicy;
use ron_calculus::{Policy, Units};

use crate::canonical::{CanonicalError, to_canonical};
use crate::envelope::{Envelope, EnvelopeError, POLICY_TYPE};
use crate::keys::{PublicKey, TrustedKeys};

/// Whose policies are run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trust<'a> {
    /// Keys whose signatures count.
    pub keys: Option<&'a TrustedKeys>,
    /// Whether a policy without a signature will do; the manifest says so for good.
    pub allows_unsigned: bool,
}

/// A policy, and who stands behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyDocument {
    /// The policy as it was written.
    pub policy: Policy,
    /// The envelope it came in, byte for byte; none for a policy without a signature.
    pub envelope: Option<Vec<u8>>,
    /// Trusted keys that signed it, sorted.
    pub signers: Vec<PublicKey>,
}

/// Why a policy is not run.
#[derive(Debug, thiserror::Error)]
pub enum PolicyDocumentError {
    /// A bare policy where a signature is asked for.
    #[error("the policy is not signed; sign it (`macronode reward policy sign`), or say --unsigned")]
    Unsigned,
    /// An envelope, and no keys to check it with.
    #[error("the policy is signed, but no trusted keys were given to check it with (--keys FILE)")]
    NoKeys,
    /// An envelope that is not believed.
    #[error("{0}")]
    Envelope(#[from] EnvelopeError),
    /// Not a policy, or one that contradicts itself.
    #[error("{0}")]
    Policy(String),
    /// A policy without a canonical form.
    #[error("{0}")]
    Canonical(#[from] CanonicalError),
}

impl PolicyDocument {
    /// Reads a policy or an envelope with one, and checks it against the keys.
    pub fn read(bytes: &[u8], trust: Trust<'_>) -> Result<PolicyDocument, PolicyDocumentError> {
        PolicyDocument::read_while(bytes, trust, &|| true)
    }

    /// [`PolicyDocument::read`], given up as soon as nobody wants the answer.
    pub fn read_while(
        bytes: &[u8],
        trust: Trust<'_>,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<PolicyDocument, PolicyDocumentError> {
        if !Envelope::is_one(bytes) {
            let policy = parse(bytes)?;
            let document = PolicyDocument { policy, envelope: None, signers: Vec::new() };
            return if trust.allows_unsigned { Ok(document) } else { Err(PolicyDocumentError::Unsigned) };
        }
        let keys = trust.keys.ok_or(PolicyDocumentError::NoKeys)?;
        let verified = Envelope::parse(bytes)?.verify_while(POLICY_TYPE, keys, is_wanted)?;
        let policy = parse(&verified.payload)?;
        Ok(PolicyDocument { policy, envelope: Some(bytes.to_vec()), signers: verified.signers })
    }

    /// Reads a policy for a trial that nothing follows from: an envelope is opened, whoever signed it.
    pub fn draft(bytes: &[u8]) -> Result<PolicyDocument, PolicyDocumentError> {
        if Envelope::is_one(bytes) {
            return Ok(PolicyDocument::unsigned(parse(&Envelope::parse(bytes)?.payload()?)?));
        }
        Ok(PolicyDocument::unsigned(parse(bytes)?))
    }

    /// A policy that nobody has signed.
    pub fn unsigned(policy: Policy) -> PolicyDocument {
        PolicyDocument { policy, envelope: None, signers: Vec::new() }
    }

    /// Refuses pools in place of those that signers gave: a run fills in only what they left open. Only those who sign
    /// a correction put another pool there, because its pools are part of what they sign.
    pub fn check_pools(&self, pools: &BTreeMap<String, Units>) -> Result<(), PolicyDocumentError> {
        let is_signed = |asset: &&AssetPolicy| {
            let given = pools.get(&asset.asset);
            !self.signers.is_empty()
                && given.is_some_and(|units| asset.total_pool().is_some_and(|pool| pool != units.0))
        };
        let replaced = self.policy.assets.iter().find(is_signed);
        let told = |asset: &AssetPolicy| {
            let (name, pool) = (&asset.asset, asset.total_pool().unwrap_or_default());
            let reason = format!("the pool of {name} is signed as {pool}; only a pool that is left open can be given");
            PolicyDocumentError::Policy(reason)
        };
        replaced.map_or(Ok(()), |asset| Err(told(asset)))
    }

    /// The policy that is run: with the pools given for this epoch written into it.
    pub fn in_force(&self, pools: &BTreeMap<String, Units>) -> Result<Policy, PolicyDocumentError> {
        let pools = pools.iter().map(|(asset, units)| (asset.clone(), units.0)).collect();
        let policy = self.policy.with_pools(&pools).map_err(|error| PolicyDocumentError::Policy(error.to_string()))?;
        if !policy.is_complete() {
            let reason = "the policy leaves a pool open; give it with --pool ASSET=UNITS";
            return Err(PolicyDocumentError::Policy(reason.to_owned()));
        }
        Ok(policy)
    }
}

fn parse(bytes: &[u8]) -> Result<Policy, PolicyDocumentError> {
    Policy::parse(bytes).map_err(|error| PolicyDocumentError::Policy(error.to_string()))
}

/// Canonical bytes of a policy, and their hash: what a signature, a run and a payee mean by "this policy".
pub fn canonical_policy(policy: &Policy) -> Result<(Vec<u8>, [u8; 32]), CanonicalError> {
    let bytes = to_canonical(policy)?;
    let hash = *blake3::hash(&bytes).as_bytes();
    Ok((bytes, hash))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::SigningKey;

    const SMALLEST: &str =
        r#"{"id":"demo","ruleset":1,"assets":[{"asset":"RON","pool":"1000000","weights":{"usage":"1"}}]}"#;

    #[test]
    fn a_bare_policy_needs_leave_and_an_envelope_needs_keys() {
        let leave = Trust { allows_unsigned: true, ..Trust::default() };
        let bare = PolicyDocument::read(SMALLEST.as_bytes(), leave).expect("allowed");
        assert!(bare.envelope.is_none() && bare.signers.is_empty());
        let refused = PolicyDocument::read(SMALLEST.as_bytes(), Trust::default());
        assert!(matches!(refused, Err(PolicyDocumentError::Unsigned)));

        let key = SigningKey::generate().expect("made");
        let mut envelope = Envelope::around(SMALLEST.as_bytes());
        envelope.sign(&key).expect("signed");
        let text = envelope.to_text();
        assert!(matches!(PolicyDocument::read(text.as_bytes(), leave), Err(PolicyDocumentError::NoKeys)));
        let keys = TrustedKeys { threshold: 1, keys: vec![key.public()] };
        let trust = Trust { keys: Some(&keys), allows_unsigned: false };
        let signed = PolicyDocument::read(text.as_bytes(), trust).expect("signed");
        assert_eq!((signed.policy, signed.signers), (bare.policy, vec![key.public()]));
        let stranger = TrustedKeys { threshold: 1, keys: vec![SigningKey::generate().expect("made").public()] };
        let refused = PolicyDocument::read(text.as_bytes(), Trust { keys: Some(&stranger), allows_unsigned: true });
        assert!(matches!(refused, Err(PolicyDocumentError::Envelope(_))), "--unsigned excuses no wrong signature");
    }

    #[test]
    fn what_is_signed_is_run_and_only_what_is_open_is_filled_in() {
        let key = SigningKey::generate().expect("made");
        let keys = TrustedKeys { threshold: 1, keys: vec![key.public()] };
        let trust = Trust { keys: Some(&keys), allows_unsigned: true };
        let read = |text: &str, is_signed: bool| {
            let mut envelope = Envelope::around(text.as_bytes());
            envelope.sign(&key).expect("signed");
            let text = if is_signed { envelope.to_text() } else { text.to_owned() };
            PolicyDocument::read(text.as_bytes(), trust).expect("a policy")
        };
        let open = SMALLEST.replace("\"pool\":\"1000000\",", "");
        let grouped = SMALLEST.replace("\"pool\":\"1000000\"", "\"groups\":{\"a\":\"7\"}");
        for (text, is_signed, pool, is_fine) in [
            (SMALLEST, true, 1_000_000, true),
            (SMALLEST, true, 999_999, false),
            (SMALLEST, true, 10_000_000, false),
            (SMALLEST, true, 0, false),
            (SMALLEST, false, 5, true),
            (&open, true, 5, true),
            (&grouped, true, 8, false),
        ] {
            let pools = BTreeMap::from([("RON".to_owned(), Units(pool))]);
            assert_eq!(read(text, is_signed).check_pools(&pools).is_ok(), is_fine, "{text} {is_signed} {pool}");
        }
    }

    #[test]
    fn the_order_of_members_changes_no_hash_and_a_pool_does() {
        let leave = Trust { allows_unsigned: true, ..Trust::default() };
        let read = |text: &str| PolicyDocument::read(text.as_bytes(), leave).expect("a policy");
        let hash = |policy: &Policy| canonical_policy(policy).expect("canonical").1;
        let document = read(SMALLEST);
        let turned = r#"{"assets":[{"weights":{"usage":"1"},"pool":"1000000","asset":"RON"}],"ruleset":1,"id":"demo"}"#;
        assert_eq!(hash(&document.policy), hash(&read(turned).policy));
        let pools = BTreeMap::from([("RON".to_owned(), Units(5))]);
        assert_ne!(hash(&document.policy), hash(&document.in_force(&pools).expect("complete")));
        assert!(document.in_force(&BTreeMap::from([("XYZ".to_owned(), Units(5))])).is_err());
        let open = read(&SMALLEST.replace("\"pool\":\"1000000\",", ""));
        assert!(open.in_force(&BTreeMap::new()).expect_err("open").to_string().contains("--pool"));
    }
}
