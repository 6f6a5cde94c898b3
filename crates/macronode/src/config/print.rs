//! The effective configuration as a TOML file.

use std::fmt::Write as _;

use super::keys::{keys, sections};
use super::layers::Loaded;

/// The effective values as TOML; with a comment saying where each came from if asked.
pub fn print(loaded: &Loaded, with_sources: bool) -> String {
    let table = loaded.config.to_table();
    let mut text = String::new();
    for section in sections() {
        if !section.is_empty() {
            let _ = writeln!(text, "\n[{section}]");
        }
        for key in keys().iter().filter(|key| key.section() == *section) {
            let line = match key.value_in(&table) {
                Some(value) => format!("{} = {value}", key.name()),
                None => format!("# {} is not set", key.name()),
            };
            let _ = match with_sources {
                true => writeln!(text, "{line:<44} # {}", loaded.origins.of(&key.path)),
                false => writeln!(text, "{line}"),
            };
        }
    }
    text
}
