//! Any bytes between the magic ones of Parquet are a table of totals or a refusal. The library's panics are caught by
//! the reader, so the hook of the fuzzer that aborts on them is taken out.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(init: std::panic::set_hook(Box::new(|_| ())), |bytes: &[u8]| {
    let whole = [b"PAR1", bytes, b"PAR1"].concat();
    if let Ok(totals) = ron_usage::read_totals(whole.into(), 64 << 20) {
        let mut written = Vec::new();
        ron_usage::write_totals(&totals, &mut written).expect("memory");
        let again = ron_usage::read_totals(written.into(), 64 << 20).expect("what was written is read");
        assert_eq!(again.content_hash(), totals.content_hash());
    }
});
