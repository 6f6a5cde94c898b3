//! Tables come back as they were written, with the same bytes for the same content.

use super::*;

fn slot(metric: &str, group: Option<&str>, asset: Option<&str>) -> Slot {
    Slot { metric: metric.to_owned(), group: group.map(str::to_owned), asset: asset.map(str::to_owned) }
}

fn sample(actors: usize) -> Totals {
    let slots = vec![slot("calls", None, None), slot("calls", Some("eu"), None), slot("uptime", None, Some("RON"))];
    let mut totals = Totals::new(slots).expect("sorted");
    for actor in 0..actors {
        let entries = [(0, actor as u128), (1, u128::MAX - actor as u128), (2, 1 << 64)];
        assert!(totals.push(&format!("actor-{actor:07}-\u{e9}"), &entries[actor % 3..]));
    }
    totals
}

fn written(totals: &Totals) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_totals(totals, &mut bytes).expect("memory");
    bytes
}

#[test]
fn totals_come_back() {
    for actors in [0, 1, 2, 1000, 9_000] {
        let totals = sample(actors);
        let read = read_totals(written(&totals).into(), 64 << 20).expect("readable");
        assert_eq!(read.roster(), totals.roster(), "{actors}");
        let entries = |totals: &Totals, actor| totals.entries(actor).collect::<Vec<_>>();
        assert!((0..actors).all(|actor| entries(&read, actor) == entries(&totals, actor)));
        if actors > 2 {
            assert_eq!(read.content_hash(), totals.content_hash());
        }
    }
}

#[test]
fn the_same_content_has_the_same_bytes_in_every_version() {
    let hash = |totals: &Totals| blake3::hash(&written(totals)).to_hex().to_string();
    assert_eq!(hash(&sample(1000)), hash(&sample(1000)));
    assert_eq!(
        hash(&sample(5)),
        "c0aed1735dcc76ef86bfcf31c9db63c5d2d8580d146b7305155138c07b3bb6f6",
        "bytes of an artifact changed: old runs no longer verify"
    );
}

#[test]
fn too_little_memory_and_wrong_order_are_refused() {
    let bytes: bytes::Bytes = written(&sample(9_000)).into();
    let refused = read_totals(bytes, 1 << 18).expect_err("too large");
    assert!(refused.to_string().contains("262144 bytes"), "{refused}");
    let mut bytes = Vec::new();
    let schema = schema(&[("actor", false), ("quantity", false)]);
    let mut table = TableWriter::new(&mut bytes, schema, "quantity").expect("memory");
    for actor in ["b", "a"] {
        assert!(!table.add(actor, 0, 1));
    }
    table.end(&[]).expect("memory");
    let refused = read_totals(bytes.into(), 1 << 20).expect_err("out of order");
    assert!(refused.to_string().contains("canonical order"), "{refused}");
}

#[test]
fn allocations_name_every_actor_and_asset() {
    let totals = sample(3);
    let allocation = |asset: &str, first: u128| AssetAllocation {
        asset: asset.to_owned(),
        pool: 10,
        paid: 10,
        amounts: vec![first, 0, u128::MAX],
    };
    let mut bytes = Vec::new();
    write_allocations(totals.roster(), &[allocation("RON", 1), allocation("ABC", 2)], &mut bytes).expect("memory");
    let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReader::try_new(bytes::Bytes::from(bytes), 100);
    let batch = reader.expect("readable").next().expect("one").expect("sound");
    let columns: Vec<StringArray> = (0..3).map(|column| StringArray::from(batch.column(column).to_data())).collect();
    let rows: Vec<String> = (0..batch.num_rows())
        .map(|row| columns.iter().map(|column| column.value(row)).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(rows[0], "actor-0000000-\u{e9} RON 1");
    assert_eq!(rows[1], "actor-0000000-\u{e9} ABC 2");
    assert_eq!(rows[3], "actor-0000001-\u{e9} ABC 0");
    assert_eq!((rows.len(), rows[5].as_str()), (6, "actor-0000002-\u{e9} ABC 340282366920938463463374607431768211455"));
    let short = AssetAllocation { amounts: vec![1], ..allocation("RON", 1) };
    assert!(write_allocations(totals.roster(), &[short], &mut Vec::new()).is_err());
}
