//! Signed documents, manifests of runs and paid amounts.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ron_calculus::{Roster, Units};
use svc_rewarder::SigningKey;
use svc_rewarder::envelope::{CORRECTION_TYPE, Envelope};
use svc_rewarder::manifest::{
    AssetFacts, CorrectedFacts, CorrectsFacts, FORMAT, InputFacts, IntentFacts, Manifest, PolicyFacts, Roots, RunStatus,
};

use crate::Seed;

const POLICY: &[u8] =
    br#"{"id":"monthly","ruleset":1,"assets":[{"asset":"credits","pool":"1009","weights":{"usage":"1"}}]}"#;

/// A signed policy, a correction signed by two keys, and a policy that nobody has signed.
pub fn envelopes() -> Vec<Seed> {
    let signed = |mut envelope: Envelope, keys: &[u8]| {
        keys.iter().for_each(|number| envelope.sign(&key(*number)).expect("a document is signed"));
        envelope.to_text().into_bytes()
    };
    vec![
        ("policy.seed", signed(Envelope::around(POLICY), &[1])),
        ("correction.seed", signed(Envelope::of(CORRECTION_TYPE, br#"{"epoch":"2026-10"}"#), &[1, 2])),
        ("draft.seed", POLICY.to_vec()),
    ]
}

/// The key of a number, always the same.
fn key(number: u8) -> SigningKey {
    const PKCS8_HEAD: [u8; 16] =
        [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
    let document = STANDARD.encode([PKCS8_HEAD.as_slice(), &[number; 32]].concat());
    let label = "PRIVATE KEY";
    let pem = format!("-----BEGIN {label}-----\n{document}\n-----END {label}-----\n");
    SigningKey::from_pem(&pem).expect("any 32 bytes are a key")
}

/// An ordinary run, a correction of it, and a run in quarantine.
pub fn manifests() -> Vec<Seed> {
    let ordinary = ordinary();
    let correction = Manifest { corrects: Some(corrects()), ..ordinary.clone() };
    let quarantined = Manifest {
        status: RunStatus::Quarantined,
        reason: Some("conservation: credits".to_owned()),
        assets: Vec::new(),
        intents: Vec::new(),
        ..ordinary.clone()
    };
    let written = |manifest: &Manifest| manifest.to_bytes().expect("a manifest is written");
    vec![
        ("ordinary.seed", written(&ordinary)),
        ("corrected.seed", written(&correction)),
        ("quarantined.seed", written(&quarantined)),
    ]
}

fn hash(digit: char) -> String {
    digit.to_string().repeat(64)
}

fn ordinary() -> Manifest {
    let asset = AssetFacts {
        asset: "credits".to_owned(),
        pool: Units(1009),
        paid: Units(1000),
        delta: Units(9),
        payees: 2,
        roots: Roots { oz: Some(format!("0x{}", hash('a'))), sum: hash('b') },
        provable: Units(1000),
    };
    let policy = PolicyFacts {
        id: "monthly".to_owned(),
        hash: hash('c'),
        signed: true,
        signers: vec![key(1).public()],
        pools_overridden: BTreeMap::from([("credits".to_owned(), Units(1009))]),
    };
    Manifest {
        format: FORMAT,
        epoch: "2026-10".parse().expect("a name"),
        run_key: hash('d'),
        status: RunStatus::Computed,
        reason: None,
        ruleset: 1,
        policy,
        inputs: vec![InputFacts { b3: hash('e'), name: None, bytes: 300 }],
        content: hash('f'),
        rows: 12,
        actors: 3,
        carry: BTreeMap::from([("credits".to_owned(), Units(4))]),
        carry_from: Some(hash('0')),
        assets: vec![asset],
        artifacts: BTreeMap::from([("policy.json".to_owned(), hash('1'))]),
        intents: vec![IntentFacts { asset: "credits".to_owned(), count: 2, paid: Units(1000), taken_back: Units(0) }],
        corrects: None,
        proof: None,
    }
}

fn corrects() -> CorrectsFacts {
    let asset = CorrectedFacts {
        asset: "credits".to_owned(),
        entitled: Units(1000),
        paid_before: Units(990),
        pay: Units(20),
        take_back: Units(10),
        carried: Units(0),
        left_over: Units(9),
    };
    CorrectsFacts {
        epoch: "2026-09".parse().expect("a name"),
        run_key: hash('2'),
        commitment: hash('3'),
        clawback_max: Some(Units(100)),
        takes_left_over: true,
        reserved: BTreeMap::from([("credits".to_owned(), Units(1))]),
        assets: vec![asset],
    }
}

/// What three actors were paid in two assets, and one actor in one.
pub fn paid() -> Vec<Seed> {
    let amounts = |asset: &str, amounts: &[u128]| (asset.to_owned(), amounts.to_vec());
    let three = [amounts("credits", &[1, 0, u128::MAX >> 1]), amounts("tokens", &[7, 8, 9])];
    vec![
        ("three-actors.seed", paid_to(&["ann", "bob", "cyd"], three.to_vec())),
        ("one-actor.seed", paid_to(&["ann"], vec![amounts("credits", &[1000])])),
    ]
}

fn paid_to(actors: &[&str], paid: Vec<(String, Vec<u128>)>) -> Vec<u8> {
    let mut roster = Roster::default();
    actors.iter().for_each(|actor| assert!(roster.push(actor), "the actors are in order"));
    super::written(roster, paid)
}
