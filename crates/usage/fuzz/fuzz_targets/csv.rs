//! Any bytes below a header are totals or a refusal, and the same for one thread and two.

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
    std::fs::write(&path, [b"actor,quantity,group\n", bytes].concat()).expect("a scratch folder");
    let files = [InputFile { name: "u".to_owned(), path }];
    let read = |threads| {
        let limits = Limits { memory_bytes: 64 << 20, threads, spill: None, unpacked_bytes_max: 64 << 20 };
        read(&files, &limits, &GoOn).map(|read| read.totals).map_err(|error| error.to_string())
    };
    assert_eq!(read(1), read(2));
});
