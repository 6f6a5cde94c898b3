//! What changed between two configurations, and what each change takes.

use toml::Table;

use super::Config;
use super::keys::{KEYS, Key, Reload};

/// A key whose value differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedKey {
    /// The path of the key.
    pub key: String,
    /// What it takes.
    pub reload: Reload,
}

impl Config {
    /// The keys whose values differ, in the order of the documentation.
    pub fn diff(&self, other: &Config) -> Vec<ChangedKey> {
        let (before, after) = (self.to_table(), other.to_table());
        let changed = KEYS.iter().filter(|key| key.value_in(&before) != key.value_in(&after));
        changed.map(|key: &Key| ChangedKey { key: key.path.to_owned(), reload: key.reload }).collect()
    }

    /// The values in the shape of the file.
    pub fn to_table(&self) -> Table {
        Table::try_from(self).expect("every value of a configuration can be written as TOML")
    }
}
