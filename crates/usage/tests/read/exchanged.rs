//! Files that somebody writes to while they are read: what is counted is what the hash names.

use std::fs::FileTimes;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use ron_usage::Progress;

use crate::rows::{Format, Row, encode, file, limits};

/// Rows whose quantities alone differ from those of another owner.
fn rows(count: usize, id_bytes: usize, quantity: u128) -> Vec<Row> {
    let row = |index: usize| Row {
        actor: format!("{index:0>id_bytes$}"),
        metric: "usage".to_owned(),
        group: None,
        asset: None,
        quantity,
    };
    (0..count).map(row).collect()
}

/// Puts other bytes into the file after one piece, and what was there back after another; its time stays.
struct Exchange {
    path: PathBuf,
    contents: [Vec<u8>; 2],
    pieces: AtomicUsize,
    out_at: usize,
    back_at: usize,
}

impl Exchange {
    fn put(&self, content: &[u8]) {
        let before = std::fs::metadata(&self.path).expect("there").modified().expect("a time");
        std::fs::write(&self.path, content).expect("written");
        let file = std::fs::OpenOptions::new().write(true).open(&self.path).expect("opened");
        file.set_times(FileTimes::new().set_modified(before)).expect("set back");
    }
}

impl Progress for Exchange {
    fn read(&self, _bytes: u64, _of: u64) -> bool {
        let piece = self.pieces.fetch_add(1, Ordering::Relaxed);
        if piece == self.out_at {
            self.put(&self.contents[1]);
        }
        if piece == self.back_at {
            self.put(&self.contents[0]);
        }
        true
    }
}

/// Small files are one part of the hash, large ones many; the exchange comes at every piece, for good or for a while.
#[test]
fn what_is_counted_of_a_file_that_is_exchanged_meanwhile_is_what_its_hash_names() {
    for (format, count, id_bytes) in [
        (Format::ParquetText, 640, 8),
        (Format::ParquetText, 640, 1000),
        (Format::ParquetDecimal, 640, 1000),
        (Format::Csv, 3000, 1000),
    ] {
        let contents = [11, 99].map(|quantity| encode(&rows(count, id_bytes, quantity), format));
        assert_eq!(contents[0].len(), contents[1].len(), "only the quantities differ");
        let named = blake3::hash(&contents[0]);
        let (mut refused, mut whole) = (0, 0);
        for (out_at, back_at) in (0..10)
            .step_by(if count > 640 { 9 } else { 1 })
            .flat_map(|out_at| [(out_at, out_at + 1), (out_at, usize::MAX)])
        {
            let folder = tempfile::tempdir().expect("a folder");
            let input = file(folder.path(), "u", &contents[0]);
            let path = input.path.clone();
            let exchange = Exchange { path, contents: contents.clone(), pieces: AtomicUsize::new(0), out_at, back_at };
            match ron_usage::read(&[input], &limits(1), &exchange) {
                Ok(read) if read.hashes[0] == named => {
                    whole += 1;
                    let is_named = read.totals == crate::rows::reference(&rows(count, id_bytes, 11));
                    assert!(is_named, "{format:?}: rows of another file were counted, exchanged at {out_at}");
                }
                Ok(_) => refused += 1,
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().contains("changed while it was read"), "{format:?}: {error}");
                }
            }
        }
        assert!(refused > 0, "{format:?}: no exchange was found out; {whole} were without effect");
    }
}
