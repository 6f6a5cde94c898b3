//! What a token says, for people: needs no key, and decides nothing.

use serde::Serialize;

use crate::key::PublicKey;
use crate::token::{expiry_in, name, parse, refused};
use crate::types::AuthError;
use crate::verified::{hex, signed_by};

/// What a token says about itself; true only if it verifies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Inspection {
    /// For whom it was minted.
    pub subject: Option<String>,
    /// Operations and topics of the minted block, as `(operation, topic)`; later blocks may forbid some of them.
    pub rights: Vec<(String, String)>,
    /// Messages it may send in a second.
    pub sends_per_second: Option<u32>,
    /// Largest payload it may send.
    pub payload_bytes_max: Option<u32>,
    /// The earliest expiry of all blocks: milliseconds since 1970.
    pub expires_ms: Option<u64>,
    /// The minted block, then one for each narrowing.
    pub blocks: Vec<BlockText>,
    /// Whether the signatures hold under the key that was given.
    pub verifies: Option<bool>,
}

/// One block of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlockText {
    /// Its facts, rules and checks, one a line.
    pub source: String,
    /// What revokes it and every block after it: hex digits.
    pub revocation_id: String,
}

/// Reads a token without verifying it.
pub fn inspect(token: &str) -> Result<Inspection, AuthError> {
    let read = parse(token.trim())?;
    let blocks = read.revocation_identifiers().into_iter().enumerate().map(|(index, id)| {
        let source = read.print_block_source(index).map_err(refused)?;
        Ok(BlockText { source: harmless(&source), revocation_id: hex(&id) })
    });
    let blocks = blocks.collect::<Result<Vec<BlockText>, AuthError>>()?;
    let minted = blocks.first().map_or("", |block| block.source.as_str());
    let quota = |quota: &str| {
        let value = terms_of(minted, name::QUOTA).find(|terms| terms.first().is_some_and(|name| name == quota))?;
        value.get(1)?.parse().ok()
    };
    let subject = terms_of(minted, name::SUBJECT).find_map(|terms| terms.into_iter().next());
    Ok(Inspection {
        subject,
        rights: rights(minted),
        sends_per_second: quota(name::SENDS_PER_SECOND),
        payload_bytes_max: quota(name::PAYLOAD_BYTES_MAX),
        expires_ms: blocks.iter().flat_map(|block| block.source.lines().filter_map(expiry_in)).min(),
        blocks,
        verifies: None,
    })
}

/// Reads a token and says whether its signatures hold under this key.
pub fn inspect_with(token: &str, key: &PublicKey) -> Result<Inspection, AuthError> {
    let inspection = inspect(token)?;
    let verifies = signed_by(*key, token.trim()).is_ok();
    Ok(Inspection { verifies: Some(verifies), ..inspection })
}

fn rights(source: &str) -> Vec<(String, String)> {
    let pairs = |name, end: &'static str| {
        terms_of(source, name).filter_map(move |terms| match terms.as_slice() {
            [op, topic] => Some((op.clone(), format!("{topic}{end}"))),
            _ => None,
        })
    };
    pairs(name::RIGHT, "").chain(pairs(name::RIGHT_PREFIX, "*")).collect()
}

/// The terms of each fact of this name, without quotation marks.
fn terms_of<'a>(source: &'a str, name: &'a str) -> impl Iterator<Item = Vec<String>> + 'a {
    let terms = move |line: &str| {
        let inside = line.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(");")?;
        Some(inside.split(", ").map(|term| term.trim_matches('"').to_owned()).collect())
    };
    source.lines().filter_map(terms)
}

/// The text with nothing in it that could move the cursor of a terminal.
fn harmless(text: &str) -> String {
    let replace = |c: char| if c.is_control() && c != '\n' { '\u{fffd}' } else { c };
    text.chars().map(replace).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::mint;
    use crate::types::{Grant, Narrowing, Op};
    use crate::{RootKey, attenuate};

    fn token(key: &RootKey) -> String {
        let grant = Grant {
            subject: "ann".into(),
            ops: vec![Op::Send],
            topics: ["orders", "jobs.*", "*"].map(|topic| topic.parse().expect("valid")).into(),
            sends_per_second: Some(7),
            payload_bytes_max: None,
            expires_ms: Some(2000),
        };
        mint(key, &grant).expect("minted")
    }

    #[test]
    fn everything_a_token_says_is_shown() {
        let key = RootKey::generate();
        let narrowing = Narrowing { ops: vec![Op::Send, Op::Recv], expires_ms: Some(1000), ..Narrowing::default() };
        let token = attenuate(&token(&key), &narrowing).expect("narrowed");
        let read = inspect_with(&format!(" {token}\n"), &key.public()).expect("read");
        let pair = |topic: &str| ("send".to_owned(), topic.to_owned());
        assert_eq!(read.subject.as_deref(), Some("ann"));
        assert_eq!(read.rights, [pair("orders"), pair("jobs.*"), pair("*")]);
        assert_eq!((read.sends_per_second, read.payload_bytes_max), (Some(7), None));
        assert_eq!((read.expires_ms, read.verifies), (Some(1000), Some(true)));
        let expected = "check if operation(\"send\") or operation(\"recv\");\ncheck if time_ms($now), $now < 1000;\n";
        assert_eq!(read.blocks[1].source, expected);
        assert!(read.blocks.iter().all(|block| block.revocation_id.len() == 128));
        assert_eq!(inspect(&token).expect("read"), Inspection { verifies: None, ..read });
    }

    #[test]
    fn a_token_of_another_key_is_read_but_does_not_verify() {
        let read = inspect_with(&token(&RootKey::generate()), &RootKey::generate().public()).expect("read");
        assert_eq!(read.verifies, Some(false));
    }

    #[test]
    fn what_is_no_token_is_named_so() {
        for text in ["", "x", "AAAA", &"A".repeat(100_000)] {
            assert!(matches!(inspect(text), Err(AuthError::Malformed(_))), "{}", text.len());
        }
    }

    #[test]
    fn nothing_that_moves_a_cursor_is_shown() {
        assert_eq!(harmless("a\u{1b}[2J\nb"), "a\u{fffd}[2J\nb");
    }
}
