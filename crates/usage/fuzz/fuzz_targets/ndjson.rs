//! Any bytes after a brace, and any bytes that claim to be packed, are totals or a refusal.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ron_usage::{InputFile, Limits, Progress, read};

struct GoOn;

impl Progress for GoOn {
    fn read(&self, bytes: u64, of: u64) -> bool {
        bytes <= of
    }
}

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("u");
    for magic in [b"{".as_slice(), b"\x1f\x8b", b"\x28\xb5\x2f\xfd"] {
        std::fs::write(&path, [magic, bytes].concat()).expect("a scratch folder");
        let files = [InputFile { name: "u".to_owned(), path: path.clone() }];
        let limits = Limits { memory_bytes: 64 << 20, threads: 1, spill: None, unpacked_bytes_max: 64 << 20 };
        if let Ok(read) = read(&files, &limits, &GoOn) {
            let mut written = Vec::new();
            ron_usage::write_totals(&read.totals, &mut written).expect("memory");
            let again = ron_usage::read_totals(written.into(), 64 << 20).expect("what was written is read");
            assert_eq!(again.content_hash(), read.totals.content_hash());
        }
    }
});
