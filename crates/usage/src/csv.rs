//! Comma-separated values, read strictly.
//!
//! A quote may only open or close a field, or stand doubled within quotes. Readers that let stray quotes pass disagree
//! about where records end; here a file with one is refused, and so every accepted file can be cut into blocks by
//! counting quotes.

use std::borrow::Cow;

use crate::field::{self, Column, METRIC_DEFAULT, Reason};
use crate::gather::Rows;
use crate::input::InputError;
use crate::report::PieceReport;

/// The columns of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    places: [Option<usize>; 5],
    width: usize,
}

impl Header {
    /// Reads the first line.
    pub fn read(line: &[u8]) -> Result<Header, String> {
        let mut fields = Vec::new();
        split(line, &mut fields).map_err(|reason| format!("header: {reason}"))?;
        let names: Result<Vec<&str>, _> = fields.iter().map(|name| std::str::from_utf8(name)).collect();
        let names = names.map_err(|_| "header: not UTF-8; a usage file is Parquet, CSV or NDJSON".to_owned())?;
        Ok(Header { places: Column::places(names.iter().copied())?, width: names.len() })
    }
}

/// Adds the rows of a block; the number of rows in it.
pub fn add_rows(
    header: &Header,
    block: &[u8],
    sink: &mut impl Rows,
    report: &mut PieceReport,
) -> Result<u64, InputError> {
    let mut fields = Vec::with_capacity(header.width);
    let (mut row, mut start, mut is_quoted) = (0, 0, false);
    let ends = memchr::memchr2_iter(b'"', b'\n', block).chain(std::iter::once(block.len()));
    for at in ends {
        match block.get(at) {
            Some(b'"') => {
                is_quoted = !is_quoted;
                continue;
            }
            Some(_) if is_quoted => continue,
            _ => {}
        }
        let line = &block[start..at];
        start = at + 1;
        // Two columns are needed, so that an empty line is no record.
        if line.is_empty() || line == b"\r" {
            continue;
        }
        fields.clear();
        match split(line, &mut fields).map_err(|reason| (None, reason)).and_then(|()| header.row(&fields)) {
            Ok((actor, quantity, [metric, group, asset])) => {
                let slot = sink.slot(metric.unwrap_or(METRIC_DEFAULT), group, asset)?;
                sink.add(actor, slot, quantity)?;
            }
            Err((column, reason)) => report.bad(row, column, reason),
        }
        row += 1;
    }
    Ok(row)
}

/// Actor, quantity, and the names of metric, group and asset.
type Row<'a> = (&'a [u8], u128, [Option<&'a str>; 3]);

impl Header {
    /// Checks the fields of a record.
    fn row<'a>(&self, fields: &'a [Cow<'_, [u8]>]) -> Result<Row<'a>, (Option<Column>, Reason)> {
        if fields.len() != self.width {
            return Err((None, format!("{} fields instead of {}", fields.len(), self.width).into()));
        }
        let get = |column: Column| self.places[column as usize].map(|place| fields[place].as_ref());
        let in_column = |column| move |reason| (Some(column), reason);
        let actor = get(Column::Actor).unwrap_or_default();
        field::actor(actor).and_then(|()| field::utf8(actor)).map_err(in_column(Column::Actor))?;
        let quantity = get(Column::Quantity).unwrap_or_default();
        let quantity = field::quantity(quantity).map_err(in_column(Column::Quantity))?;
        let mut names = [None; 3];
        for (name, column) in names.iter_mut().zip([Column::Metric, Column::Group, Column::Asset]) {
            let Some(bytes) = get(column) else { continue };
            // A table has no other way to say "none"; a metric is always said.
            if bytes.is_empty() && column != Column::Metric {
                continue;
            }
            field::name(bytes).map_err(in_column(column))?;
            let text = std::str::from_utf8(bytes);
            *name = Some(
                text.map_err(|error| (Some(column), format!("not UTF-8 at byte {}", error.valid_up_to()).into()))?,
            );
        }
        Ok((actor, quantity, names))
    }
}

/// Splits a record without its line end into fields.
fn split<'a>(line: &'a [u8], fields: &mut Vec<Cow<'a, [u8]>>) -> Result<(), Reason> {
    let mut rest = line.strip_suffix(b"\r").unwrap_or(line);
    loop {
        let (field, after) = match rest.strip_prefix(b"\"") {
            Some(quoted) => quoted_field(quoted)?,
            None => {
                let end = memchr::memchr2(b',', b'"', rest).unwrap_or(rest.len());
                if rest.get(end) == Some(&b'"') {
                    return Err("a quote within a field that is not quoted".into());
                }
                (Cow::Borrowed(&rest[..end]), &rest[end..])
            }
        };
        // Hostile lines of commas only: more fields than columns are counted as one too many.
        if fields.len() <= Column::ALL.len() {
            fields.push(field);
        }
        match after.split_first() {
            None => return Ok(()),
            Some((b',', after)) => rest = after,
            Some(_) => return Err("text after a closing quote".into()),
        }
    }
}

/// The field after an opening quote, and what follows the closing one.
fn quoted_field(quoted: &[u8]) -> Result<(Cow<'_, [u8]>, &[u8]), Reason> {
    let mut doubled = Vec::new();
    let mut rest = quoted;
    loop {
        let end = memchr::memchr(b'"', rest).ok_or("a quote that is not closed")?;
        if rest.get(end + 1) != Some(&b'"') {
            let after = &rest[end + 1..];
            if doubled.is_empty() {
                return Ok((Cow::Borrowed(&rest[..end]), after));
            }
            doubled.extend_from_slice(&rest[..end]);
            return Ok((Cow::Owned(doubled), after));
        }
        doubled.extend_from_slice(&rest[..=end]);
        rest = &rest[end + 2..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(line: &str) -> Result<Vec<String>, Reason> {
        let mut fields = Vec::new();
        split(line.as_bytes(), &mut fields)?;
        Ok(fields.iter().map(|field| String::from_utf8_lossy(field).into_owned()).collect())
    }

    #[test]
    fn records_are_split_as_the_csv_crate_splits_them() {
        for line in [
            "a,1",
            "a,1\r",
            "\"a\",1",
            "\"a,b\",\"1\"",
            "\"a\"\"b\",1",
            "\"\"\"\"\"\",1",
            ",",
            "\"\",\"\"",
            "\"a\nb\",1",
        ] {
            let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(line.as_bytes());
            let expected = reader.records().next().expect("one").expect("well formed");
            assert_eq!(fields(line).expect(line), expected.iter().collect::<Vec<_>>(), "{line:?}");
        }
    }

    #[test]
    fn stray_quotes_are_refused() {
        for (line, part) in [
            ("a\"b,1", "not quoted"),
            ("\"a\"b,1", "after a closing quote"),
            ("\"a,1", "not closed"),
            ("a,1\"", "not quoted"),
        ] {
            let reason = fields(line).expect_err(line);
            assert!(reason.contains(part), "{line}: {reason}");
        }
    }

    #[test]
    fn a_line_of_commas_stays_small() {
        assert_eq!(fields(&",".repeat(1000)).expect("split").len(), Column::ALL.len() + 1);
    }
}
