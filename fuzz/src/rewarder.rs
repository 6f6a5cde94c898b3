//! What the rewarder reads of runs and policies of others: envelopes, manifests, paid amounts.

use std::collections::BTreeMap;
use std::sync::Arc;

use ron_calculus::Roster;
use ron_log::{Disk, RamDisk};
use svc_rewarder::canonical::CanonicalError;
use svc_rewarder::correct::{Bounds, Correction, PaidAmounts, read_paid, write_paid};
use svc_rewarder::correction_statement::CorrectionStatement;
use svc_rewarder::envelope::{CORRECTION_TYPE, Envelope};
use svc_rewarder::manifest::Manifest;
use svc_rewarder::{PolicyDocument, SealedRun, SigningKey, Trust, TrustedKeys};

use crate::Target;

mod seeds;

/// Targets of the crate.
pub const TARGETS: [Target; 3] = [
    Target { name: "rewarder_envelope", body: envelope, is_read: is_envelope, seeds: seeds::envelopes },
    Target { name: "rewarder_manifest", body: manifest, is_read: is_run, seeds: seeds::manifests },
    Target { name: "rewarder_paid", body: paid, is_read: is_paid, seeds: seeds::paid },
];

/// Any bytes are an envelope or a refusal; nobody's signature is found under what nobody signed.
pub fn envelope(bytes: &[u8]) {
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
}

/// What is signed in it can be drafted from it, too: the signature is all that is missing.
fn is_envelope(bytes: &[u8]) -> bool {
    Envelope::parse(bytes).is_ok_and(|envelope| envelope.payload().is_ok()) || PolicyDocument::draft(bytes).is_ok()
}

/// Any bytes as `run.json` are a run that can be opened or a refusal; what is opened reads nothing outside its folder.
pub fn manifest(bytes: &[u8]) {
    if let Ok(run) = opened(bytes) {
        assert_eq!(run.manifest().to_bytes().expect("canonical"), bytes);
        assert!(run.load().is_err(), "its files are missing");
        let _ = CorrectionStatement::of(&run);
    }
    // Most noise is not canonical; the reader behind that check is tried as well.
    if let Ok(manifest) = serde_json::from_slice::<Manifest>(bytes) {
        // A number past 2^53 has no canonical form: no run is sealed or opened with one.
        let canonical = match manifest.to_bytes() {
            Err(CanonicalError::Number(_)) => return,
            written => written.expect("canonical"),
        };
        let again: Manifest = serde_json::from_slice(&canonical).expect("what was written is read");
        assert_eq!(again, manifest);
    }
}

fn opened(bytes: &[u8]) -> Result<SealedRun, svc_rewarder::SealedError> {
    let disk: Arc<dyn Disk> = Arc::new(RamDisk::new());
    SealedRun::named(disk, bytes.to_vec(), 64 << 20, 1)
}

fn is_run(bytes: &[u8]) -> bool {
    opened(bytes).is_ok()
}

/// Any bytes as `paid.ndjson` are amounts or a refusal, and amounts that are written are read again.
pub fn paid(bytes: &[u8]) {
    if let Ok((roster, paid)) = read_paid(bytes) {
        assert!(paid.iter().all(|(_, amounts)| amounts.len() == roster.len()));
        let written = written(roster.clone(), paid.clone());
        let again = read_paid(&written).expect("what was written is read");
        assert!(again == (roster, paid));
    }
}

/// The file of what these were paid before a correction.
fn written(roster: Roster, paid: PaidAmounts) -> Vec<u8> {
    let correction = Correction {
        epoch: "2026-10".parse().expect("a name"),
        run_key: [0; 32],
        commitment: [0; 32],
        bounds: Bounds::default(),
        reserved: BTreeMap::new(),
        carry: BTreeMap::new(),
        carry_from: None,
        manifest: None,
        roster,
        paid,
    };
    let mut written = Vec::new();
    write_paid(&correction, &mut written).expect("memory takes all bytes");
    written
}

fn is_paid(bytes: &[u8]) -> bool {
    read_paid(bytes).is_ok_and(|(roster, _)| !roster.is_empty())
}
