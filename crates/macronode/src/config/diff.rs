//! What changed between two configurations, and what each change takes.

use ron_types::settings::Reload;
use toml::{Table, Value};

use super::error::{ConfigErrors, Origin};
use super::keys::{Key, keys};
use super::layers::{Loaded, compose};
use super::{Config, PERMITS_SECTION, rules};

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

    /// What will be in force once a reload has loaded `wanted`: values that need another process keep what they are
    /// here, all others are taken up. Refused where these cannot stand together, however well the file goes by itself:
    /// a key that waits for a restart must not be what another one relies on.
    pub fn after_reload(&self, wanted: &Loaded) -> Result<Config, ConfigErrors> {
        let (now, mut table, mut origins) = (self.to_table(), wanted.config.to_table(), wanted.origins.clone());
        for key in keys().iter().filter(|key| key.reload == Reload::Process) {
            let kept = key.value_in(&now).cloned();
            if kept.as_ref() != key.value_in(&table) {
                origins.0.insert(key.path.clone(), Origin::InForce);
                key.replace(&mut table, kept);
            }
        }
        let composed = compose(table).expect("values that were read once can be read again");
        match rules::broken(&composed, &origins) {
            broken if broken.is_empty() => Ok(composed),
            broken => Err(ConfigErrors(broken)),
        }
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
