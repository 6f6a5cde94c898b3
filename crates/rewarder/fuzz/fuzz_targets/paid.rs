//! Any bytes as `paid.ndjson` are amounts or a refusal, and amounts that are written are read again.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use svc_rewarder::correct::{Bounds, Correction, read_paid, write_paid};

fuzz_target!(|bytes: &[u8]| {
    if let Ok((roster, paid)) = read_paid(bytes) {
        assert!(paid.iter().all(|(_, amounts)| amounts.len() == roster.len()));
        let epoch = "e".parse().expect("a name");
        let (bounds, reserved) = (Bounds::default(), BTreeMap::new());
        let hashes = ([0; 32], [0; 32]);
        let (run_key, commitment) = hashes;
        let correction = Correction { epoch, run_key, commitment, bounds, reserved, roster, paid };
        let mut written = Vec::new();
        write_paid(&correction, &mut written).expect("memory");
        let (roster, paid) = read_paid(&written).expect("what was written is read");
        assert!(roster == correction.roster && paid == correction.paid);
    }
});
