//! Crates whose documentation has examples, which are run, and crates that have none, for which nothing is started.

use crate::finding::Finding;
use crate::tree::SourceFile;

/// First words of a fence in a doc comment whose text is run as a test.
const RUN: [&str; 4] = ["rust", "no_run", "should_panic", "compile_fail"];

/// Compares what each library says of its examples with its sources.
pub fn check(files: &[SourceFile]) -> Vec<Finding> {
    let manifests = files.iter().filter_map(|file| Some((file, file.path.strip_suffix("/Cargo.toml")?)));
    let is_library = |folder: &str| files.iter().any(|file| file.path == format!("{folder}/src/lib.rs"));
    let libraries = manifests.filter(|(_, folder)| is_library(folder));
    libraries.filter_map(|(manifest, folder)| check_library(manifest, &sources(files, folder))).collect()
}

fn sources<'a>(files: &'a [SourceFile], folder: &str) -> Vec<&'a str> {
    let folder = format!("{folder}/src/");
    let code = files.iter().filter(|file| file.path.starts_with(&folder) && file.path.ends_with(".rs"));
    code.filter_map(|file| file.text.as_deref()).collect()
}

fn check_library(manifest: &SourceFile, sources: &[&str]) -> Option<Finding> {
    let table: toml::Table = manifest.text.as_deref()?.parse().ok()?;
    let are_run = table.get("lib").and_then(|lib| lib.get("doctest")).and_then(toml::Value::as_bool).unwrap_or(true);
    let message = match (sources.iter().any(|source| has_example(source)), are_run) {
        (true, false) => "its documentation has an example, which `doctest = false` leaves out",
        (false, true) => "its documentation has no example: say `doctest = false` below `[lib]`",
        _ => return None,
    };
    Some(Finding::whole(&manifest.path, message))
}

/// Whether a doc comment holds code that rustdoc runs.
fn has_example(source: &str) -> bool {
    let mut is_open = false;
    for line in source.lines().map(str::trim_start) {
        let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        let Some(fence) = comment.and_then(|text| text.trim_start().strip_prefix("```")) else { continue };
        is_open = !is_open;
        let language = fence.trim();
        if is_open && (language.is_empty() || RUN.iter().any(|word| language.starts_with(word))) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(lib_section: &str, source: &str) -> usize {
        let file = |path: &str, text: String| SourceFile { path: path.into(), bytes: 0, text: Some(text) };
        let manifest = format!("[package]\nname = \"a\"\n{lib_section}");
        let files = [file("crates/a/Cargo.toml", manifest), file("crates/a/src/lib.rs", source.to_owned())];
        check(&files).len()
    }

    #[test]
    fn what_a_library_says_of_its_examples_is_so() {
        let none = "[lib]\ndoctest = false\n";
        let (example, shown) = ("/// ```\n/// f();\n/// ```\n", "/// ```text\n/// f\n/// ```\n");
        assert_eq!([findings(none, "fn f() {}\n"), findings("", example)], [0, 0]);
        assert_eq!([findings(none, example), findings("", "fn f() {}\n")], [1, 1]);
        assert_eq!([findings(none, shown), findings("", shown)], [0, 1]);
        assert_eq!(findings(none, "//! ```no_run\n//! f();\n//! ```\n"), 1);
    }

    #[test]
    fn programs_have_no_examples() {
        let manifest = SourceFile { path: "xtask/Cargo.toml".into(), bytes: 0, text: Some(String::new()) };
        assert_eq!(check(&[manifest]).len(), 0);
    }
}
