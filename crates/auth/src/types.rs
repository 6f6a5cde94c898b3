//! Grants, narrowings, the bearers of tokens, and what can be wrong with them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use ron_types::limits::{CAPABILITY_LIMITS_MAX, CAPABILITY_RIGHTS_MAX};
use ron_types::names;

use crate::capabilities::is_limit;
use crate::right::Right;

/// Longest name of a subject or a resource in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 128;

/// The bearer of a token, as far as the node knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The name given when the token was minted.
    pub name: Arc<str>,
    /// Limits by their names with the service. Those that no service of this node enforces are kept and have no effect,
    /// so that a token can be taken to a node that runs other services.
    pub limits: BTreeMap<String, u64>,
    /// First millisecond since 1970 at which the token is no longer good.
    pub expires_ms: Option<u64>,
    /// True for the operator of the node, who may do everything.
    pub is_operator: bool,
}

/// What a new token allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Name of the bearer: letters, digits and `-_.:@/`.
    pub subject: String,
    /// Everything the bearer may do.
    pub rights: Vec<Right>,
    /// Limits by their names with the service, such as `mail.letters_per_day`.
    pub limits: BTreeMap<String, u64>,
    /// First millisecond since 1970 at which the token is no longer good.
    pub expires_ms: Option<u64>,
}

/// What an existing token is narrowed to; what is left empty stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Narrowing {
    /// Of what the token allows, only what one of these covers.
    pub rights: Vec<Right>,
    /// First millisecond since 1970 at which the token is no longer good, if it is not earlier already.
    pub expires_ms: Option<u64>,
}

/// Why a token, a key or a list of revocations could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// The text is no token.
    #[error("this is not a capability token: {0}")]
    Malformed(String),
    /// A block carries something that no node or client of this project writes.
    #[error("block {block} of the token carries {what}; a node takes only what it grants and what narrows that")]
    Foreign {
        /// Number of the block; 0 is the minted one.
        block: usize,
        /// What it carries.
        what: &'static str,
    },
    /// A name is not written as it must be.
    #[error("{what} {text:?} is not allowed: {rule}")]
    BadName {
        /// Kind of name.
        what: &'static str,
        /// The name as it was given.
        text: String,
        /// How such names are written.
        rule: &'static str,
    },
    /// No service of this build declares it.
    #[error("no {what} is called {text:?}; known: {known}")]
    Unknown {
        /// Kind of name.
        what: String,
        /// The name as it was given.
        text: String,
        /// Every name there is.
        known: String,
    },
    /// A grant allows nothing, or a narrowing narrows nothing.
    #[error("{0}")]
    Empty(&'static str),
    /// More items than a token may have.
    #[error("a token has at most {max} {what}")]
    TooMany {
        /// Kind of item.
        what: &'static str,
        /// Maximum number of them.
        max: usize,
    },
    /// A number or a token is larger than tokens may be.
    #[error("{0} is too large")]
    TooLarge(&'static str),
    /// The token was closed to further narrowing.
    #[error("this token was sealed: it cannot be narrowed")]
    Sealed,
    /// The text is no signing key.
    #[error("this is not an Ed25519 signing key: {0}")]
    BadKey(String),
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Subject {
    /// A bearer without limits whose token never expires.
    pub fn named(name: &str) -> Self {
        Subject { name: name.into(), limits: BTreeMap::new(), expires_ms: None, is_operator: false }
    }

    /// Somebody who may do everything.
    pub fn operator(name: &str) -> Self {
        Subject { is_operator: true, ..Subject::named(name) }
    }

    /// The limit of this name, if the token has it.
    pub fn limit(&self, name: &str) -> Option<u64> {
        self.limits.get(name).copied()
    }
}

const SUBJECT_RULE: &str = "1 to 128 letters, digits or any of -_.:@/";
const TAKEN_RULE: &str =
    "`anonymous` and `operator` are names of the node itself, and `epoch/` begins the accounts of pots";
const LIMIT_RULE: &str = "service.name, such as mail.letters_per_day";

impl Grant {
    pub(crate) fn validate(&self) -> Result<(), AuthError> {
        check_name("the subject", &self.subject, SUBJECT_RULE, "-_.:@/")?;
        // What a subject does is counted under its name, and paid under it.
        if names::is_reserved(&self.subject) || names::is_pot(&self.subject) {
            let text = self.subject.clone();
            return Err(AuthError::BadName { what: "the subject", text, rule: TAKEN_RULE });
        }
        if self.rights.is_empty() {
            return Err(AuthError::Empty("a token must allow something: service:verb:resource"));
        }
        check_rights(&self.rights)?;
        if self.limits.len() > CAPABILITY_LIMITS_MAX {
            return Err(AuthError::TooMany { what: "limits", max: CAPABILITY_LIMITS_MAX });
        }
        self.limits.iter().try_for_each(|(name, value)| check_limit(name, *value))
    }
}

impl Narrowing {
    pub(crate) fn validate(&self) -> Result<(), AuthError> {
        if self.rights.is_empty() && self.expires_ms.is_none() {
            return Err(AuthError::Empty("say what to narrow the token to: rights or an expiry"));
        }
        check_rights(&self.rights)
    }
}

fn check_rights(rights: &[Right]) -> Result<(), AuthError> {
    if rights.len() > CAPABILITY_RIGHTS_MAX {
        return Err(AuthError::TooMany { what: "rights", max: CAPABILITY_RIGHTS_MAX });
    }
    rights.iter().try_for_each(Right::validate)
}

fn check_limit(name: &str, value: u64) -> Result<(), AuthError> {
    if !is_limit(name) {
        return Err(AuthError::BadName { what: "the limit", text: name.to_owned(), rule: LIMIT_RULE });
    }
    // Zero is a limit as any other: nothing of it.
    i64::try_from(value).map(drop).map_err(|_| AuthError::TooLarge("the limit"))
}

/// Names are plain, because the text form of a token does not escape them.
pub(crate) fn check_name(what: &'static str, text: &str, rule: &'static str, marks: &str) -> Result<(), AuthError> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || marks.contains(c);
    let is_name = (1..=NAME_BYTES_MAX).contains(&text.len()) && text.chars().all(is_allowed);
    is_name.then_some(()).ok_or_else(|| AuthError::BadName { what, text: text.to_owned(), rule })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::right::ResourceScope;

    fn right(text: &str) -> Right {
        text.parse().expect("valid")
    }

    #[test]
    fn a_grant_names_somebody_and_something() {
        let good = Grant {
            subject: "a@b/c".into(),
            rights: vec![right("mail:read:*")],
            limits: BTreeMap::from([("mail.letters_per_day".to_owned(), 1)]),
            expires_ms: None,
        };
        good.validate().expect("valid");
        let with = |right: Right| Grant { rights: vec![right], ..good.clone() };
        let limited = |name: &str, value| Grant { limits: BTreeMap::from([(name.to_owned(), value)]), ..good.clone() };
        for bad in [
            Grant { subject: String::new(), ..good.clone() },
            Grant { subject: "a\")".into(), ..good.clone() },
            Grant { subject: "anonymous".into(), ..good.clone() },
            Grant { subject: "operator".into(), ..good.clone() },
            Grant { subject: "epoch/2026-11".into(), ..good.clone() },
            Grant { rights: vec![], ..good.clone() },
            with(Right { scope: ResourceScope::Prefix(String::new()), ..right("mail:read:a") }),
            with(Right { scope: ResourceScope::Exact("a\", \"b".into()), ..right("mail:read:a") }),
            with(Right { action: "mail".into(), ..right("mail:read:a") }),
            with(Right { action: "mail:read\"".into(), ..right("mail:read:a") }),
            limited("letters", 1),
            limited("mail.letters\"", 1),
            limited("mail.letters", u64::MAX),
        ] {
            assert!(bad.validate().is_err(), "{bad:?}");
        }
        limited("mail.letters", 0).validate().expect("none of it is a limit, too");
    }

    #[test]
    fn rights_and_limits_are_bounded() {
        let rights = |count| (0..count).map(|number| right(&format!("mail:read:{number}"))).collect::<Vec<_>>();
        let limits = |count| (0..count).map(|number| (format!("mail.limit{number}"), 1)).collect();
        let grant = |r, l| Grant { subject: "a".into(), rights: rights(r), limits: limits(l), expires_ms: None };
        grant(CAPABILITY_RIGHTS_MAX, CAPABILITY_LIMITS_MAX).validate().expect("within bounds");
        assert!(grant(CAPABILITY_RIGHTS_MAX + 1, 0).validate().is_err());
        assert!(grant(1, CAPABILITY_LIMITS_MAX + 1).validate().is_err());
        let narrowing = |count| Narrowing { rights: rights(count), expires_ms: None };
        narrowing(CAPABILITY_RIGHTS_MAX).validate().expect("within bounds");
        assert!(narrowing(CAPABILITY_RIGHTS_MAX + 1).validate().is_err() && narrowing(0).validate().is_err());
    }
}
