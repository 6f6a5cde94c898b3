//! Amounts in the smallest unit of an asset, written as decimal strings wherever they leave the process.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// An amount in minor units. JSON numbers lose digits past 2^53, so it is always a string there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Units(pub u128);

/// Text that is not an amount.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a whole number in decimal digits without sign or leading zero, below 2^128")]
pub struct NotUnits(pub String);

impl Units {
    /// Whether it is nothing.
    pub const fn is_zero(&self) -> bool {
        self.0 == 0
    }
}

impl FromStr for Units {
    type Err = NotUnits;

    /// One number has one text, so that equal documents are equal bytes.
    fn from_str(text: &str) -> Result<Units, NotUnits> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
        let number = is_plain.then(|| text.parse().ok()).flatten();
        number.map(Units).ok_or_else(|| NotUnits(text.chars().take(64).collect()))
    }
}

impl fmt::Display for Units {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Units {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Units {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Units, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}
