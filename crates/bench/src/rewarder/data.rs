//! Usage of an epoch, made up once and kept beside the build: the same rows on every machine.

use std::fmt;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

/// Rows of one row group: what DuckDB writes.
const ROW_GROUP_ROWS: u64 = 122_880;

/// Size of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// Usage rows.
    pub rows: u64,
    /// Actors there are; each has at least one row in all likelihood, few have very many.
    pub actors: u64,
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rows, {} actors", self.rows, self.actors)
    }
}

/// The file of an epoch; written if it is not there.
pub fn file(epoch: Epoch, folder: &Path) -> anyhow::Result<PathBuf> {
    let path = folder.join(format!("usage-{}-{}.parquet", epoch.rows, epoch.actors));
    if path.is_file() {
        return Ok(path);
    }
    eprintln!("making up {epoch}");
    std::fs::create_dir_all(folder)?;
    let unfinished = path.with_extension("unfinished");
    write(epoch, File::create(&unfinished)?)?;
    std::fs::rename(&unfinished, &path)?;
    Ok(path)
}

/// The same rows as CSV, for those who read no Parquet.
pub fn write_csv(epoch: Epoch, file: File) -> anyhow::Result<()> {
    let (mut random, mut to) = (Random(epoch.rows), std::io::BufWriter::new(file));
    writeln!(to, "actor,quantity")?;
    for _ in 0..epoch.rows {
        let (actor, quantity) = row(&mut random, epoch.actors);
        writeln!(to, "{actor},{quantity}")?;
    }
    Ok(to.flush()?)
}

fn write(epoch: Epoch, file: File) -> anyhow::Result<()> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS as usize))
        .build();
    let mut random = Random(epoch.rows);
    let mut writer = None;
    let mut left = epoch.rows;
    while left > 0 {
        let count = left.min(ROW_GROUP_ROWS);
        left -= count;
        let rows: Vec<(String, i64)> = (0..count).map(|_| row(&mut random, epoch.actors)).collect();
        let actors: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row.0)));
        let quantities: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.1)));
        let batch = RecordBatch::try_from_iter([("actor", actors), ("quantity", quantities)])?;
        if writer.is_none() {
            writer = Some(ArrowWriter::try_new(file.try_clone()?, batch.schema(), Some(properties.clone()))?);
        }
        if let Some(writer) = &mut writer {
            writer.write(&batch)?;
        }
    }
    if let Some(writer) = writer {
        writer.close()?;
    }
    Ok(())
}

/// Half of the rows follow Zipf's law, half are spread evenly, so that few actors do much and nearly all do something.
fn row(random: &mut Random, actors: u64) -> (String, i64) {
    let rank = match random.next() % 2 {
        0 => ((random.fraction() * (actors as f64).ln()).exp() as u64).min(actors) - 1,
        _ => random.next() % actors,
    };
    // Ids as chains write them: forty digits that have nothing to do with the rank.
    let (one, two, three) = (mixed(rank), mixed(rank ^ 1 << 40), mixed(rank ^ 1 << 41) as u32);
    (format!("0x{one:016x}{two:016x}{three:08x}"), 1 + (random.next() % 1_000_000) as i64)
}

/// SplitMix64: small, seeded, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// A number from zero to below one.
    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn mixed(seed: u64) -> u64 {
    let a = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let b = (a ^ a >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    b ^ b >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_actors_have_many_rows() {
        let mut random = Random(1);
        let mut counts = std::collections::HashMap::new();
        for _ in 0..20_000 {
            let (actor, quantity) = row(&mut random, 1000);
            assert!(actor.len() == 42 && (1..=1_000_000).contains(&quantity));
            *counts.entry(actor).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 1000);
        assert!(counts.values().max() > Some(&500), "{:?}", counts.values().max());
    }
}
