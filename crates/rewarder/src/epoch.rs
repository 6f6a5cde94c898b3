//! Names of epochs: safe in paths, URLs and account names.

use std::fmt;
use std::str::FromStr;

/// What the account of a pot begins with. No payee's id may, or a payout could change what a pot has.
pub(crate) use ron_types::names::POT_PREFIX;
use serde::{Deserialize, Serialize};

/// Longest name, in bytes.
const BYTES_MAX: usize = 128;
/// Whether a ledger can pay somebody of this id.
pub fn is_payable(id: &str) -> bool {
    (1..=ron_ledger::limits::ACCOUNT_BYTES_MAX).contains(&id.len()) && !id.starts_with(POT_PREFIX) && !id.contains('\0')
}

/// Name of an epoch: 1 to 128 of `A-Z a-z 0-9 . _ -`, not beginning with a dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EpochId(String);

/// Text that names no epoch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no name of an epoch: 1 to 128 of A-Z a-z 0-9 . _ - and not a dot first")]
pub struct NotEpoch(String);

impl EpochId {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Account that an epoch's payouts come from.
    pub fn pot(&self) -> String {
        format!("{POT_PREFIX}{}", self.0)
    }
}

impl FromStr for EpochId {
    type Err = NotEpoch;

    fn from_str(text: &str) -> Result<EpochId, NotEpoch> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let is_name = (1..=BYTES_MAX).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(is_plain);
        if is_name { Ok(EpochId(text.to_owned())) } else { Err(NotEpoch(text.chars().take(BYTES_MAX).collect())) }
    }
}

impl TryFrom<String> for EpochId {
    type Error = NotEpoch;

    fn try_from(text: String) -> Result<EpochId, NotEpoch> {
        text.parse()
    }
}

impl From<EpochId> for String {
    fn from(epoch: EpochId) -> String {
        epoch.0
    }
}

impl fmt::Display for EpochId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_everywhere() {
        let longest = "x".repeat(128);
        for fine in ["2026-11", "a", "v1.2_x", longest.as_str()] {
            assert_eq!(fine.parse::<EpochId>().map(String::from).as_deref(), Ok(fine));
        }
        let too_long = "x".repeat(129);
        for wrong in ["", ".", "..", ".hidden", "a/b", "a b", "ä", "a\n", too_long.as_str()] {
            assert!(wrong.parse::<EpochId>().is_err(), "{wrong}");
        }
    }
}
