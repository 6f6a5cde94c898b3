//! The readers of usage files: rows as CSV and NDJSON, packed or not, and the Parquet tables of a run.

use std::io::Write as _;
use std::sync::LazyLock;

use flate2::Compression;
use flate2::write::GzEncoder;
use ron_calculus::{Slot, Totals};
use ron_usage::{InputError, InputFile, Limits, Progress};

use crate::{Seed, Target};

/// Targets of the crate.
pub const TARGETS: [Target; 3] = [
    Target { name: "usage_csv", body: csv, is_read: is_csv, seeds: csv_seeds },
    Target { name: "usage_ndjson", body: ndjson, is_read: is_ndjson, seeds: ndjson_seeds },
    Target { name: "usage_parquet", body: parquet, is_read: is_parquet, seeds: parquet_seeds },
];

const MEMORY_BYTES: u64 = 64 << 20;

struct GoOn;

impl Progress for GoOn {
    fn read(&self, bytes: u64, of: u64) -> bool {
        bytes <= of
    }
}

/// The totals of one file with this content.
fn totals_of(content: &[u8], threads: usize) -> Result<Totals, InputError> {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("u");
    std::fs::write(&path, content).expect("a scratch folder");
    let files = [InputFile::new("u", path)];
    let limits = Limits { memory_bytes: MEMORY_BYTES, threads, spill: None, unpacked_bytes_max: MEMORY_BYTES };
    ron_usage::read(&files, &limits, &GoOn).map(|read| read.totals)
}

fn has_actors(totals: Result<Totals, InputError>) -> bool {
    totals.is_ok_and(|totals| !totals.roster().is_empty())
}

fn below_header(rows: &[u8]) -> Vec<u8> {
    [b"actor,quantity,group\n", rows].concat()
}

/// Any bytes below a header are totals or a refusal, and the same for one thread and two.
pub fn csv(bytes: &[u8]) {
    let outcome = |threads| totals_of(&below_header(bytes), threads).map_err(|error| error.to_string());
    assert_eq!(outcome(1), outcome(2));
}

fn is_csv(bytes: &[u8]) -> bool {
    has_actors(totals_of(&below_header(bytes), 1))
}

fn csv_seeds() -> Vec<Seed> {
    vec![
        ("rows.seed", b"ann,5,north\nbob,7,south\nann,1,\n".to_vec()),
        ("quoted.seed", b"\"ann, of \"\"x\"\"\",340282366920938463463,\"north\"\r\nbob,0,north\r\n".to_vec()),
    ]
}

/// First bytes of a line of NDJSON, of gzip and of zstd.
const MAGICS: [&[u8]; 3] = [b"{", b"\x1f\x8b", b"\x28\xb5\x2f\xfd"];

/// Any bytes after a brace, and any bytes that claim to be packed, are totals or a refusal.
pub fn ndjson(bytes: &[u8]) {
    for magic in MAGICS {
        if let Ok(totals) = totals_of(&[magic, bytes].concat(), 1) {
            check_written(&totals);
        }
    }
}

fn is_ndjson(bytes: &[u8]) -> bool {
    MAGICS.iter().any(|magic| has_actors(totals_of(&[magic, bytes].concat(), 1)))
}

fn ndjson_seeds() -> Vec<Seed> {
    const LINES: &str = r#"{"actor":"ann","quantity":5,"metric":"storage"}
{"actor":"bob","quantity":"7","metric":"traffic","group":"north"}
{"actor":"cyd","quantity":340282366920938463463,"asset":"credits"}
"#;
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(LINES.as_bytes()).expect("memory takes all bytes");
    let gzip = gzip.finish().expect("memory takes all bytes");
    let zstd = zstd::bulk::compress(LINES.as_bytes(), 1).expect("memory takes all bytes");
    let behind = |magic: &[u8], whole: &[u8]| whole.strip_prefix(magic).expect("its own first bytes").to_vec();
    vec![
        ("lines.seed", behind(MAGICS[0], LINES.as_bytes())),
        ("one-line.seed", behind(MAGICS[0], br#"{"actor":"ann","quantity":5}"#)),
        ("gzip.seed", behind(MAGICS[1], &gzip)),
        ("zstd.seed", behind(MAGICS[2], &zstd)),
    ]
}

/// First and last bytes of Parquet.
const PARQUET_MAGIC: &[u8] = b"PAR1";
/// Changes in one table.
const EDITS_MAX: usize = 16;

/// A table as it is written: chance alone finds no footer.
static TABLE: LazyLock<Vec<u8>> = LazyLock::new(|| written(&table_totals()));

fn table_totals() -> Totals {
    let slot = |metric: &str, group: Option<&str>| Slot {
        metric: metric.to_owned(),
        group: group.map(str::to_owned),
        asset: None,
    };
    let mut totals = Totals::new(vec![slot("storage", None), slot("traffic", Some("north"))]).expect("sorted");
    for actor in ["ann", "bob", "cyd"] {
        assert!(totals.push(actor, &[(0, 5), (1, u128::MAX >> 1)]));
    }
    totals
}

/// Any bytes between the magic ones of Parquet, and a whole table with some of its bytes changed, are a table of totals
/// or a refusal.
pub fn parquet(bytes: &[u8]) {
    check_table(between_magics(bytes));
    // Each three bytes are a place, from the end where the footer is, and what to change there.
    let mut edited = TABLE.clone();
    for edit in bytes.chunks_exact(3).take(EDITS_MAX) {
        let place = usize::from(u16::from_be_bytes([edit[0], edit[1]])) % edited.len();
        let at = edited.len() - 1 - place;
        edited[at] ^= edit[2];
    }
    check_table(edited);
}

/// Takes out the hook that aborts the fuzzer on a panic: the reader catches those of the library beneath it.
pub fn silence_panics() {
    std::panic::set_hook(Box::new(|_| ()));
}

fn between_magics(bytes: &[u8]) -> Vec<u8> {
    [PARQUET_MAGIC, bytes, PARQUET_MAGIC].concat()
}

fn check_table(whole: Vec<u8>) {
    if let Ok(totals) = ron_usage::read_totals(whole.into(), MEMORY_BYTES) {
        check_written(&totals);
    }
}

/// Totals are the same once written and read again.
fn check_written(totals: &Totals) {
    let again = ron_usage::read_totals(written(totals).into(), MEMORY_BYTES).expect("what was written is read");
    assert_eq!(again.content_hash(), totals.content_hash());
}

fn written(totals: &Totals) -> Vec<u8> {
    let mut written = Vec::new();
    ron_usage::write_totals(totals, &mut written).expect("memory takes all bytes");
    written
}

fn is_parquet(bytes: &[u8]) -> bool {
    ron_usage::read_totals(between_magics(bytes).into(), MEMORY_BYTES).is_ok()
}

fn parquet_seeds() -> Vec<Seed> {
    let inner = |whole: &[u8]| {
        let inner = whole.strip_prefix(PARQUET_MAGIC).and_then(|rest| rest.strip_suffix(PARQUET_MAGIC));
        inner.expect("Parquet begins and ends so").to_vec()
    };
    let mut one_slot =
        Totals::new(vec![Slot { metric: "usage".to_owned(), group: None, asset: None }]).expect("sorted");
    assert!(one_slot.push("ann", &[(0, 1)]));
    vec![("two-slots.seed", inner(&TABLE)), ("one-slot.seed", inner(&written(&one_slot)))]
}
