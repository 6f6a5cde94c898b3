//! Any bytes as `paid.ndjson` are amounts or a refusal, and amounts that are written are read again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use svc_rewarder::correct::{Correction, read_paid, write_paid};

fuzz_target!(|bytes: &[u8]| {
    if let Ok((roster, paid)) = read_paid(bytes) {
        assert!(paid.iter().all(|(_, amounts)| amounts.len() == roster.len()));
        let epoch = "e".parse().expect("a name");
        let correction = Correction { epoch, run_key: [0; 32], commitment: [0; 32], clawback_max: None, roster, paid };
        let mut written = Vec::new();
        write_paid(&correction, &mut written).expect("memory");
        let (roster, paid) = read_paid(&written).expect("what was written is read");
        assert!(roster == correction.roster && paid == correction.paid);
    }
});
