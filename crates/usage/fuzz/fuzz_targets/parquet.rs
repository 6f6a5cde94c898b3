//! Any bytes between the magic ones of Parquet, and a whole table with some of its bytes changed, are a table of totals
//! or a refusal. The library's panics are caught by the reader, so the hook of the fuzzer that aborts on them is taken
//! out.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use ron_calculus::{Slot, Totals};

const MEMORY_BYTES: u64 = 64 << 20;
/// Changes in one table.
const EDITS_MAX: usize = 16;

/// A table as it is written: chance alone finds no footer.
static TABLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let slot = |metric: &str, group: Option<&str>| Slot {
        metric: metric.to_owned(),
        group: group.map(str::to_owned),
        asset: None,
    };
    let mut totals = Totals::new(vec![slot("storage", None), slot("traffic", Some("north"))]).expect("sorted");
    for actor in ["ann", "bob", "cyd"] {
        assert!(totals.push(actor, &[(0, 5), (1, u128::MAX >> 1)]));
    }
    let mut written = Vec::new();
    ron_usage::write_totals(&totals, &mut written).expect("memory");
    written
});

fn check(whole: Vec<u8>) {
    if let Ok(totals) = ron_usage::read_totals(whole.into(), MEMORY_BYTES) {
        let mut written = Vec::new();
        ron_usage::write_totals(&totals, &mut written).expect("memory");
        let again = ron_usage::read_totals(written.into(), MEMORY_BYTES).expect("what was written is read");
        assert_eq!(again.content_hash(), totals.content_hash());
    }
}

fuzz_target!(init: std::panic::set_hook(Box::new(|_| ())), |bytes: &[u8]| {
    check([b"PAR1", bytes, b"PAR1"].concat());
    // Each three bytes are a place, from the end where the footer is, and what to change there.
    let mut edited = TABLE.clone();
    for edit in bytes.chunks_exact(3).take(EDITS_MAX) {
        let place = usize::from(u16::from_be_bytes([edit[0], edit[1]])) % edited.len();
        let at = edited.len() - 1 - place;
        edited[at] ^= edit[2];
    }
    check(edited);
});
