//! What was signed is what is run.

use std::collections::BTreeMap;
use std::sync::Arc;

use ron_calculus::Units;
use ron_kernel::Deadline;

use crate::envelope::Envelope;
use crate::inputs::Inputs;
use crate::keys::{SigningKey, TrustedKeys};
use crate::service::request::{ComputeRequest, Grounds, InputRef};

const SIGNED: &str = r#"{"id":"demo","ruleset":1,"assets":[{"asset":"RON","pool":"1000","weights":{"usage":"1"}}]}"#;

#[tokio::test(start_paused = true)]
async fn a_request_fills_in_only_a_pool_that_the_signers_left_open() {
    let scratch = tempfile::tempdir().expect("a folder");
    std::fs::write(scratch.path().join("u.csv"), "actor,quantity\nann,1\n").expect("written");
    let key = SigningKey::generate().expect("made");
    let trusted = TrustedKeys { threshold: 1, keys: vec![key.public()] };
    let grounds = Grounds {
        inputs: &Arc::new(Inputs::nowhere()),
        inputs_dir: Some(scratch.path()),
        trusted: Some(&trusted),
        allows_unsigned: false,
        is_amnesia: false,
        memory_bytes: 64 << 20,
        threads: 1,
        deadline: Deadline::after(std::time::Duration::from_secs(60)),
    };
    let prepare = |policy: &str, pool: u128| {
        let mut envelope = Envelope::around(policy.as_bytes());
        envelope.sign(&key).expect("signed");
        let request = ComputeRequest {
            epoch: "e1".parse().expect("a name"),
            inputs: vec![InputRef::File { path: "u.csv".to_owned(), b3: None }],
            policy: envelope.to_text().into_bytes(),
            pools: BTreeMap::from([("RON".to_owned(), Units(pool))]),
            carry_from: None,
            unsigned: false,
            deadline: None,
        };
        request.prepare(&grounds).map(drop)
    };
    let refused = prepare(SIGNED, 1_000_000).expect_err("the signers gave a thousand");
    assert!(refused.detail.contains("signed as 1000"), "{refused}");
    prepare(SIGNED, 1_000).expect("the very pool");
    prepare(&SIGNED.replace("\"pool\":\"1000\",", ""), 1_000_000).expect("left open");
}
