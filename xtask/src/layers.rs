//! The order of the crates: who may depend on whom, checked from the manifests.

use crate::finding::{self, Finding};
use crate::tree;
use anyhow::{Context, Result};
use std::path::Path;

/// What crates on the same step may do with each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Siblings {
    /// A crate may use those listed before it.
    InOrder,
    /// Never use each other: they meet through ports or not at all.
    Apart,
}

/// The step of the services: whatever package is called `svc-…` stands on it, without being listed.
const SERVICES: usize = 5;

/// The ladder, lowest step first; a crate may use every crate of a lower step. Names are folders under `crates/`.
const LADDER: &[(Siblings, &[&str])] = &[
    (Siblings::InOrder, &["types", "amnesia"]),
    (Siblings::InOrder, &["cells"]),
    (Siblings::InOrder, &["policy"]),
    (Siblings::InOrder, &["kernel"]),
    (
        Siblings::InOrder,
        &["auth", "oap", "transport", "gossip", "log", "store", "lookup", "calculus", "usage", "ledger"],
    ),
    (Siblings::Apart, &["overlay", "dht", "index", "mailbox", "rewarder", "facets"]),
    (Siblings::Apart, &["admin", "api"]),
    (Siblings::InOrder, &["client", "oap-client"]),
    (Siblings::InOrder, &["macronode"]),
];

/// Development crates beside the ladder: they may use anything, and product code never uses them.
const BESIDE: &[&str] = &["testkit", "sim", "bench", "fuzz", "xtask"];

/// Crates of others that only some of ours may use; a name also stands for its `name-*` companions.
const RESERVED: &[(&str, Reserved, &str)] = &[
    ("axum", Reserved::For(&["admin", "api", "macronode", "testkit", "bench"]), "services do not know HTTP"),
    (
        "hyper",
        Reserved::For(&["admin", "api", "client", "ledger", "macronode", "testkit", "bench"]),
        "services do not know HTTP",
    ),
    ("tokio", Reserved::NotFor(&["types", "cells", "policy"]), "words, atoms and decisions know no runtime"),
    ("clap", Reserved::ForBinaries, "only a program has a command line"),
];

#[derive(Clone, Copy)]
enum Reserved {
    For(&'static [&'static str]),
    NotFor(&'static [&'static str]),
    ForBinaries,
}

/// In which table of the manifest a dependency stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `[dependencies]` and `[build-dependencies]`.
    Normal,
    /// `[dev-dependencies]`.
    Dev,
}

/// What the rules need to know of one crate.
struct Manifest {
    folder: String,
    path: String,
    package: String,
    is_binary: bool,
    dependencies: Vec<(Kind, String)>,
}

/// Checks the manifests and prints what is out of order.
pub fn run() -> Result<()> {
    finding::report("layers", check(&read(&tree::root())?))
}

fn read(root: &Path) -> Result<Vec<Manifest>> {
    let mut folders = vec!["fuzz".to_owned(), "xtask".to_owned()];
    for entry in std::fs::read_dir(root.join("crates")).context("crates/")? {
        folders.push(format!("crates/{}", entry?.file_name().to_string_lossy()));
    }
    folders.retain(|folder| root.join(folder).join("Cargo.toml").is_file());
    folders.sort();
    let read_one = |folder: &String| {
        let path = format!("{folder}/Cargo.toml");
        let text = std::fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
        parse(&path, &text, root.join(folder).join("src/main.rs").is_file()).with_context(|| path)
    };
    folders.iter().map(read_one).collect()
}

fn parse(path: &str, text: &str, has_main: bool) -> Result<Manifest> {
    let table: toml::Table = text.parse()?;
    let package = table.get("package").and_then(|package| package.get("name")).and_then(toml::Value::as_str);
    let folder = path.trim_end_matches("/Cargo.toml").rsplit('/').next().unwrap_or(path);
    let named = |kind, name: &String, value: &toml::Value| {
        (kind, value.get("package").and_then(toml::Value::as_str).unwrap_or(name).to_owned())
    };
    Ok(Manifest {
        folder: folder.to_owned(),
        path: path.to_owned(),
        package: package.context("no package name")?.to_owned(),
        is_binary: has_main || table.contains_key("bin"),
        dependencies: dependency_tables(&table)
            .flat_map(|(kind, table)| table.iter().map(move |(name, value)| named(kind, name, value)))
            .collect(),
    })
}

/// Every dependency table of a manifest, those for one target included.
pub fn dependency_tables(manifest: &toml::Table) -> impl Iterator<Item = (Kind, &toml::Table)> {
    let targets = manifest.get("target").and_then(toml::Value::as_table).into_iter().flatten();
    let holders = std::iter::once(manifest).chain(targets.filter_map(|(_, target)| target.as_table()));
    holders.flat_map(|holder| {
        let kinds =
            [("dependencies", Kind::Normal), ("build-dependencies", Kind::Normal), ("dev-dependencies", Kind::Dev)];
        kinds.into_iter().filter_map(|(key, kind)| Some((kind, holder.get(key)?.as_table()?)))
    })
}

fn check(manifests: &[Manifest]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in manifests {
        if step_of(manifest).is_none() && !BESIDE.contains(&manifest.folder.as_str()) {
            let message = format!("{} has no place in the ladder of xtask/src/layers.rs", manifest.folder);
            findings.push(Finding::whole(&manifest.path, message));
        }
        for (kind, name) in &manifest.dependencies {
            let ours = manifests.iter().find(|other| other.package == *name);
            let complaint = match ours {
                Some(used) => complaint_about_ours(manifest, *kind, used),
                None => complaint_about_theirs(manifest, *kind, name),
            };
            findings.extend(complaint.map(|message| Finding::whole(&manifest.path, message)));
        }
    }
    findings
}

/// The step and the place on it.
fn step_of(manifest: &Manifest) -> Option<(usize, usize)> {
    let on_step = |(step, (_, crates)): (usize, &(Siblings, &[&str]))| {
        crates.iter().position(|name| *name == manifest.folder).map(|place| (step, place))
    };
    let service = || manifest.package.starts_with("svc-").then_some((SERVICES, usize::MAX));
    LADDER.iter().enumerate().find_map(on_step).or_else(service)
}

fn complaint_about_ours(user: &Manifest, kind: Kind, used: &Manifest) -> Option<String> {
    let (user_step, user_place) = step_of(user)?;
    let Some((used_step, used_place)) = step_of(used) else {
        let is_beside = BESIDE.contains(&used.folder.as_str());
        return (is_beside && kind == Kind::Normal)
            .then(|| format!("{} is for development: only a dev-dependency of {}", used.folder, user.folder));
    };
    let may_use_siblings = LADDER[user_step].0 == Siblings::InOrder && used_place < user_place;
    let is_below = used_step < user_step || (used_step == user_step && may_use_siblings);
    (!is_below).then(|| format!("{} must not use {}: it is not below it", user.folder, used.folder))
}

fn complaint_about_theirs(user: &Manifest, kind: Kind, name: &str) -> Option<String> {
    let covers = |reserved: &str| name == reserved || name.strip_prefix(reserved).is_some_and(|r| r.starts_with('-'));
    let folder = user.folder.as_str();
    let (_, _, reason) = RESERVED.iter().find(|(reserved, rule, _)| {
        covers(reserved)
            && match rule {
                Reserved::For(folders) => !folders.contains(&folder),
                Reserved::NotFor(folders) => folders.contains(&folder),
                Reserved::ForBinaries => !user.is_binary,
            }
    })?;
    (kind == Kind::Normal).then(|| format!("{folder} must not use {name}: {reason}"))
}

#[cfg(test)]
mod tests;
