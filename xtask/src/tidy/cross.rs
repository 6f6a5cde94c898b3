//! Rules between files: error codes and their pages, crates and the architecture, dependencies and their reasons.

use crate::finding::Finding;
use crate::tree::SourceFile;
use std::collections::{BTreeMap, BTreeSet};

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const DEPENDENCIES: &str = "docs/dependencies.md";
const ERROR_PAGES: &str = "docs/errors/";

/// Every rule that needs more than one file.
pub fn check(files: &[SourceFile]) -> Vec<Finding> {
    let text_of = |path: &str| files.iter().find(|file| file.path == path).and_then(|file| file.text.as_deref());
    let manifests: Vec<toml::Table> = members(files).filter_map(|(_, text)| text.parse().ok()).collect();
    let mut findings = error_codes(&codes_in_code(files), &error_pages(files));
    match text_of(ARCHITECTURE) {
        Some(text) => findings.extend(unnamed_crates(text, &crate_names(files))),
        None => findings.push(Finding::whole(ARCHITECTURE, "missing")),
    }
    let workspace = text_of("Cargo.toml").and_then(|text| text.parse().ok()).unwrap_or_default();
    let dependencies = workspace_dependencies(&workspace);
    findings.extend(unused_dependencies(&dependencies, &manifests));
    match text_of(DEPENDENCIES) {
        Some(text) => findings.extend(unexplained_dependencies(text, &dependencies)),
        None => findings.push(Finding::whole(DEPENDENCIES, "missing")),
    }
    findings
}

/// The manifests of the workspace's members, with their paths.
fn members(files: &[SourceFile]) -> impl Iterator<Item = (&str, &str)> {
    let is_member = |path: &str| path.ends_with("/Cargo.toml");
    files
        .iter()
        .filter(move |file| is_member(&file.path))
        .filter_map(|file| Some((file.path.as_str(), file.text.as_deref()?)))
}

/// `MN` and four digits, standing alone.
fn codes(text: &str) -> BTreeSet<&str> {
    let is_code = |word: &&str| {
        word.len() == 6
            && word.strip_prefix("MN").is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
    };
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(is_code).collect()
}

/// Each error code that product code names, with the first file that does.
fn codes_in_code(files: &[SourceFile]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let is_product = |file: &&SourceFile| {
        file.path.starts_with("crates/") && file.path.contains("/src/") && file.path.ends_with(".rs")
    };
    for file in files.iter().filter(is_product) {
        for code in codes(file.text.as_deref().unwrap_or_default()) {
            found.entry(code.to_owned()).or_insert_with(|| file.path.clone());
        }
    }
    found
}

/// The file names in the folder of error pages, without the extension; an overview page is none.
fn error_pages(files: &[SourceFile]) -> BTreeSet<String> {
    let names = files.iter().filter_map(|file| file.path.strip_prefix(ERROR_PAGES)?.strip_suffix(".md"));
    names.filter(|name| *name != "README").map(str::to_owned).collect()
}

fn error_codes(in_code: &BTreeMap<String, String>, pages: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (code, path) in in_code {
        if !pages.contains(code) {
            findings.push(Finding::whole(path, format!("{code} has no page {ERROR_PAGES}{code}.md")));
        }
    }
    for page in pages {
        if !in_code.contains_key(page) {
            findings.push(Finding::whole(&format!("{ERROR_PAGES}{page}.md"), "no code in crates/*/src uses it"));
        }
    }
    findings
}

/// The package names of the crates under `crates/`.
fn crate_names(files: &[SourceFile]) -> Vec<String> {
    let name = |text: &str| Some(text.parse::<toml::Table>().ok()?.get("package")?.get("name")?.as_str()?.to_owned());
    members(files).filter(|(path, _)| path.starts_with("crates/")).filter_map(|(_, text)| name(text)).collect()
}

fn unnamed_crates(architecture: &str, crates: &[String]) -> Vec<Finding> {
    let is_name_part = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    let words: BTreeSet<&str> = architecture.split(|c: char| !is_name_part(c)).collect();
    let unnamed = crates.iter().filter(|name| !words.contains(name.as_str()));
    unnamed.map(|name| Finding::whole(ARCHITECTURE, format!("says nothing about the crate {name}"))).collect()
}

/// The third-party crates in `[workspace.dependencies]`.
fn workspace_dependencies(workspace: &toml::Table) -> BTreeSet<String> {
    let table = workspace.get("workspace").and_then(|table| table.get("dependencies")).and_then(toml::Value::as_table);
    let foreign = table.into_iter().flatten().filter(|(_, value)| value.get("path").is_none());
    foreign.map(|(name, _)| name.clone()).collect()
}

fn unused_dependencies(dependencies: &BTreeSet<String>, manifests: &[toml::Table]) -> Vec<Finding> {
    let mut used: BTreeSet<&str> = BTreeSet::new();
    for manifest in manifests {
        used.extend(crate::layers::dependency_tables(manifest).flat_map(|(_, table)| table.keys().map(String::as_str)));
    }
    let unused = dependencies.iter().filter(|name| !used.contains(name.as_str()));
    unused.map(|name| Finding::whole("Cargo.toml", format!("no crate uses the workspace dependency {name}"))).collect()
}

fn unexplained_dependencies(document: &str, dependencies: &BTreeSet<String>) -> Vec<Finding> {
    let mut listed: BTreeSet<&str> = BTreeSet::new();
    let mut findings = Vec::new();
    for (line, number) in document.lines().zip(1..) {
        for name in leading_names(line) {
            listed.insert(name);
            if !dependencies.contains(name) {
                findings.push(Finding::at(DEPENDENCIES, number, format!("{name} is no workspace dependency")));
            }
        }
    }
    let missing = dependencies.iter().filter(|name| !listed.contains(name.as_str()));
    findings.extend(missing.map(|name| Finding::whole(DEPENDENCIES, format!("says nothing about {name}"))));
    findings
}

/// The names in backticks with which a table row or a bullet begins: one, or several with commas between.
fn leading_names(line: &str) -> Vec<&str> {
    let trimmed = line.trim_start();
    let Some(mut rest) = ["| ", "- ", "* "].iter().find_map(|marker| trimmed.strip_prefix(marker)) else {
        return Vec::new();
    };
    let mut names = Vec::new();
    while let Some((name, after)) = rest.trim_start().strip_prefix('`').and_then(|quoted| quoted.split_once('`')) {
        names.push(name);
        match after.trim_start().strip_prefix(',') {
            Some(more) => rest = more,
            None => break,
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn codes_stand_alone() {
        assert_eq!(codes("\"MN0001\", (MN0042): XMN0003 MN00045 MN12 MN_001"), BTreeSet::from(["MN0001", "MN0042"]));
    }

    #[test]
    fn codes_and_pages_match() {
        let in_code = BTreeMap::from([("MN0001".to_owned(), "crates/a/src/lib.rs".to_owned())]);
        assert_eq!(error_codes(&in_code, &set(&["MN0001"])), []);
        assert_eq!(error_codes(&in_code, &set(&[])).len(), 1);
        assert_eq!(error_codes(&in_code, &set(&["MN0001", "MN0002", "notes"])).len(), 2);
    }

    #[test]
    fn codes_are_looked_for_in_product_code_only() {
        let file = |path: &str| SourceFile { path: path.into(), bytes: 0, text: Some("MN0001".into()) };
        assert_eq!(codes_in_code(&[file("crates/a/src/b.rs")]).len(), 1);
        assert_eq!(codes_in_code(&[file("crates/a/tests/b.rs"), file("xtask/src/b.rs"), file("README.md")]).len(), 0);
    }

    #[test]
    fn every_crate_is_named() {
        let crates = ["ron-types".to_owned(), "sim".to_owned()];
        assert_eq!(unnamed_crates("`ron-types` and sim.", &crates), []);
        assert_eq!(unnamed_crates("ron-types-extra and simple", &crates).len(), 2);
    }

    #[test]
    fn own_crates_are_no_third_party() {
        let text =
            "[workspace.dependencies]\nours = { path = \"crates/ours\" }\ntheirs = \"1\"\nmore = { version = \"1\" }\n";
        assert_eq!(workspace_dependencies(&text.parse().unwrap()), set(&["theirs", "more"]));
    }

    #[test]
    fn unused_dependencies_are_found() {
        let manifest: toml::Table =
            "[dev-dependencies]\na.workspace = true\n[target.'cfg(loom)'.dependencies]\nb = \"1\"\n".parse().unwrap();
        assert_eq!(unused_dependencies(&set(&["a", "b"]), std::slice::from_ref(&manifest)), []);
        assert_eq!(unused_dependencies(&set(&["a", "b", "c"]), &[manifest]).len(), 1);
    }

    #[test]
    fn every_dependency_is_explained_and_nothing_else() {
        let dependencies = set(&["tokio", "serde", "http"]);
        let good = "| crate | why |\n|---|---|\n| `tokio` | it runs |\n- `serde`, `http`: words, not `json`\n";
        assert_eq!(unexplained_dependencies(good, &dependencies), []);
        assert_eq!(unexplained_dependencies("- `tokio`: it runs\n", &dependencies).len(), 2);
        let extra = format!("{good}* `left-pad` pads\n");
        assert_eq!(
            unexplained_dependencies(&extra, &dependencies),
            [Finding::at(DEPENDENCIES, 5, "left-pad is no workspace dependency")]
        );
    }
}
