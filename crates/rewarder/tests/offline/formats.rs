//! What a commitment follows from, and runs of the format before, as a node of then wrote them (`format_1`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ron_log::{Disk, RamDisk};
use ron_usage::InputFile;
use svc_rewarder::artifacts::{INPUT_NAMES, MANIFEST};
use svc_rewarder::correct::{Bounds, Correction};
use svc_rewarder::envelope::Envelope;
use svc_rewarder::hashing::b3;
use svc_rewarder::job::{Basis, settle};
use svc_rewarder::manifest::{FORMAT, FORMAT_WITH_NAMES};
use svc_rewarder::proofs::ActorProofs;
use svc_rewarder::verify::verify;
use svc_rewarder::{
    Folder, PolicyDocument, ProofFormat, SealedRun, SigningKey, Trust, TrustedKeys, Unwatched, artifacts,
};

use crate::{MEMORY_BYTES, SMALLEST, Scratch, cost, files, opened, written};

const NORTH: &str = "actor,quantity\nann,17\nbob,20\n";
const SOUTH: &str = "actor,quantity\nbob,1\nzoe,3\n";

#[test]
fn a_commitment_follows_from_the_content_of_the_files() {
    let scratch = Scratch::new();
    let first = written(&scratch.job(&[("north.csv", NORTH), ("south.csv", SOUTH)], SMALLEST));
    let mut job = scratch.job(&[("z.csv", SOUTH), ("a.csv", NORTH)], SMALLEST);
    let renamed = written(&job);
    // As the inputs of a node are named: uploads by their hashes, others by their paths.
    for (input, name) in job.inputs.iter_mut().zip([b3(blake3::hash(SOUTH.as_bytes()).as_bytes()), "2026/n".into()]) {
        input.name = name;
    }
    let uploaded = written(&job);
    for (what, other) in [("other names and another order", &renamed), ("partly uploaded", &uploaded)] {
        assert_eq!(other.1.commitment, first.1.commitment, "{what}");
        assert_eq!(other.1.bytes, first.1.bytes, "{what}");
    }
    let names = |disk: &Arc<dyn Disk>| String::from_utf8(files(&**disk)[INPUT_NAMES].clone()).expect("text");
    assert!(names(&first.0).contains("north.csv") && names(&renamed.0).contains("z.csv"), "names stand beside it");
    let partly = names(&uploaded.0);
    assert!(partly.contains("2026/n") && partly.matches("name").count() == 1, "{partly}");
    assert!(!String::from_utf8_lossy(&files(&*first.0)[MANIFEST]).contains("north"));
    let other = written(&scratch.job(&[("north.csv", SOUTH), ("south.csv", &format!("{NORTH}\n"))], SMALLEST));
    assert_ne!(other.1.commitment, first.1.commitment, "one byte more is another file");
}

#[test]
fn the_spelling_of_an_envelope_is_not_in_the_commitment() {
    let scratch = Scratch::new();
    let key = SigningKey::generate().expect("made");
    let keys = TrustedKeys { threshold: 1, keys: vec![key.public()] };
    let trust = Trust { keys: Some(&keys), allows_unsigned: false };
    let mut envelope = Envelope::around(SMALLEST.as_bytes());
    envelope.sign(&key).expect("signed");
    // As a file has it, and as a client puts it into a request.
    let pretty = envelope.to_text();
    let packed = serde_json::to_string(&envelope).expect("JSON");
    let mut job = scratch.job(&[("u.csv", NORTH)], SMALLEST);
    let mut commitments = [pretty, packed].map(|text| {
        job.policy = PolicyDocument::read(text.as_bytes(), trust).expect("signed");
        let (disk, seal) = written(&job);
        let found = verify(&opened(&disk), &job.inputs, &cost(1), &Unwatched).expect("compared");
        assert!(found.is_clean(), "{found:?}");
        seal.commitment
    });
    commitments.sort_unstable();
    assert_eq!(commitments[0], commitments[1]);
}

fn of_before(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/offline/format_1").join(name)
}

fn run_of_before(name: &str) -> SealedRun {
    let folder = Folder::open(of_before(name)).expect("a folder");
    SealedRun::open(Arc::new(folder), MEMORY_BYTES, 1).expect("a run")
}

fn raw(names: &[&str]) -> Vec<InputFile> {
    names.iter().map(|name| InputFile::new(*name, of_before(name))).collect()
}

#[test]
fn runs_of_the_format_before_verify_and_prove_what_they_did() {
    let keys = std::fs::read(of_before("keys.json")).expect("there");
    let keys = TrustedKeys::parse(&keys).expect("keys");
    for (name, inputs) in [("run", &["november.csv", "more.csv"][..]), ("fix", &["right.csv"])] {
        let run = run_of_before(name);
        assert_eq!(run.manifest().format, FORMAT_WITH_NAMES, "{name}");
        let found = verify(&run, &raw(inputs), &cost(1), &Unwatched).expect("compared");
        assert!(found.is_clean(), "{name}: {found:?}");
        run.check_signatures(&keys).expect("by these keys");
    }
    let loaded = run_of_before("run").load().expect("whole");
    for (file, actor, format) in [("oz.json", "ann", ProofFormat::Oz), ("sum.json", "zed", ProofFormat::Sum)] {
        let text = std::fs::read(of_before(file)).expect("there");
        let expected: ActorProofs = serde_json::from_slice(&text).expect("a proof");
        assert_eq!(loaded.prove(actor, format, None).expect("a proof"), expected, "{file}");
    }
}

#[test]
fn a_run_of_the_format_before_is_corrected_in_the_present_one() {
    for name in ["run", "fix"] {
        let paid = run_of_before(name);
        let before = &paid.load().expect("whole").computed;
        let correction = Correction::of(before, paid.commitment(), Bounds::default()).expect("it adds up");
        let basis = Basis {
            format: FORMAT,
            epoch: "2026-11-again".parse().expect("a name"),
            correction: Some(correction),
            ..before.basis.clone()
        };
        let computed = settle(basis, 1, &Unwatched, ron_calculus::allocate).expect("computed");
        let disk: Arc<dyn Disk> = Arc::new(RamDisk::new());
        let seal = artifacts::write(&computed, &*disk, 1, &Unwatched).expect("written");
        assert_eq!(seal.manifest.format, FORMAT);
        assert!(seal.manifest.inputs.iter().all(|facts| facts.name.is_none()), "{name}");
        let found = verify(&opened(&disk), &[], &cost(1), &Unwatched).expect("compared");
        assert!(found.is_clean(), "{name}: {found:?}");
    }
}

#[test]
fn explanation_and_proof_of_a_correction_agree_and_show_what_is_taken_back() {
    let loaded = run_of_before("fix").load().expect("whole");
    let before = run_of_before("run").load().expect("whole");
    let mut taken_back = 0;
    for actor in ["ann", "bob", "zoë", "0x00000000000000000000000000000000000000Ab", "nobody"] {
        let proven = loaded.prove(actor, ProofFormat::Sum, None).expect("a proof");
        let explained = loaded.explain(actor).expect("explained");
        let had = before.prove(actor, ProofFormat::Sum, None).expect("a proof");
        for ((asset, proof), had) in explained.assets.iter().zip(&proven.proofs).zip(&had.proofs) {
            let corrected = asset.correction.expect("what it does");
            assert_eq!((&asset.asset, corrected.pay), (&proof.asset, proof.amount), "{actor}");
            assert_eq!(corrected.paid_before, had.amount, "{actor}");
            let has = corrected.paid_before.0 + corrected.pay.0 - corrected.take_back.0;
            assert_eq!(has, asset.amount.0 + corrected.carried.0, "{actor}");
            taken_back += corrected.take_back.0;
        }
    }
    assert_eq!(taken_back, 286, "as the run says");
}

#[test]
fn a_manifest_has_names_only_where_its_format_has_them() {
    let manifest = run_of_before("run").manifest().clone();
    assert!(manifest.is_readable());
    for format in [0, FORMAT, FORMAT + 1] {
        assert!(!svc_rewarder::Manifest { format, ..manifest.clone() }.is_readable(), "{format}");
    }
    let inputs = manifest.inputs.iter().map(svc_rewarder::manifest::InputFacts::nameless).collect();
    let nameless = svc_rewarder::Manifest { inputs, ..manifest };
    assert!(!nameless.is_readable() && svc_rewarder::Manifest { format: FORMAT, ..nameless }.is_readable());
}
