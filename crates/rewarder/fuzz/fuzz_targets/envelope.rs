//! Any bytes are an envelope or a refusal; nobody's signature is found under what nobody signed.

#![no_main]

use libfuzzer_sys::fuzz_target;
use svc_rewarder::envelope::{CORRECTION_TYPE, Envelope};
use svc_rewarder::{PolicyDocument, SigningKey, Trust, TrustedKeys};

fuzz_target!(|bytes: &[u8]| {
    let key = SigningKey::generate().expect("made");
    let trusted = TrustedKeys { threshold: 1, keys: vec![key.public()] };
    let trust = Trust { keys: Some(&trusted), allows_unsigned: false };
    assert!(PolicyDocument::read(bytes, trust).is_err(), "the key is new");
    let _ = PolicyDocument::draft(bytes);
    if let Ok(mut envelope) = Envelope::parse(bytes) {
        assert!(envelope.verify(&trusted).is_err() && envelope.verify_as(CORRECTION_TYPE, &trusted).is_err());
        if envelope.sign(&key).is_ok() {
            let again = Envelope::parse(envelope.to_text().as_bytes()).expect("what was written is read");
            assert_eq!(again, envelope);
        }
    }
});
