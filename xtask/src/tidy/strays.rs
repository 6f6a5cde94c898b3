//! The rule on stray files: what editors, merges and tools leave behind is no part of the repository.

use crate::finding::Finding;

/// Endings of backups and of what a merge or a patch could not place.
const ENDINGS: [(&str, &str); 7] = [
    (".orig", "left by a merge or a patch"),
    (".rej", "left by a patch"),
    (".bak", "a backup; git keeps the old versions"),
    ("~", "an editor's backup"),
    (".swp", "an editor's swap file"),
    (".swo", "an editor's swap file"),
    (".profraw", "the record of a profiled run"),
];

/// Names of files and folders that a desktop or a tool makes for itself.
const NAMES: [(&str, &str); 7] = [
    (".DS_Store", "made by a desktop"),
    ("Thumbs.db", "made by a desktop"),
    (".schemathesis", "a tool's cache"),
    (".hypothesis", "a tool's cache"),
    (".pytest_cache", "a tool's cache"),
    ("__pycache__", "a tool's cache"),
    ("node_modules", "installed packages"),
];

/// Why this file should not be here, if so.
pub fn check(path: &str, bytes: u64) -> Vec<Finding> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let by_ending = ENDINGS.iter().find(|(ending, _)| name.ends_with(ending));
    let by_name = || NAMES.iter().find(|(stray, _)| path.split('/').any(|part| part == *stray));
    let reason = by_ending.or_else(by_name).map(|(_, reason)| *reason).or_else(|| emacs_lock(name));
    match reason {
        Some(reason) => vec![Finding::whole(path, format!("stray file ({reason}): remove it"))],
        None if bytes == 0 => vec![Finding::whole(path, "empty file: remove it, or say in it what it is for")],
        None => Vec::new(),
    }
}

/// `#name#` and `.#name`: Emacs saves by itself under the one and locks with the other.
fn emacs_lock(name: &str) -> Option<&'static str> {
    let is_saved = name.len() > 2 && name.starts_with('#') && name.ends_with('#');
    (is_saved || name.starts_with(".#")).then_some("left by an editor")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strays_are_found_and_sources_are_not() {
        for (path, bytes, expected) in [
            ("crates/a/src/lib.rs", 1, 0),
            ("crates/a/src/invariants.rs.orig", 1, 1),
            ("crates/a/src/lib.rs.rej", 0, 1),
            ("deny.toml.bak", 1, 1),
            ("README.md~", 1, 1),
            (".README.md.swp", 1, 1),
            ("docs/.DS_Store", 1, 1),
            ("tests/clients/python/.schemathesis/cache.json", 1, 1),
            ("tests/clients/node/node_modules/a/index.js", 1, 1),
            ("docs/#notes.md#", 1, 1),
            ("docs/.#notes.md", 1, 1),
            ("docs/empty.md", 0, 1),
            ("docs/origins.md", 1, 0),
            (".gitignore", 1, 0),
        ] {
            assert_eq!(check(path, bytes).len(), expected, "{path}");
        }
    }
}
