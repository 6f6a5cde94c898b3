//! What changed between two configurations, and what each change takes.

use ron_types::settings::Reload;
use toml::{Table, Value};

use super::keys::{Key, keys};
use super::{Config, PERMITS_SECTION};

/// A key whose value differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedKey {
    /// Path of the key.
    pub key: String,
    /// What must happen before the new value takes effect.
    pub reload: Reload,
}

impl Config {
    /// The keys whose values differ, in the order of the documentation.
    pub fn diff(&self, other: &Config) -> Vec<ChangedKey> {
        let (before, after) = (self.to_table(), other.to_table());
        let changed = keys().iter().filter(|key| key.value_in(&before) != key.value_in(&after));
        changed.map(|key: &Key| ChangedKey { key: key.path.clone(), reload: key.reload.clone() }).collect()
    }

    /// The values in the shape of the file.
    pub fn to_table(&self) -> Table {
        const WRITABLE: &str = "every value of a configuration can be written as TOML";
        let mut table = Table::try_from(self).expect(WRITABLE);
        let sections = self.sections.iter().map(|(name, section)| ((*name).to_owned(), section.table.clone()));
        table.extend(sections.map(|(name, section)| (name, Value::Table(section))));
        if !self.permits.is_empty() {
            let permits = Table::try_from(&self.permits).expect(WRITABLE);
            table.insert(PERMITS_SECTION.to_owned(), Value::Table(permits));
        }
        table
    }
}
