//! What a token says, for people: needs no key, and decides nothing.

use std::collections::BTreeMap;

use biscuit_auth::UnverifiedBiscuit;
use serde::Serialize;

use crate::envelope::Envelope;
use crate::key::PublicKey;
use crate::right::Right;
use crate::token::refused;
use crate::types::AuthError;

/// What a token says about itself; true only if it verifies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Inspection {
    /// Name of the bearer it was minted for.
    pub subject: Option<String>,
    /// Rights of the minted block, as `service:verb:resource`; later blocks may forbid some of them.
    pub rights: Vec<String>,
    /// Limits by their names, also those that no service of this build knows.
    pub limits: BTreeMap<String, u64>,
    /// Earliest expiry of all blocks in milliseconds since 1970.
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

/// Reads a token without verifying it. One that carries what no node or client of this project writes is refused, as a
/// node would refuse it.
pub fn inspect(token: &str) -> Result<Inspection, AuthError> {
    read(token.trim()).map(|(inspection, _)| inspection)
}

/// Reads a token and says whether its signatures hold under this key.
pub fn inspect_with(token: &str, key: &PublicKey) -> Result<Inspection, AuthError> {
    let (inspection, envelope) = read(token.trim())?;
    Ok(Inspection { verifies: Some(envelope.is_signed_by(*key)), ..inspection })
}

fn read(token: &str) -> Result<(Inspection, Envelope), AuthError> {
    let envelope = Envelope::open(token)?;
    let contents = envelope.contents()?;
    let expires_ms = contents.expires_ms();
    let printed = UnverifiedBiscuit::from_base64(token).map_err(refused)?;
    let blocks = envelope.ids().into_iter().enumerate().map(|(index, revocation_id)| {
        let source = harmless(&printed.print_block_source(index).map_err(refused)?);
        Ok(BlockText { source, revocation_id })
    });
    let inspection = Inspection {
        blocks: blocks.collect::<Result<_, AuthError>>()?,
        subject: Some(harmless(&contents.grant.subject)),
        rights: contents.grant.rights.iter().map(Right::to_string).map(|right| harmless(&right)).collect(),
        limits: contents.grant.limits,
        expires_ms,
        verifies: None,
    };
    Ok((inspection, envelope))
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
    use crate::types::{Grant, Narrowing};
    use crate::{RootKey, attenuate};

    fn token(key: &RootKey) -> String {
        let grant = Grant {
            subject: "ann".into(),
            rights: ["mail:read:orders", "mail:read:jobs.*", "store:put:*"]
                .map(|right| right.parse().expect("valid"))
                .into(),
            limits: BTreeMap::from([("mail.letters_per_day".into(), 7), ("moon.phases".into(), 8)]),
            expires_ms: Some(2000),
        };
        mint(key, &grant).expect("minted")
    }

    #[test]
    fn everything_a_token_says_is_shown() {
        let key = RootKey::generate();
        let rights = ["mail:read:a", "store:put:b*", "store:get:*"].map(|right| right.parse().expect("valid")).into();
        let narrowing = Narrowing { rights, expires_ms: Some(1000) };
        let token = attenuate(&token(&key), &narrowing).expect("narrowed");
        let read = inspect_with(&format!(" {token}\n"), &key.public()).expect("read");
        assert_eq!(read.subject.as_deref(), Some("ann"));
        assert_eq!(read.rights, ["mail:read:orders", "mail:read:jobs.*", "store:put:*"]);
        let limits = [("mail.letters_per_day".to_owned(), 7), ("moon.phases".to_owned(), 8)];
        assert_eq!(read.limits, BTreeMap::from(limits), "those of services nobody knows as well");
        assert_eq!((read.expires_ms, read.verifies), (Some(1000), Some(true)));
        let expected = "check if operation(\"mail:read\"), resource(\"a\") \
                        or operation(\"store:put\"), resource($resource), $resource.starts_with(\"b\") \
                        or operation(\"store:get\");\ncheck if time_ms($now), $now < 1000;\n";
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
