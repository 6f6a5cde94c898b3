//! Capabilities from the time before services, when a right was a verb of the mailbox and a topic, written anew.

use ron_auth::{Authority, Grant, Inspection, inspect};
use svc_mailbox::capabilities::CAPABILITIES;

/// A capability with the rights and limits that an old one had; none if this one is not old or not of this node.
///
/// Only a key of this node makes the old one worth anything, so it must still verify, and nobody may have revoked it.
/// One that was narrowed is left alone: what its narrowings meant cannot be read from its first block.
pub(super) fn renewed(authority: &Authority, token: &str) -> Option<String> {
    let old = inspect(token).ok().filter(|old| old.blocks.len() == 1 && is_old(old))?;
    authority.recognize(Some(token)).ok()?;
    let service = CAPABILITIES.service;
    let rights = old.rights.iter().map(|right| format!("{service}:{right}").parse()).collect::<Result<_, _>>().ok()?;
    let limits = old.limits.into_iter().map(|(name, value)| (format!("{service}.{name}"), value)).collect();
    let grant = Grant { subject: old.subject?, rights, limits, expires_ms: old.expires_ms };
    authority.mint(&grant).ok()
}

/// Old rights are a verb and a topic, whose name had no colon.
fn is_old(read: &Inspection) -> bool {
    !read.rights.is_empty() && read.rights.iter().all(|right| right.matches(':').count() == 1)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ron_auth::{Narrowing, RootKey, attenuate};
    use svc_mailbox::capabilities::{ACK, PAYLOAD_BYTES_MAX, RECV, SEND, SENDS_PER_SECOND};

    use super::*;
    use crate::sqs::Keyring;

    /// `send` on orders, `recv` on jobs-*, `ack` on everything, 7 messages a second of 1024 bytes, until the year 2096;
    /// minted by the version before.
    const OLD: &str = concat!(
        "EvQCCokCCgdzdWJqZWN0CgdNTlNRT0xECgRzZW5kCgZvcmRlcnMKDHJpZ2h0X3ByZWZpeAoEcmVjdgoFam9icy0KA2FjawoACgVx",
        "dW90YQoQc2VuZHNfcGVyX3NlY29uZAoRcGF5bG9hZF9ieXRlc19tYXgKB3RpbWVfbXMKA25vdxgDIgoKCAiACBIDGIEIIg4KDAgE",
        "EgMYgggSAxiDCCIPCg0IhAgSAxiFCBIDGIYIIg8KDQiECBIDGIcIEgMYiAgiDgoMCIkIEgMYiggSAhAHIg8KDQiJCBIDGIsIEgMQ",
        "gAgyKgooCgIIGxIICIwIEgMIjQgaGAoFCgMIjQgKCQoHEICA0ZS1dAoEGgIIABIkCAASIKOgT9GHIIpr6-dRyLlC-eeIGT3Wn3tC",
        "DC1b_Cmx3n7YGkBbp3dIEeSIPN_ECo0rNxdej6RO8CTbdVzU7qwei_aLCN81-eFv6WO_wR_DMVIi3gtTsVbn8pvWSnZaBFNXg-sN",
        "IiIKIGAVuyLWQZwKho9zKzMrAsdSNulu8-q7hMWTrgaBilO-",
    );

    fn authority() -> Authority {
        let root = RootKey::from_hex(&"0123456789abcdef".repeat(4)).expect("the key that signed it");
        Authority::new(root, None, || 1_800_000_000_000)
    }

    #[test]
    fn a_file_of_before_is_read_and_its_keys_mean_the_same() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("sqs.keys");
        let key = format!(r#"{{"id":"MNSQOLD","secret":"hush","token":"{OLD}","note":"n","created_ms":5}}"#);
        fs::write(&path, format!(r#"{{"keys":[{key}]}}"#)).expect("written");
        let authority = authority();
        let ring = Keyring::open(Some(path.clone())).expect("read");
        ring.renew(&authority);
        let token = ring.find("MNSQOLD").expect("there").token.clone();
        let again = Keyring::open(Some(path)).expect("read");
        again.renew(&authority);
        let kept = again.find("MNSQOLD").expect("there");
        assert_eq!((&kept.token, kept.secret.as_str(), &*kept.note, kept.created_ms), (&token, "hush", "n", 5));

        let may = |action, queue| authority.authorize(Some(&token), action, queue, None);
        assert!(may(SEND, "orders").is_ok() && may(RECV, "jobs-1").is_ok() && may(ACK, "").is_ok());
        assert!(may(SEND, "jobs-1").is_err() && may(RECV, "orders").is_err());
        let subject = may(SEND, "orders").expect("allowed");
        assert_eq!((&*subject.name, subject.expires_ms), ("MNSQOLD", Some(4_000_000_000_000)));
        assert_eq!((subject.limit(SENDS_PER_SECOND), subject.limit(PAYLOAD_BYTES_MAX)), (Some(7), Some(1024)));
    }

    #[test]
    fn only_what_is_old_good_and_whole_is_renewed() {
        let authority = authority();
        let new = renewed(&authority, OLD).expect("renewed");
        assert_eq!(renewed(&authority, &new), None, "what is new stays");
        let stranger = Authority::new(RootKey::generate(), None, || 0);
        assert_eq!(renewed(&stranger, OLD), None, "another node's token is worth nothing here");
        let narrowing = Narrowing { expires_ms: Some(1), ..Narrowing::default() };
        assert_eq!(renewed(&authority, &attenuate(OLD, &narrowing).expect("narrowed")), None);
        authority.set_revoked(inspect(OLD).expect("read").blocks.into_iter().map(|block| block.revocation_id));
        assert_eq!(renewed(&authority, OLD), None, "a revoked one is not brought back");
        assert_eq!(renewed(&authority, "no token"), None);
    }
}
