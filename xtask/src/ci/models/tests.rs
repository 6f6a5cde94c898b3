//! What keeps the two workspaces apart where they must be, and alike where one uses what the other built.

use super::*;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Features of our crates that only models turn on.
const MODEL_FEATURES: [&str; 3] = ["loom", "mutation", "shuttle"];

fn cargo(arguments: &str) -> String {
    let mut command = Command::new("cargo");
    // The graph of units is an option that the stable compiler has but hides.
    command.args(arguments.split_whitespace()).current_dir(tree::root()).env("RUSTC_BOOTSTRAP", "1");
    let output = command.output().expect("cargo runs");
    assert!(output.status.success(), "cargo {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

fn words(value: &Value, key: &str) -> Vec<String> {
    list(value, key).filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Every place where a package turns on a feature for models, its own by default or that of another, except in a
/// feature that is for models itself.
fn model_features_on(metadata: &Value) -> Vec<String> {
    let is_for_models = |feature: &str| MODEL_FEATURES.contains(&feature);
    let mut found = Vec::new();
    for package in list(metadata, "packages") {
        let name = package["name"].as_str().unwrap_or_default();
        for dependency in list(package, "dependencies").filter(|dependency| dependency["path"].is_string()) {
            let on = words(dependency, "features").into_iter().filter(|feature| is_for_models(feature));
            found.extend(on.map(|feature| format!("{name}: {}/{feature}", dependency["name"])));
        }
        let features = package["features"].as_object().into_iter().flatten();
        for (feature, turned_on) in features.filter(|(feature, _)| !is_for_models(feature)) {
            let on = turned_on.as_array().into_iter().flatten().filter_map(Value::as_str);
            let on = on.filter(|word| is_for_models(word.rsplit('/').next().unwrap_or(word)));
            found.extend(on.map(|word| format!("{name}: {feature} = {word}")));
        }
    }
    found
}

#[test]
fn no_member_of_the_main_workspace_turns_on_a_feature_for_models() {
    let metadata = cargo("metadata --no-deps --offline --format-version 1");
    let metadata: Value = serde_json::from_str(&metadata).expect("JSON");
    assert!(list(&metadata, "packages").count() > 20, "the members are there");
    assert_eq!(model_features_on(&metadata), Vec::<String>::new());
    for feature in MODEL_FEATURES {
        let has = |package: &Value| package["features"].get(feature).is_some();
        assert!(list(&metadata, "packages").any(has), "no crate has the feature {feature}");
    }
}

#[test]
fn planted_features_for_models_are_found() {
    let package = |dependency: Value, features: Value| {
        let package = serde_json::json!({ "name": "a", "dependencies": [dependency], "features": features });
        model_features_on(&serde_json::json!({ "packages": [package] })).len()
    };
    let ours = |feature: &str| serde_json::json!({ "name": "ron-cells", "path": "/a", "features": [feature] });
    assert_eq!(package(ours("loom"), Value::Null), 1);
    assert_eq!(package(ours("quic"), Value::Null), 0);
    assert_eq!(package(serde_json::json!({ "name": "other", "features": ["loom"] }), Value::Null), 0);
    for (feature, turned_on, expected) in [
        ("default", "shuttle", 1),
        ("quic", "ron-cells/shuttle", 1),
        ("quic", "ron-cells?/loom", 1),
        ("mutation", "ron-policy/mutation", 0),
        ("loom", "dep:loom", 0),
        ("quic", "dep:quinn", 0),
    ] {
        assert_eq!(package(Value::Null, serde_json::json!({ feature: [turned_on] })), expected, "{turned_on}");
    }
}

/// The versions of each crate of others in a lock file.
fn versions(lock: &str) -> BTreeMap<String, BTreeSet<String>> {
    let table: toml::Table = lock.parse().expect("a lock file");
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in table["package"].as_array().expect("packages") {
        let word = |key: &str| package.get(key).and_then(toml::Value::as_str).map(str::to_owned);
        if let (Some(name), Some(version), Some(_)) = (word("name"), word("version"), word("source")) {
            versions.entry(name).or_default().insert(version);
        }
    }
    versions
}

#[test]
fn both_workspaces_use_the_same_versions() {
    let read = |path: &str| versions(&std::fs::read_to_string(tree::root().join(path)).expect("a lock file"));
    let (main, models) = (read("Cargo.lock"), read("tools/models/Cargo.lock"));
    let differ = models.iter().filter(|(name, versions)| main.get(*name).is_some_and(|main| !versions.is_subset(main)));
    let differ: Vec<String> = differ.map(|(name, versions)| format!("{name} {versions:?} {:?}", main[name])).collect();
    assert!(
        differ.is_empty(),
        "versions in tools/models/Cargo.lock that are not in Cargo.lock; repair with\n  \
         cp Cargo.lock tools/models/ && cargo metadata --manifest-path {MANIFEST} --format-version 1 > /dev/null\n{}",
        differ.join("\n")
    );
}

/// How each crate of others is built, by its id and by whether it runs in the compiler: features and optimisation.
fn builds(arguments: &str) -> BTreeMap<(String, bool), BTreeSet<String>> {
    let graph = cargo(&format!("test {arguments} --locked --unit-graph -Z unstable-options"));
    let graph: Value = serde_json::from_str(&graph).expect("JSON");
    let units: Vec<&Value> = list(&graph, "units").collect();
    let mut next: Vec<(u64, bool)> = list(&graph, "roots").filter_map(|root| Some((root.as_u64()?, false))).collect();
    let mut seen = BTreeSet::new();
    let mut builds: BTreeMap<(String, bool), BTreeSet<String>> = BTreeMap::new();
    while let Some((index, is_called_by_compiler)) = next.pop() {
        let unit = units[usize::try_from(index).expect("an index")];
        let kind = unit["target"]["kind"][0].as_str().unwrap_or_default();
        let in_compiler = is_called_by_compiler || ["proc-macro", "custom-build"].contains(&kind);
        if !seen.insert((index, in_compiler)) {
            continue;
        }
        let id = unit["pkg_id"].as_str().unwrap_or_default();
        if !id.contains("path+file") && kind != "custom-build" {
            let profile = &unit["profile"];
            let build = format!("{:?}, {}, {}", words(unit, "features"), profile["opt_level"], profile["debuginfo"]);
            builds.entry((id.to_owned(), in_compiler)).or_default().insert(build);
        }
        next.extend(list(unit, "dependencies").filter_map(|used| Some((used["index"].as_u64()?, in_compiler))));
    }
    builds
}

/// Without its feature a checker tries the standard atomics, finds nothing, and passes.
#[test]
fn each_checker_has_its_own_atomics() {
    for (package, feature) in [("loom-models", "loom"), ("shuttle-models", "shuttle")] {
        let graph =
            cargo(&format!("test --manifest-path {MANIFEST} -p {package} --locked --unit-graph -Z unstable-options"));
        let graph: Value = serde_json::from_str(&graph).expect("JSON");
        let cells = list(&graph, "units").filter(|unit| unit["target"]["name"] == "ron_cells");
        let features: BTreeSet<Vec<String>> = cells.map(|unit| words(unit, "features")).collect();
        assert_eq!(features, BTreeSet::from([vec![feature.to_owned()]]), "{package}");
    }
}

/// Models of loom use little that the main workspace builds, and are built without it in a moment.
#[test]
fn crates_of_others_are_built_as_in_the_main_workspace() {
    let main = builds("--workspace --tests");
    for package in ["mutation-models", "shuttle-models"] {
        let models = builds(&format!("--manifest-path {MANIFEST} -p {package}"));
        let shared = models.iter().filter_map(|(key, build)| Some((key, build, main.get(key)?)));
        assert!(shared.clone().count() > 100, "{package}: most crates of others are shared");
        let differ = shared.filter(|(_, build, main)| build != main);
        let differ: Vec<String> = differ
            .map(|((id, in_compiler), build, main)| {
                let table = if *in_compiler { "build-dependencies" } else { "dependencies" };
                let name = id.rsplit('#').next().unwrap_or(id);
                format!("{name} in [{table}]\n  is built with     {build:?}\n  and elsewhere with {main:?}")
            })
            .collect();
        assert!(
            differ.is_empty(),
            "{package} has crates built a second time; say their features in \
             tools/models/main-features/Cargo.toml, or drop them there:\n{}",
            differ.join("\n")
        );
    }
}
