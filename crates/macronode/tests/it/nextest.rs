//! The names in .config/nextest.toml are names of tests: one that matches nothing would lose its setting in silence.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The names of all black-box tests, as this executable lists them.
pub fn tests() -> Vec<String> {
    let itself = std::env::current_exe().expect("a test knows its executable");
    let listed = Command::new(itself).args(["--list", "--format", "terse"]).output().expect("it lists its tests");
    let listed = String::from_utf8(listed.stdout).expect("names are text");
    listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

/// The profiles of the file, and the overrides of all of them.
fn tables() -> (Vec<toml::Table>, Vec<toml::Table>) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../.config/nextest.toml");
    let file: toml::Table = std::fs::read_to_string(path).expect("the file").parse().expect("TOML");
    let tables = |value: &toml::Value| value.as_table().cloned();
    let profiles: Vec<toml::Table> =
        file["profile"].as_table().expect("profiles").values().filter_map(tables).collect();
    let lists = profiles.iter().filter_map(|profile| profile.get("overrides")?.as_array());
    let overrides = lists.flatten().filter_map(tables).collect();
    (profiles, overrides)
}

/// All filters of the file.
fn filters() -> Vec<String> {
    let (profiles, overrides) = tables();
    let of_profiles = profiles.iter().filter_map(|profile| profile.get("default-filter")?.as_str());
    of_profiles.chain(overrides.iter().filter_map(|one| one.get("filter")?.as_str())).map(str::to_owned).collect()
}

/// The filter of the tests that have the machine to themselves.
fn filter_of_those_alone() -> String {
    let alone = tables().1.into_iter().find(|one| one.contains_key("threads-required")).expect("an override for them");
    alone["filter"].as_str().expect("a filter").to_owned()
}

/// Predicates of a filter as words: `package(macronode)`, `test(#gates::*)`.
fn predicates(filter: &str) -> Vec<(String, String)> {
    let words = filter.split(|c: char| c.is_whitespace() || "|&-".contains(c)).map(|word| word.trim_start_matches('('));
    let split = words.filter_map(|word| word.split_once('('));
    split.map(|(name, rest)| (name.to_owned(), rest.trim_end_matches(')').to_owned())).collect()
}

/// Whether a predicate names this test: `=name` is all of it, `#start*` its beginning.
fn names(predicate: &str, test: &str) -> bool {
    let glob = predicate.strip_prefix('#').map(|glob| glob.strip_suffix('*').unwrap_or(glob));
    match (predicate.strip_prefix('='), glob) {
        (Some(name), _) => name == test,
        (_, Some(start)) => !start.contains('*') && test.starts_with(start),
        _ => panic!("test({predicate}): write it as test(=name) or test(#module::*), which this test can check"),
    }
}

#[test]
fn every_filter_of_nextest_matches_a_test() {
    let tests = tests();
    let mut checked = 0;
    for filter in filters() {
        for (predicate, argument) in predicates(&filter) {
            match predicate.as_str() {
                "package" => assert_eq!(argument, "macronode", "{filter}"),
                "kind" => assert_eq!(argument, "test", "{filter}"),
                "test" => {
                    assert!(tests.iter().any(|test| names(&argument, test)), "no test is called {argument}: {filter}");
                    checked += 1;
                }
                other => panic!("{other}({argument}) is not checked here: {filter}"),
            }
        }
    }
    assert!(checked > 20, "the filters were read: {checked}");
}

/// A test that measures beside others would find the machine busy each time, and leave its bound open.
#[test]
fn every_module_that_measures_has_the_machine_to_itself() {
    let alone = predicates(&filter_of_those_alone()).into_iter().filter(|(predicate, _)| predicate == "test");
    let alone: Vec<String> = alone.map(|(_, argument)| argument).collect();
    let suites = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let mut checked = 0;
    for (module, source) in modules(&suites, "") {
        if source.contains(concat!(".", "measure(")) {
            let is_named = alone.iter().any(|name| name[1..].starts_with(&module) || names(name, &module));
            assert!(is_named, "{module} measures and is not named in .config/nextest.toml");
            checked += 1;
        }
    }
    assert!(checked >= 8, "the modules were read: {checked}");
}

/// Each module below a folder as `gates::drain::`, with its source.
fn modules(folder: &Path, above: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder of suites") {
        let path = entry.expect("readable").path();
        let module = format!("{above}{}::", path.file_stem().expect("a name").to_string_lossy());
        if path.is_dir() {
            found.extend(modules(&path, &module));
        } else {
            found.push((module, std::fs::read_to_string(&path).expect("readable")));
        }
    }
    found
}

#[test]
fn predicates_are_read_and_matched() {
    let filter = "package(macronode) & (\n test(#gates::*)\n | test(=a::b)\n) - test(=a::c)";
    let words = predicates(filter);
    let words: Vec<(&str, &str)> = words.iter().map(|(name, argument)| (name.as_str(), argument.as_str())).collect();
    assert_eq!(words, [("package", "macronode"), ("test", "#gates::*"), ("test", "=a::b"), ("test", "=a::c")]);
    assert!(names("#gates::*", "gates::drain::x") && !names("#gates::*", "mailbox::gates::x"));
    assert!(names("=a::b", "a::b") && !names("=a::b", "a::bc"));
}
