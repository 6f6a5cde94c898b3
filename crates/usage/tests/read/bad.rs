//! What cannot be counted is refused, with the file, the row, the column and the reason.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use ron_usage::{InputError, Limits, Progress};

use crate::rows::{Format, GoOn, file, gzip, limits, parquet_of, read_bytes};

fn refused(name: &str, bytes: &[u8]) -> String {
    let words = |threads| match read_bytes(name, bytes, &limits(threads)).expect_err(name) {
        InputError::BadRows { count, first } => {
            let row = |bad: &ron_usage::BadRow| {
                format!("{}:{} {}: {}", bad.file, bad.row, bad.column.as_deref().unwrap_or("-"), bad.reason)
            };
            format!("{count} bad; {}", first.iter().map(row).collect::<Vec<_>>().join("; "))
        }
        other => other.to_string(),
    };
    let one = words(1);
    assert_eq!(words(2), one, "it depends on threads");
    one
}

#[test]
fn bad_rows_of_text_are_named() {
    let rows = [
        ("a,1", ""),
        (",1", "actor: empty"),
        ("a,", "quantity: empty"),
        ("a,NaN", "quantity: is not a number in decimal digits"),
        ("a,-1", "quantity: is negative"),
        ("a,+1", "quantity: has a sign"),
        ("a,1.0", "quantity: is not written as a whole number"),
        ("a,1e3", "quantity: is not written as a whole number"),
        ("a, 1", "quantity: has spaces around it"),
        ("a,340282366920938463463374607431768211456", "quantity: does not fit into 128 bits"),
        ("a", "-: 1 fields instead of 2"),
        ("a,1,2", "-: 3 fields instead of 2"),
        ("a\"\",1", "-: a quote within a field that is not quoted"),
    ];
    let csv: String =
        std::iter::once("actor,quantity").chain(rows.iter().map(|row| row.0)).collect::<Vec<_>>().join("\r\n\n");
    let expected = rows.iter().enumerate().filter(|(_, row)| !row.1.is_empty());
    let expected: Vec<String> = expected.map(|(index, row)| format!("u.csv:{} {}", index + 1, row.1)).collect();
    assert_eq!(refused("u.csv", csv.as_bytes()), format!("12 bad; {}", expected.join("; ")));
    let long = format!("actor,quantity\n{},1\n", "x".repeat(1025));
    assert_eq!(refused("u", long.as_bytes()), "1 bad; u:1 actor: 1025 bytes; at most 1024");
    let wild = b"actor,quantity,group\na,1,\n\xff,1,\nb,1,\xc3(\n";
    assert_eq!(refused("u", wild), "2 bad; u:2 actor: not UTF-8 at byte 0; u:3 group: not UTF-8 at byte 0");
    let json = b"{\"actor\":\"a\",\"quantity\":1}\n\n{\"actor\":\"a\",\"quantity\":1.5}\n{\"actor\":\"a\"}\n";
    let words = refused("u.ndjson", json);
    assert!(words.starts_with("2 bad; u.ndjson:2 quantity: is not written as a whole number; u.ndjson:3 -: missing"));
}

#[test]
fn all_bad_rows_are_counted_and_the_first_hundred_listed_in_order() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let mut text = "actor,quantity\n".to_owned();
    for row in 0..100_000 {
        text.push_str(if row % 10 == 3 { "abc,-1\n" } else { "abcdefgh,12\n" });
    }
    let files: Vec<_> = ["one", "two"].iter().map(|name| file(folder.path(), name, text.as_bytes())).collect();
    for threads in [1, 8] {
        let refused = ron_usage::read(&files, &limits(threads), &GoOn).expect_err("bad rows");
        let InputError::BadRows { count, first } = refused else { panic!("{refused}") };
        assert_eq!((count, first.len()), (20_000, 100));
        let expected = (0..100).map(|index| ("one", index * 10 + 4));
        assert!(first.iter().map(|bad| (bad.file.as_str(), bad.row)).eq(expected), "{threads} threads: {first:?}");
    }
    let last = format!("{text}abc,x\n");
    let good = text.replace("-1", "1");
    let files =
        [file(folder.path(), "good", good.as_bytes()), file(folder.path(), "last", last.replace("-1", "1").as_bytes())];
    let Err(InputError::BadRows { count: 1, first }) = ron_usage::read(&files, &limits(2), &GoOn) else {
        panic!("one")
    };
    assert_eq!((first[0].file.as_str(), first[0].row), ("last", 100_001));
}

#[test]
fn wrong_columns_are_named() {
    for (text, reason) in [
        ("actor,quantity,memo\n", "u: column 3 is not known"),
        ("actor,amount\n", "u: column 2 is not known"),
        ("actor\na\n", "u: column `quantity` is missing"),
        ("actor,quantity,actor\n", "u: column `actor` occurs twice"),
        ("Actor,quantity\n", "u: column 1 is not known"),
        ("a,1\nb,2\n", "u: column 1 is not known"),
        ("\u{0}\u{1}garbage", "u: column"),
    ] {
        let words = refused("u", text.as_bytes());
        assert!(words.starts_with(reason), "{text}: {words}");
    }
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let columns = columns.into_iter().map(|(name, column)| (name, column, true));
    parquet_of(&RecordBatch::try_from_iter_with_nullable(columns).expect("equal lengths"), Format::ParquetText)
}

#[test]
fn bad_rows_and_columns_of_parquet_are_named() {
    let actors = || Arc::new(StringArray::from(vec![Some("a"), None, Some(""), Some("b")])) as ArrayRef;
    let good = || Arc::new(StringArray::from(vec!["a", "b", "c", "d"])) as ArrayRef;
    let numbers = || Arc::new(Int64Array::from(vec![Some(1), Some(2), Some(3), Some(-4)])) as ArrayRef;
    let words = refused("u.parquet", &batch(vec![("actor", actors()), ("quantity", numbers())]));
    let expected = "3 bad; u.parquet:2 actor: null; u.parquet:3 actor: empty; u.parquet:4 quantity: is negative";
    assert_eq!(words, expected);
    let nulls = Arc::new(Int64Array::from(vec![Some(1), None, Some(3), None])) as ArrayRef;
    let words = refused("u", &batch(vec![("actor", good()), ("quantity", nulls)]));
    assert_eq!(words, "2 bad; u:2 quantity: null; u:4 quantity: null");
    let text = Arc::new(StringArray::from(vec!["1", "1.5", " 3", "04"])) as ArrayRef;
    let words = refused("u", &batch(vec![("actor", good()), ("quantity", text), ("metric", actors())]));
    assert!(words.starts_with("2 bad; u:2 quantity: is not") && words.contains("u:3 quantity: has spaces"), "{words}");
    let words = refused("u", &batch(vec![("actor", good()), ("quantity", good()), ("metric", actors())]));
    assert!(words.starts_with("4 bad"), "{words}");
    let floats = Arc::new(Float64Array::from(vec![1.0, f64::NAN, 3.0, 4.0])) as ArrayRef;
    let words = refused("u", &batch(vec![("actor", good()), ("quantity", floats)]));
    assert!(words.contains("`quantity` holds floats"), "{words}");
    let words = refused("u", &batch(vec![("actor", numbers()), ("quantity", numbers())]));
    assert!(words.contains("`actor` has type Int64"), "{words}");
    let words = refused("u", &batch(vec![("actor", good()), ("quantity", numbers()), ("x", numbers())]));
    assert!(words.contains("column 3 is not known"), "{words}");
}

/// Whoever may have a file counted need not be one who may read it.
#[test]
fn no_error_shows_what_stands_in_a_file() {
    let secret = "hunter2";
    for (name, text) in [
        ("u", format!("{secret},quantity\na,1\n")),
        ("u", format!("actor,quantity\na,{secret}\nb, {secret}\n{secret},-7{secret}\n")),
        ("u", format!("actor,quantity\n{secret},x,{secret}\n\"{secret}\"{secret},1\n")),
        ("u", format!("root:{secret}:0:0\n{secret}\n")),
        ("u", format!("{{\"{secret}\":1}}\n{{\"actor\":\"a\",\"quantity\":\"{secret}\"}}\n")),
        ("u", format!("{{\"actor\":[\"{secret}\"],\"quantity\":1}}\n{{\"actor\":\"a\",\"quantity\":{secret}}}\n")),
        ("u", format!("{{\"actor\":\"{secret}\",\"quantity\":1,\"metric\":{{\"{secret}\":1}}}}\n{{{secret}\n")),
        ("u", format!("actor,quantity\n{secret},{max}\n{secret},1\n", max = u128::MAX)),
        ("u.parquet", secret.to_owned()),
    ] {
        let words = read_bytes(name, text.as_bytes(), &limits(1)).expect_err(&text).to_string();
        assert!(!words.contains(secret), "{words}");
        if let Err(InputError::BadRows { first, .. }) = read_bytes(name, text.as_bytes(), &limits(1)) {
            assert!(!format!("{first:?}").contains(secret), "{first:?}");
        }
    }
    let words = refused("u", &batch(vec![("hunter2", Arc::new(Int64Array::from(vec![-7])) as ArrayRef)]));
    assert!(!words.contains(secret), "{words}");
}

#[test]
fn a_file_that_was_replaced_after_it_was_accepted_is_not_read() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let (path, other) = (folder.path().join("u.csv"), folder.path().join("secret"));
    let content = "actor,quantity\na,1\n";
    let identity = || ron_usage::FileIdentity::of(&std::fs::metadata(&path).expect("there"));
    std::fs::write(&path, content).expect("written");
    std::fs::write(&other, content).expect("written");
    let accepted = ron_usage::InputFile { accepted: Some(identity()), ..ron_usage::InputFile::new("u.csv", &path) };
    let read = || ron_usage::read(std::slice::from_ref(&accepted), &limits(2), &GoOn);
    assert_eq!(read().expect("as accepted").rows, 1);
    std::fs::remove_file(&path).expect("removed");
    std::os::unix::fs::symlink(&other, &path).expect("linked");
    let refused = read().expect_err("a link to another file, which holds the same");
    assert!(refused.to_string().contains("not the file that was accepted"), "{refused}");
    std::fs::remove_file(&path).expect("removed");
    std::fs::write(&path, format!("{content}b,1\n")).expect("written");
    assert!(read().is_err(), "another file under the same name");
}

#[test]
fn nothing_is_fine() {
    let empty = batch(vec![
        ("actor", Arc::new(StringArray::from(Vec::<&str>::new())) as ArrayRef),
        ("quantity", Arc::new(Int64Array::from(Vec::<i64>::new())) as ArrayRef),
    ]);
    let zipped = gzip(b"");
    for bytes in [
        b"".as_slice(),
        b"actor,quantity",
        b"actor,quantity\n",
        b"\n\n",
        b"\xef\xbb\xbfactor,quantity\r\n",
        &empty,
        &zipped,
    ] {
        let read = read_bytes("u", bytes, &limits(2)).expect("fine");
        assert!(read.rows == 0 && read.totals.roster().is_empty() && read.totals.slots().is_empty(), "{bytes:?}");
    }
    assert_eq!(ron_usage::read(&[], &limits(2), &GoOn).expect("no files").rows, 0);
    assert!(refused("u.parquet", b"").contains("Parquet"));
}

#[test]
fn totals_past_128_bits_name_the_first_actor() {
    let most = u128::MAX;
    let text = format!("actor,quantity\nb,{most}\na,{most}\nb,1\na,1\nc,1\n");
    for threads in [1, 2] {
        let refused = read_bytes("u", text.as_bytes(), &limits(threads)).expect_err("overflow");
        assert!(
            matches!(&refused, InputError::Overflow { actor, metric } if actor == "a" && metric == "usage"),
            "{refused}"
        );
    }
}

#[test]
fn what_unpacks_without_end_is_refused() {
    let zeros = vec![b'\n'; 4 << 20];
    let bombs = [gzip(&zeros), zstd::encode_all(zeros.as_slice(), 1).expect("memory")];
    for bomb in bombs {
        assert!(bomb.len() < 1 << 20);
        let small = Limits { unpacked_bytes_max: 1 << 20, ..limits(2) };
        let refused = read_bytes("bomb", &bomb, &small).expect_err("too much");
        assert!(matches!(&refused, InputError::TooMuch(reason) if reason.contains("bomb: unpacks")), "{refused}");
    }
    let actors = Arc::new(StringArray::from(vec!["x".repeat(1000); 5000])) as ArrayRef;
    let quantities = Arc::new(Int64Array::from(vec![1; 5000])) as ArrayRef;
    let bomb = batch(vec![("actor", actors), ("quantity", quantities)]);
    let small = Limits { unpacked_bytes_max: 1 << 20, ..limits(2) };
    assert!(bomb.len() < 300_000);
    let refused = read_bytes("bomb", &bomb, &small).expect_err("too much");
    assert!(matches!(&refused, InputError::TooMuch(reason) if reason.contains("bomb: unpacks")), "{refused}");
}

#[test]
fn a_line_without_end_is_refused() {
    let mut text = b"actor,quantity\na,1\n\"".to_vec();
    text.resize(3 << 20, b'x');
    let words = refused("u", &text);
    assert!(words.contains("longer than 1048576 bytes"), "{words}");
}

#[test]
fn damage_of_packed_files_is_told_apart_from_a_failing_disk() {
    let whole = gzip("actor,quantity\na,1\n".repeat(500).as_bytes());
    for bytes in [&whole[..whole.len() - 3], &whole[..12], &[&whole[..], b"more"].concat()] {
        let refused = read_bytes("u.csv.gz", bytes, &limits(2)).expect_err("damaged");
        assert!(matches!(refused, InputError::BadFile { .. }), "{refused}");
    }
    let missing = ron_usage::InputFile::new("gone", "does/not/exist");
    let refused = ron_usage::read(&[missing], &limits(2), &GoOn).expect_err("gone");
    assert!(matches!(refused, InputError::Io { .. }), "{refused}");
    let packed = gzip(&batch(vec![("actor", Arc::new(StringArray::from(vec!["a"])) as ArrayRef)]));
    assert!(refused_words(&packed).contains("its own compression"));
}

fn refused_words(bytes: &[u8]) -> String {
    read_bytes("u", bytes, &limits(1)).expect_err("refused").to_string()
}

#[test]
fn work_stops_when_asked() {
    struct Stop;
    impl Progress for Stop {
        fn read(&self, bytes: u64, of: u64) -> bool {
            bytes > of
        }
    }
    let folder = tempfile::tempdir().expect("a scratch folder");
    let file = file(folder.path(), "u", b"actor,quantity\na,1\n");
    let stopped = ron_usage::read(&[file], &limits(2), &Stop).expect_err("stopped");
    assert!(matches!(stopped, InputError::Stopped), "{stopped}");
}

#[test]
fn too_many_slots_are_refused() {
    let text: String = (0..5000).map(|index| format!("a,1,{index}\n")).collect();
    let words = refused("u", format!("actor,quantity,metric\n{text}").as_bytes());
    assert!(words.contains("more than 4096 combinations"), "{words}");
}
