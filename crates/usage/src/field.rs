//! The five columns of a usage row, and what may stand in each.

use std::borrow::Cow;

use crate::limits::{ACTOR_BYTES_MAX, NAME_BYTES_MAX};

/// Why a field is refused: in words that show nothing of it, since who may have a file counted need not be one who may
/// read it.
pub type Reason = Cow<'static, str>;

/// A column of a usage file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Who did it.
    Actor,
    /// How much.
    Quantity,
    /// What was counted.
    Metric,
    /// The group whose pool it counts for.
    Group,
    /// The only asset it counts for.
    Asset,
}

/// The metric of rows that name none.
pub const METRIC_DEFAULT: &str = "usage";

impl Column {
    /// All columns.
    pub const ALL: [Column; 5] = [Column::Actor, Column::Quantity, Column::Metric, Column::Group, Column::Asset];

    /// Name in files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Column::Actor => "actor",
            Column::Quantity => "quantity",
            Column::Metric => "metric",
            Column::Group => "group",
            Column::Asset => "asset",
        }
    }

    /// The column of this name.
    pub fn of(name: &str) -> Option<Column> {
        Column::ALL.into_iter().find(|column| column.name() == name)
    }

    /// Assigns each column its place among the names of a file, or says what is wrong with them.
    pub fn places<'a>(names: impl Iterator<Item = &'a str>) -> Result<[Option<usize>; 5], String> {
        let mut places = [None; 5];
        for (index, name) in names.enumerate() {
            let Some(column) = Column::of(name) else {
                let place = index + 1;
                return Err(format!(
                    "column {place} is not known: a usage file has actor, quantity (not amount), metric, group, asset"
                ));
            };
            if places[column as usize].replace(index).is_some() {
                return Err(format!("column `{name}` occurs twice"));
            }
        }
        match [Column::Actor, Column::Quantity].into_iter().find(|column| places[*column as usize].is_none()) {
            Some(missing) => Err(format!("column `{}` is missing", missing.name())),
            None => Ok(places),
        }
    }
}

/// Checks an actor's id that is known to be UTF-8.
pub fn actor(bytes: &[u8]) -> Result<(), Reason> {
    bounded(bytes, ACTOR_BYTES_MAX)
}

/// Checks the name of a metric, group or asset that is known to be UTF-8.
pub fn name(bytes: &[u8]) -> Result<(), Reason> {
    bounded(bytes, NAME_BYTES_MAX)
}

fn bounded(bytes: &[u8], most: usize) -> Result<(), Reason> {
    match bytes.len() {
        0 => Err("empty".into()),
        length if length > most => Err(format!("{length} bytes; at most {most}").into()),
        _ => Ok(()),
    }
}

/// Checks text that is not yet known to be UTF-8.
pub fn utf8(bytes: &[u8]) -> Result<(), Reason> {
    std::str::from_utf8(bytes).map(drop).map_err(|error| format!("not UTF-8 at byte {}", error.valid_up_to()).into())
}

/// Reads a quantity: decimal digits and nothing else, below 2^128. Never through a float: the digits are the money.
pub fn quantity(text: &[u8]) -> Result<u128, Reason> {
    // Nearly all quantities have few digits; 64 bits are several times quicker than 128.
    if !text.is_empty() && text.len() <= 19 && text.iter().all(u8::is_ascii_digit) {
        return Ok(u128::from(text.iter().fold(0_u64, |number, digit| number * 10 + u64::from(digit - b'0'))));
    }
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return Err(not_a_quantity(text));
    }
    let add = |number: u128, digit: &u8| number.checked_mul(10)?.checked_add(u128::from(digit - b'0'));
    text.iter().try_fold(0_u128, add).ok_or_else(|| TOO_LARGE.into())
}

const TOO_LARGE: &str = "does not fit into 128 bits";
/// Reason against a number below zero.
pub const NEGATIVE: &str = "is negative";

/// Says what is wrong with a quantity in words that name the mistake.
fn not_a_quantity(text: &[u8]) -> Reason {
    let is_digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let reason = match text {
        [] => "empty",
        _ if text.trim_ascii().len() != text.len() => "has spaces around it",
        [b'-', rest @ ..] if is_digits(rest) => NEGATIVE,
        [b'+', rest @ ..] if is_digits(rest) => "has a sign",
        _ if text.iter().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(byte)) => {
            "is not written as a whole number"
        }
        _ => "is not a number in decimal digits",
    };
    reason.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_digits_below_2_to_the_128() {
        for (text, expected) in [
            ("0", Ok(0)),
            ("007", Ok(7)),
            ("9999999999999999999", Ok(9_999_999_999_999_999_999)),
            ("18446744073709551616", Ok(1 << 64)),
            ("340282366920938463463374607431768211455", Ok(u128::MAX)),
            ("340282366920938463463374607431768211456", Err("does not fit into 128 bits")),
            ("", Err("empty")),
            (" 1", Err("has spaces around it")),
            ("1 ", Err("has spaces around it")),
            ("-1", Err("is negative")),
            ("+1", Err("has a sign")),
            ("1.0", Err("is not written as a whole number")),
            ("1e3", Err("is not written as a whole number")),
            ("NaN", Err("is not a number in decimal digits")),
            ("0x10", Err("is not a number in decimal digits")),
            ("1_000", Err("is not a number in decimal digits")),
            ("\u{661}", Err("is not a number in decimal digits")),
        ] {
            match (quantity(text.as_bytes()), expected) {
                (Ok(number), Ok(expected)) => assert_eq!(number, expected, "{text}"),
                (Err(reason), Err(part)) => assert!(reason.contains(part), "{text}: {reason}"),
                (found, expected) => panic!("{text}: {found:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn columns_are_known_once_and_the_needed_ones_are_there() {
        let places = |names: &str| Column::places(names.split(','));
        assert_eq!(places("quantity,actor"), Ok([Some(1), Some(0), None, None, None]));
        assert_eq!(places("asset,actor,metric,group,quantity"), Ok([Some(1), Some(4), Some(2), Some(3), Some(0)]));
        for (names, part) in [
            ("actor", "`quantity` is missing"),
            ("quantity", "`actor` is missing"),
            ("actor,quantity,actor", "`actor` occurs twice"),
            ("actor,quantity,Metric", "column 3 is not known"),
        ] {
            let reason = places(names).expect_err("refused");
            assert!(reason.contains(part), "{names}: {reason}");
        }
    }
}
