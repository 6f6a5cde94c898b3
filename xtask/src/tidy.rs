//! House style as rules over the text of every file that git knows; each rule is pure: text in, findings out.

use crate::finding::{self, Finding};
use crate::tree::{self, SourceFile};
use anyhow::Result;
use std::path::Path;

mod allowed;
mod cross;
mod examples;
mod functions;
mod maps;
mod markdown;
mod rust;
mod services;
mod strays;
mod text;

/// Inputs of fuzz targets. Their bytes are what encoders made of them, even where those happen to be text.
const SEEDS: &str = "fuzz/seeds/";

/// Checks the tree and prints what is untidy.
pub fn run() -> Result<()> {
    finding::report("tidy", check_tree(&tree::root())?)
}

fn check_tree(root: &Path) -> Result<Vec<Finding>> {
    let files = tree::read(root)?;
    let exists = |path: &str| root.join(path).exists();
    let mut findings: Vec<Finding> = files.iter().flat_map(|file| check_file(file, &exists)).collect();
    findings.extend(functions::stale_allowances(&files, allowed::LONG_FUNCTIONS));
    findings.extend(cross::check(&files));
    findings.extend(services::check(&files));
    findings.extend(examples::check(&files));
    Ok(findings)
}

fn check_file(file: &SourceFile, exists: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = text::size(&file.path, file.bytes);
    findings.extend(strays::check(&file.path, file.bytes));
    let Some(content) = file.text.as_ref().filter(|_| !file.path.starts_with(SEEDS)) else { return findings };
    findings.extend(text::check(&file.path, content));
    match file.path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("rs") => {
            findings.extend(rust::check(&file.path, content));
            findings.extend(functions::check(&file.path, content, allowed::LONG_FUNCTIONS));
        }
        Some("md") => {
            findings.extend(markdown::check(&file.path, content, exists));
            findings.extend(maps::check(&file.path, content));
        }
        _ => {}
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        let findings = check_tree(&tree::root()).expect("git lists the files of this repository");
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(lines.is_empty(), "{} findings:\n{}", lines.len(), lines.join("\n"));
    }

    #[test]
    fn each_kind_of_file_meets_its_rules() {
        let check = |path: &str, content: &str| {
            let file = SourceFile { path: path.into(), bytes: content.len() as u64, text: Some(content.into()) };
            check_file(&file, &|_| false).len()
        };
        assert_eq!(check("a.rs", "fn f() {}\n"), 1, "no sentence about the module");
        assert_eq!(check("a.md", "no title\n"), 1);
        assert_eq!(check("a.toml", "a = 1 \n"), 1, "trailing space");
        assert_eq!(check("a.toml", "a = 1\n"), 0);
        assert_eq!(check("fuzz/seeds/usage_csv/rows.seed", "a,1\r\n"), 0, "data, not text");
        assert_eq!(check("fuzz/seeds/usage_csv/rows.seed.orig", "a,1\n"), 1, "a stray among the data");
        assert_eq!(check("a.md", "# A\n\n```mermaid\nflowchart LR\n  a[0](b)\n```\n"), 1, "an invalid map");
        assert_eq!(check("a.toml.orig", "a = 1\n"), 1, "a stray");
    }
}
