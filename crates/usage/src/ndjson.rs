//! One JSON object on each line.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::field::{self, Column, METRIC_DEFAULT, Reason};
use crate::gather::Rows;
use crate::input::InputError;
use crate::report::PieceReport;

/// A line. The quantity stays as it is written, because JSON readers make floats of long numbers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(borrow)]
    actor: Cow<'a, str>,
    #[serde(borrow)]
    quantity: &'a RawValue,
    #[serde(borrow, default = "metric_default")]
    metric: Cow<'a, str>,
    #[serde(borrow, default)]
    group: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    asset: Option<Cow<'a, str>>,
}

fn metric_default() -> Cow<'static, str> {
    Cow::Borrowed(METRIC_DEFAULT)
}

/// Adds the rows of a block; the number of rows in it.
pub fn add_rows(block: &[u8], sink: &mut impl Rows, report: &mut PieceReport) -> Result<u64, InputError> {
    let mut row = 0;
    for line in block.split(|byte| *byte == b'\n') {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        match read(line) {
            Ok((line, quantity)) => {
                let slot = sink.slot(&line.metric, line.group.as_deref(), line.asset.as_deref())?;
                sink.add(line.actor.as_bytes(), slot, quantity)?;
            }
            Err((column, reason)) => report.bad(row, column, reason),
        }
        row += 1;
    }
    Ok(row)
}

fn read(line: &[u8]) -> Result<(Line<'_>, u128), (Option<Column>, Reason)> {
    let text = std::str::from_utf8(line)
        .map_err(|error| (None, Reason::from(format!("not UTF-8 at byte {}", error.valid_up_to()))))?;
    let line: Line<'_> = serde_json::from_str(text).map_err(|error| (None, plain(&error)))?;
    let in_column = |column| move |reason| (Some(column), reason);
    field::actor(line.actor.as_bytes()).map_err(in_column(Column::Actor))?;
    let quantity = quantity(line.quantity.get()).map_err(in_column(Column::Quantity))?;
    field::name(line.metric.as_bytes()).map_err(in_column(Column::Metric))?;
    for (column, name) in [(Column::Group, &line.group), (Column::Asset, &line.asset)] {
        name.as_ref().map_or(Ok(()), |name| field::name(name.as_bytes())).map_err(in_column(column))?;
    }
    Ok((line, quantity))
}

/// What is wrong with a line, without what stands there: a message about a value or a key quotes it, unless the key is
/// one that rows have.
fn plain(error: &serde_json::Error) -> Reason {
    let (text, column) = (error.to_string(), error.column());
    let is_about_known_key = ["missing field", "duplicate field"].iter().any(|start| text.starts_with(start));
    if !error.is_data() || is_about_known_key {
        text.into()
    } else if text.starts_with("unknown field") {
        format!("unknown field before column {column}; a row has actor, quantity, metric, group, asset").into()
    } else {
        format!("a value of the wrong type before column {column}").into()
    }
}

/// A string of digits or an integer token.
fn quantity(token: &str) -> Result<u128, Reason> {
    if !token.starts_with('"') {
        return field::quantity(token.as_bytes());
    }
    let text: Cow<'_, str> = serde_json::from_str(token).map_err(|error| plain(&error))?;
    field::quantity(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_keep_every_digit() {
        for (token, expected) in [
            ("\"340282366920938463463374607431768211455\"", Some(u128::MAX)),
            ("340282366920938463463374607431768211455", Some(u128::MAX)),
            ("123456789012345678901234567890", Some(123_456_789_012_345_678_901_234_567_890)),
            ("\"\\u0031\"", Some(1)),
            ("0", Some(0)),
            ("-0", None),
            ("1.0", None),
            ("1e3", None),
            ("null", None),
            ("true", None),
            ("[1]", None),
            ("340282366920938463463374607431768211456", None),
        ] {
            assert_eq!(quantity(token).ok(), expected, "{token}");
        }
    }

    #[test]
    fn a_line_has_known_keys_once() {
        for (line, part) in [
            (r#"{"actor":"a","quantity":1,"x":1}"#, "unknown field before"),
            (r#"{"actor":"a","quantity":1,"actor":"b"}"#, "duplicate field `actor`"),
            (r#"{"actor":"a"}"#, "missing field `quantity`"),
            (r#"{"actor":"","quantity":1}"#, "empty"),
            (r#"{"actor":"a","quantity":1,"group":""}"#, "empty"),
            (r#"{"actor":"a","quantity":1} x"#, "trailing"),
            (r#"{"actor":1,"quantity":1}"#, "wrong type"),
            (r#"{"actor":"\ud800","quantity":1}"#, "hex escape"),
        ] {
            let Err((_, reason)) = read(line.as_bytes()) else { panic!("{line}") };
            assert!(reason.contains(part), "{line}: {reason}");
        }
        let (line, quantity) = read(br#"{"quantity":"7","asset":null,"group":"g","actor":"\u00e9"}"#).expect("good");
        assert_eq!((line.actor.as_ref(), quantity, line.group.as_deref(), line.asset), ("\u{e9}", 7, Some("g"), None));
        assert_eq!(line.metric, "usage");
    }
}
