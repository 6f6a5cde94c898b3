//! The table against the manifest, the programs and the tests: whatever one names the others have.

use std::collections::BTreeSet;
use std::fs;

use crate::{TESTED, seeds};

fn in_table() -> BTreeSet<String> {
    fuzz::targets().map(|target| target.name.to_owned()).collect()
}

fn names_in(folder: &str) -> impl Iterator<Item = String> {
    let files = fs::read_dir(seeds::package().join(folder)).expect("the folder is listed");
    files.map(|file| file.expect("the folder is listed").file_name().into_string().expect("a name of letters"))
}

#[test]
fn names_are_unique() {
    assert_eq!(in_table().len(), fuzz::targets().count());
}

#[test]
fn every_target_is_a_program_of_the_manifest() {
    let text = fs::read_to_string(seeds::package().join("Cargo.toml")).expect("the manifest is read");
    let manifest: toml::Table = text.parse().expect("a manifest");
    let programs = manifest["bin"].as_array().expect("programs");
    let name = |program: &toml::Value| program["name"].as_str().expect("a name").to_owned();
    assert_eq!(programs.iter().map(name).collect::<BTreeSet<_>>(), in_table());
    assert_eq!(programs.len(), in_table().len());
    for program in programs {
        let name = name(program);
        assert_eq!(program["path"].as_str(), Some(format!("fuzz_targets/{name}.rs").as_str()));
        let features = program["required-features"].as_array().expect("features");
        assert!(features.iter().any(|feature| feature.as_str() == Some("libfuzzer")), "{name} is built by all");
    }
}

/// A program that runs another body than its name says would leave that of its name without a fuzzer.
#[test]
fn every_program_runs_the_body_of_its_name() {
    for file in names_in("fuzz_targets") {
        let name = file.strip_suffix(".rs").expect("Rust");
        assert!(in_table().contains(name), "{file} is no target of the table");
        let text = fs::read_to_string(seeds::package().join("fuzz_targets").join(&file)).expect("the program is read");
        let (area, what) = name.split_once('_').expect("<crate>_<what>");
        assert!(text.contains(&format!("fuzz::{area}::{what}(bytes)")), "{file} runs another body");
    }
    assert_eq!(names_in("fuzz_targets").count(), in_table().len());
}

#[test]
fn every_target_has_a_test() {
    assert_eq!(TESTED.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>(), in_table());
}

#[test]
fn every_folder_of_seeds_has_a_target() {
    assert_eq!(names_in("seeds").collect::<BTreeSet<_>>(), in_table());
}
