//! The records of the usage log. Totals are absolute: reading one twice, or an older copy first, changes nothing.

use super::book::UsageRow;

/// Most bytes of rows in one record; a head of the log has 64 KiB.
const ROWS_BYTES_MAX: usize = 32 << 10;

const ROWS: u8 = 1;
const SEALED: u8 = 2;
const COPIED: u8 = 3;
const FORGOTTEN: u8 = 4;
/// Added to the tags of seals that hold the rows of one tenant, whose name then follows.
const OF_TENANT: u8 = 8;

/// What is known of a sealed epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageSeal {
    /// The epoch.
    pub epoch: String,
    /// The tenant whose rows the file holds; none: those of all.
    pub tenant: Option<String>,
    /// The one actor that all rows were given to, if they were.
    pub as_actor: Option<String>,
    /// Rows of the file.
    pub rows: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// BLAKE3 of the file.
    pub hash: [u8; 32],
    /// Number of the seal: 1, 2, 3 and so on.
    pub number: u64,
}

/// One record, read.
#[derive(Debug, PartialEq, Eq)]
pub enum Record {
    /// Totals of rows that changed.
    Rows(Vec<(String, String, u128)>),
    /// All rows so far, or all of its tenant, are in the file that is the record's body; new ones begin at zero.
    Sealed(UsageSeal),
    /// A sealed file, written again.
    Copied(UsageSeal),
    /// A sealed file that is no longer kept.
    Forgotten(UsageSeal),
}

/// Heads of records with these rows.
pub fn rows<'a>(rows: impl Iterator<Item = UsageRow<'a>>) -> Vec<Vec<u8>> {
    let mut heads: Vec<Vec<u8>> = Vec::new();
    for row in rows {
        if heads.last().is_none_or(|head| head.len() >= ROWS_BYTES_MAX) {
            heads.push(vec![ROWS]);
        }
        let head = heads.last_mut().expect("one was pushed");
        put_text(head, row.actor);
        put_text(head, row.metric);
        head.extend_from_slice(&row.quantity.to_le_bytes());
    }
    heads
}

/// Kind of record about a sealed epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealKind {
    Sealed,
    Copied,
    Forgotten,
}

/// Head of a record about a sealed epoch.
pub fn seal(kind: SealKind, sealed: &UsageSeal) -> Vec<u8> {
    let tag = match kind {
        SealKind::Sealed => SEALED,
        SealKind::Copied => COPIED,
        SealKind::Forgotten => FORGOTTEN,
    };
    let mut head = vec![tag + if sealed.tenant.is_some() { OF_TENANT } else { 0 }];
    put_text(&mut head, &sealed.epoch);
    if let Some(tenant) = &sealed.tenant {
        put_text(&mut head, tenant);
    }
    head.push(u8::from(sealed.as_actor.is_some()));
    put_text(&mut head, sealed.as_actor.as_deref().unwrap_or_default());
    for number in [sealed.rows, sealed.bytes, sealed.number] {
        head.extend_from_slice(&number.to_le_bytes());
    }
    head.extend_from_slice(&sealed.hash);
    head
}

/// Reads the head of a record; none if it is not one of these.
pub fn read(head: &[u8]) -> Option<Record> {
    let (tag, mut rest) = head.split_first()?;
    if *tag == ROWS {
        let mut rows = Vec::new();
        while !rest.is_empty() {
            let (actor, metric) = (text(&mut rest)?, text(&mut rest)?);
            rows.push((actor, metric, u128::from_le_bytes(array(&mut rest)?)));
        }
        return Some(Record::Rows(rows));
    }
    let epoch = text(&mut rest)?;
    let (kind, tenant) = match tag.checked_sub(OF_TENANT) {
        Some(kind) => (kind, Some(text(&mut rest)?)),
        None => (*tag, None),
    };
    let [has_actor] = array(&mut rest)?;
    let actor = text(&mut rest)?;
    let mut number = || array(&mut rest).map(u64::from_le_bytes);
    let (rows, bytes, number) = (number()?, number()?, number()?);
    let hash = array(&mut rest)?;
    let sealed = UsageSeal { epoch, tenant, as_actor: (has_actor == 1).then_some(actor), rows, bytes, hash, number };
    match (kind, rest) {
        (SEALED, []) => Some(Record::Sealed(sealed)),
        (COPIED, []) => Some(Record::Copied(sealed)),
        (FORGOTTEN, []) => Some(Record::Forgotten(sealed)),
        _ => None,
    }
}

/// Names are bounded far below 64 KiB before they get here.
fn put_text(head: &mut Vec<u8>, text: &str) {
    let len = u16::try_from(text.len()).expect("names are short");
    head.extend_from_slice(&len.to_le_bytes());
    head.extend_from_slice(text.as_bytes());
}

fn text(rest: &mut &[u8]) -> Option<String> {
    let len = u16::from_le_bytes(array(rest)?);
    let (text, after) = rest.split_at_checked(usize::from(len))?;
    *rest = after;
    String::from_utf8(text.to_vec()).ok()
}

fn array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let sealed = UsageSeal {
            epoch: "2026-11".to_owned(),
            tenant: None,
            as_actor: Some("node".to_owned()),
            rows: 3,
            bytes: 70,
            hash: [7; 32],
            number: 9,
        };
        assert_eq!(read(&seal(SealKind::Sealed, &sealed)), Some(Record::Sealed(sealed.clone())));
        let plain = UsageSeal { as_actor: None, ..sealed };
        assert_eq!(read(&seal(SealKind::Copied, &plain)), Some(Record::Copied(plain.clone())));
        assert_eq!(read(&seal(SealKind::Forgotten, &plain)), Some(Record::Forgotten(plain.clone())));
        let own = UsageSeal { tenant: Some("alice".to_owned()), ..plain };
        assert_eq!(read(&seal(SealKind::Sealed, &own)), Some(Record::Sealed(own.clone())));
        assert_eq!(read(&seal(SealKind::Copied, &own)), Some(Record::Copied(own.clone())));
        assert_eq!(read(&seal(SealKind::Forgotten, &own)), Some(Record::Forgotten(own)));
        let names: Vec<String> = (0..3000).map(|number| format!("tenant-{number}")).collect();
        let written = names.iter().map(|actor| UsageRow { actor, metric: "m", quantity: u128::MAX });
        let heads = rows(written);
        assert!(heads.len() > 1 && heads.iter().all(|head| head.len() < 1 << 16));
        let back: Vec<_> = heads
            .iter()
            .flat_map(|head| match read(head) {
                Some(Record::Rows(rows)) => rows,
                other => panic!("{other:?}"),
            })
            .collect();
        let expected: Vec<_> = names.iter().map(|name| (name.clone(), "m".to_owned(), u128::MAX)).collect();
        assert_eq!(back, expected);
    }

    #[test]
    fn anything_else_is_no_record() {
        let (epoch, tenant) = ("e".to_owned(), None);
        let sealed = UsageSeal { epoch, tenant, as_actor: None, rows: 0, bytes: 0, hash: [0; 32], number: 1 };
        let own = UsageSeal { tenant: Some("t".into()), ..sealed.clone() };
        for whole in [seal(SealKind::Sealed, &sealed), seal(SealKind::Sealed, &own)] {
            for len in 0..whole.len() {
                assert_eq!(read(&whole[..len]), None, "{len}");
            }
            assert_eq!(read(&[&whole[..], b"x"].concat()), None);
            for strange in [0, 5, 8, 9, 13, 16, 18, 255] {
                assert_eq!(read(&[&[strange], &whole[1..]].concat()), None, "{strange}");
            }
        }
        assert_eq!(read(&[ROWS, 255, 255, 1]), None);
    }
}
