//! A look at a Parquet footer before the library reads it.
//!
//! The library builds the tree of columns by recursion and reserves room for as many children as a column claims: a
//! file of some kilobytes could exhaust the stack or the memory, and neither can be caught. A usage file has five
//! columns; its footer begins with the list of them, in Thrift's compact form, which is walked here without reserving
//! anything.

use crate::limits::FOOTER_BYTES_MAX;

/// Columns, root included, that are let through, so that a file with a few too many is refused by their names.
const COLUMNS_MAX: u64 = 128;
/// Structs within structs: the type of a column has three.
const DEPTH_MAX: u32 = 8;

/// Length of the footer in bytes, from the last eight of a file.
pub fn length(end: &[u8; 8]) -> Result<usize, String> {
    let [a, b, c, d, magic @ ..] = *end;
    if &magic != b"PAR1" {
        return Err("does not end as a Parquet file does: cut off, or encrypted".to_owned());
    }
    match u32::from_le_bytes([a, b, c, d]) as usize {
        length if length > FOOTER_BYTES_MAX => Err(format!("a footer of {length} bytes; at most {FOOTER_BYTES_MAX}")),
        length => Ok(length),
    }
}

/// Checks the list of columns at the beginning of a footer.
pub fn check(footer: &[u8]) -> Result<(), String> {
    walk(footer).unwrap_or_else(|| Err("the footer is damaged".to_owned()))
}

/// None for what is no footer.
fn walk(footer: &[u8]) -> Option<Result<(), String>> {
    // Field 1 is the version, a number; field 2 the list of columns. Every writer puts them first.
    let rest = footer.strip_prefix(&[0x15])?;
    let (_, rest) = varint(rest)?;
    let rest = rest.strip_prefix(&[0x19])?;
    let (count, kind, mut rest) = list(rest)?;
    if kind != STRUCT {
        return None;
    }
    if count > COLUMNS_MAX {
        return Some(Err(format!("{} columns; a usage file has at most five", count.saturating_sub(1))));
    }
    for _ in 0..count {
        let (children, after) = column(rest)?;
        if children > COLUMNS_MAX {
            return Some(Err("a column claims more columns within it than there are".to_owned()));
        }
        rest = after;
    }
    Some(Ok(()))
}

const STRUCT: u8 = 12;

/// How many children a column claims, and what follows the column.
fn column(mut rest: &[u8]) -> Option<(u64, &[u8])> {
    let (mut id, mut children) = (0, 0);
    loop {
        let (kind, after) = field(&mut id, rest)?;
        rest = after;
        match (id, kind) {
            (_, 0) => return Some((children, rest)),
            (5, 5) => {
                let (number, after) = varint(rest)?;
                // Zigzag: odd is negative, which is as wrong as too many.
                children = if number & 1 == 0 { number >> 1 } else { u64::MAX };
                rest = after;
            }
            (5, _) => return None,
            _ => rest = skip(kind, rest, DEPTH_MAX)?,
        }
    }
}

/// Kind of the next field, whose number becomes `id`; zero at the end of a struct.
fn field<'a>(id: &mut i64, bytes: &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (head, rest) = bytes.split_first()?;
    match (head >> 4, head & 15) {
        (_, 0) => Some((0, rest)),
        (0, kind) => {
            let (number, rest) = varint(rest)?;
            *id = (number >> 1) as i64;
            Some((kind, rest))
        }
        (step, kind) => {
            *id += i64::from(step);
            Some((kind, rest))
        }
    }
}

/// Length and kind of a list, and its first element.
fn list(bytes: &[u8]) -> Option<(u64, u8, &[u8])> {
    let (head, rest) = bytes.split_first()?;
    match head >> 4 {
        15 => varint(rest).map(|(count, rest)| (count, head & 15, rest)),
        count => Some((u64::from(count), head & 15, rest)),
    }
}

/// What follows a value of a kind.
fn skip(kind: u8, bytes: &[u8], depth: u32) -> Option<&[u8]> {
    let depth = depth.checked_sub(1)?;
    match kind {
        1 | 2 => Some(bytes),
        3 => bytes.get(1..),
        4..=6 => varint(bytes).map(|(_, rest)| rest),
        7 => bytes.get(8..),
        8 => varint(bytes).and_then(|(length, rest)| rest.get(usize::try_from(length).ok()?..)),
        9 | 10 => {
            let (count, kind, mut rest) = list(bytes)?;
            for _ in 0..count {
                // Truths in a list take a byte each, as fields they take none.
                rest = skip(if kind <= 2 { 3 } else { kind }, rest, depth)?;
            }
            Some(rest)
        }
        STRUCT => {
            let (mut id, mut rest) = (0, bytes);
            loop {
                let (kind, after) = field(&mut id, rest)?;
                if kind == 0 {
                    return Some(after);
                }
                rest = skip(kind, after, depth)?;
            }
        }
        // Maps do not occur in a column.
        _ => None,
    }
}

/// A number in groups of seven bits, and what follows it.
pub fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0_u64;
    for (index, byte) in bytes.iter().take(9).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((number, &bytes[index + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A footer of columns, each a name and the children it claims.
    fn footer(columns: &[(&str, u8)]) -> Vec<u8> {
        let mut bytes = vec![0x15, 0x02, 0x19, 0xfc, columns.len() as u8 | 0x80, (columns.len() >> 7) as u8];
        for (name, children) in columns {
            bytes.extend([0x48, name.len() as u8]);
            bytes.extend(name.as_bytes());
            bytes.extend([0x15, children << 1 | 0x80, 0x00, 0x00]);
        }
        bytes
    }

    #[test]
    fn columns_are_counted_before_anything_is_built() {
        assert_eq!(check(&footer(&[("root", 2), ("actor", 0), ("quantity", 0)])), Ok(()));
        let many = vec![("x", 1); 200];
        assert!(check(&footer(&many)).expect_err("too deep").contains("199 columns"));
        let mut huge = footer(&[("root", 0)]);
        huge.truncate(huge.len() - 4);
        huge.extend([0x15, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0x00]);
        assert!(check(&huge).expect_err("two billion children").contains("more columns within it"));
    }

    #[test]
    fn what_is_no_footer_is_refused() {
        let whole = footer(&[("root", 1), ("actor", 0)]);
        for length in 0..whole.len() {
            assert!(check(&whole[..length]).is_err(), "{length}");
        }
        assert!(check(&[0xff; 100]).is_err() && check(&[0x1c; 100]).is_err());
        assert!(length(b"\0\0\0\0PARE").is_err() && length(b"\xff\xff\xff\x7fPAR1").is_err());
        assert_eq!(length(b"\x10\0\0\0PAR1"), Ok(16));
    }
}
