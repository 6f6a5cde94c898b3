//! What a change can touch: from the files that differ to packages, from packages to steps and tests.

use crate::tree::{self, SourceFile};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Changes that a step can notice.
#[derive(Clone, Copy, Debug)]
pub enum Touch {
    /// Every change: the step is quick, or prepares others.
    Always,
    /// Changes of Rust code and of manifests.
    Rust,
    /// Changes of files whose path begins with one of these.
    Files(&'static [&'static str]),
    /// Changes of these packages, of what they depend on, and of files whose path begins with one of those.
    Packages(&'static [&'static str], &'static [&'static str]),
}

/// Files on which the build of everything depends, or which run the steps.
const EVERYTHING: [&str; 9] = [
    "Cargo.toml",
    "Cargo.lock",
    "rust-toolchain.toml",
    ".cargo/",
    ".config/nextest.toml",
    "xtask/src/ci",
    "xtask/src/runner.rs",
    "xtask/src/tally.rs",
    "xtask/src/tree.rs",
];
/// Ends of the names of Rust code, of manifests, and of what the tools for code are set by.
const RUST: [&str; 5] = [".rs", "Cargo.toml", "clippy.toml", "rustfmt.toml", "deny.toml"];
/// Packages whose tests read the repository itself, documents and contract included.
const READERS: &str = "package(=xtask) | package(=macronode-bench) & test(/^head::/) | \
                       package(=macronode) & test(/^(contract|docs|errors|readme)::/)";

/// A package of the workspace.
struct Package {
    name: String,
    /// Path of its folder from the root.
    folder: String,
    /// Packages of the workspace that it uses.
    uses: Vec<String>,
}

/// The files that differ, and the packages they belong to.
pub struct Change {
    files: BTreeSet<String>,
    packages: BTreeSet<String>,
    /// For each package, all that it depends on.
    closures: BTreeMap<String, BTreeSet<String>>,
    everything: bool,
}

impl Change {
    /// What differs between a commit and the files as they are, new files included.
    pub fn since(root: &Path, base: Option<&str>) -> Result<Change> {
        let base = base.map_or_else(|| default_base(root), |base| Ok(base.to_owned()))?;
        // Of a file that was renamed both names count: its old one may be read somewhere.
        let differing = git(root, &["diff", "--name-only", "--no-renames", "-z", &base, "--"])?;
        let new = git(root, &["ls-files", "--others", "--exclude-standard", "-z"])?;
        let names = differing.split_terminator('\0').chain(new.split_terminator('\0'));
        let files: BTreeSet<String> = names.map(str::to_owned).collect();
        println!("{} files differ from {base}", files.len());
        Ok(Change::of(files, &packages(root)?, &tree::read(root)?))
    }

    fn of(files: BTreeSet<String>, packages: &[Package], sources: &[SourceFile]) -> Change {
        let mut touched = BTreeSet::new();
        for file in &files {
            let owner = owner(file, packages).map(|package| package.name.clone());
            // Code is read by its own package; data may be read by the tests of any.
            if owner.is_none() || !file.ends_with(".rs") {
                touched.extend(mentioning(file, packages, sources));
            }
            touched.extend(owner);
        }
        let closures =
            packages.iter().map(|package| (package.name.clone(), closure(&package.name, packages))).collect();
        let everything = files.iter().any(|file| EVERYTHING.iter().any(|start| file.starts_with(start)));
        Change { files, packages: touched, closures, everything }
    }

    /// Whether a step can notice the change.
    pub fn touches(&self, touch: Touch) -> bool {
        let file_begins =
            |starts: &[&str]| self.files.iter().any(|file| starts.iter().any(|start| file.starts_with(start)));
        let is_touched = match touch {
            Touch::Always => true,
            Touch::Rust => self.files.iter().any(|file| RUST.iter().any(|end| file.ends_with(end))),
            Touch::Files(starts) => file_begins(starts),
            Touch::Packages(packages, starts) => {
                let depends = |name: &str| self.closures.get(name).is_none_or(|all| !all.is_disjoint(&self.packages));
                file_begins(starts) || packages.iter().any(|name| depends(name))
            }
        };
        is_touched || self.everything
    }

    /// nextest's filter for the tests that can notice the change; none where all can.
    pub fn tests(&self) -> Option<String> {
        if self.everything {
            return None;
        }
        let packages = self.packages.iter().map(|name| format!("rdeps(={name})"));
        Some(packages.chain([READERS.to_owned()]).collect::<Vec<_>>().join(" | "))
    }
}

/// Where this branch left the main one, as others see it or as it is here; on main itself without a remote, the last
/// commit.
fn default_base(root: &Path) -> Result<String> {
    let main = ["origin/main", "origin/HEAD", "main"];
    let left = main.iter().find_map(|main| git(root, &["merge-base", "HEAD", main]).ok());
    left.map(|commit| commit.trim().to_owned()).context("no branch main to compare with: name a commit")
}

fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").args(arguments).current_dir(root).output().context("git")?;
    ensure!(output.status.success(), "git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    String::from_utf8(output.stdout).context("a file name is not UTF-8")
}

fn packages(root: &Path) -> Result<Vec<Package>> {
    let mut command = Command::new("cargo");
    command.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]).current_dir(root);
    let output = command.output().context("cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let listed = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    listed.iter().map(|package| read_package(root, package).context("a package of cargo metadata")).collect()
}

fn read_package(root: &Path, package: &serde_json::Value) -> Option<Package> {
    let folder = Path::new(package["manifest_path"].as_str()?).parent()?.strip_prefix(root).ok()?;
    let uses = package["dependencies"].as_array()?.iter().filter(|dependency| dependency["path"].is_string());
    Some(Package {
        name: package["name"].as_str()?.to_owned(),
        folder: folder.to_str()?.to_owned(),
        uses: uses.filter_map(|dependency| dependency["name"].as_str().map(str::to_owned)).collect(),
    })
}

/// The package whose folder holds the file.
fn owner<'a>(file: &str, packages: &'a [Package]) -> Option<&'a Package> {
    let holds = |package: &&Package| file.strip_prefix(&package.folder).is_some_and(|rest| rest.starts_with('/'));
    packages.iter().filter(holds).max_by_key(|package| package.folder.len())
}

/// The packages with code that names the file, because a test or a build may read it.
fn mentioning(file: &str, packages: &[Package], sources: &[SourceFile]) -> Vec<String> {
    let name = file.rsplit('/').next().unwrap_or(file);
    let names_it = |source: &&SourceFile| {
        source.path.ends_with(".rs") && source.text.as_deref().is_some_and(|text| text.contains(name))
    };
    sources.iter().filter(names_it).filter_map(|source| Some(owner(&source.path, packages)?.name.clone())).collect()
}

fn closure(name: &str, packages: &[Package]) -> BTreeSet<String> {
    let mut all = BTreeSet::from([name.to_owned()]);
    let mut next = vec![name.to_owned()];
    while let Some(name) = next.pop() {
        let uses = packages.iter().filter(|package| package.name == name).flat_map(|package| &package.uses);
        next.extend(uses.filter(|used| all.insert((*used).clone())).cloned());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(files: &[&str]) -> Change {
        let package = |name: &str, folder: &str, uses: &[&str]| Package {
            name: name.to_owned(),
            folder: folder.to_owned(),
            uses: uses.iter().map(|name| (*name).to_owned()).collect(),
        };
        let packages = [
            package("types", "crates/types", &[]),
            package("log", "crates/log", &["types"]),
            package("oap", "crates/oap", &["types"]),
            package("node", "crates/node", &["log", "oap"]),
            package("fuzz", "fuzz", &["oap"]),
        ];
        let source = |path: &str, text: &str| SourceFile {
            path: path.to_owned(),
            bytes: text.len() as u64,
            text: Some(text.to_owned()),
        };
        let sources = [source("crates/oap/tests/document.rs", "read(\"../../docs/oap-1.md\")")];
        Change::of(files.iter().map(|file| (*file).to_owned()).collect(), &packages, &sources)
    }

    #[test]
    fn a_package_touches_what_depends_on_it() {
        let log = change(&["crates/log/src/lib.rs"]);
        assert!(log.touches(Touch::Packages(&["node"], &[])));
        assert!(log.touches(Touch::Packages(&["oap", "log"], &[])));
        assert!(!log.touches(Touch::Packages(&["oap"], &[])));
        assert!(log.touches(Touch::Rust) && log.touches(Touch::Always));
        assert!(!log.touches(Touch::Files(&["specs/"])));
        assert_eq!(log.tests().as_deref(), Some(format!("rdeps(=log) | {READERS}").as_str()));
    }

    #[test]
    fn a_document_touches_the_packages_that_name_it_and_those_that_read_all() {
        let document = change(&["docs/oap-1.md"]);
        assert!(document.touches(Touch::Packages(&["oap"], &[])));
        assert!(!document.touches(Touch::Packages(&["log"], &[])));
        assert!(!document.touches(Touch::Rust));
        assert_eq!(document.tests().as_deref(), Some(format!("rdeps(=oap) | {READERS}").as_str()));
        let other = change(&["docs/sqs.md"]);
        assert_eq!(other.tests().as_deref(), Some(READERS));
    }

    #[test]
    fn what_everything_is_built_from_touches_everything() {
        for file in ["Cargo.lock", ".cargo/config.toml", ".config/nextest.toml", "xtask/src/ci/steps.rs"] {
            let all = change(&[file]);
            assert!(all.touches(Touch::Packages(&["oap"], &[])) && all.touches(Touch::Files(&["specs/"])), "{file}");
            assert_eq!(all.tests(), None, "{file}");
        }
    }

    #[test]
    fn a_package_that_nobody_knows_is_always_touched() {
        assert!(change(&["docs/sqs.md"]).touches(Touch::Packages(&["gone"], &[])), "better once too often than never");
    }

    #[test]
    fn a_package_outside_crates_owns_its_files() {
        for file in ["fuzz/src/oap.rs", "fuzz/seeds/oap_header/request.seed"] {
            let fuzz = change(&[file]);
            assert!(fuzz.touches(Touch::Packages(&["fuzz"], &[])), "{file}");
            assert!(!fuzz.touches(Touch::Packages(&["node"], &[])), "{file}");
            assert_eq!(fuzz.tests().as_deref(), Some(format!("rdeps(=fuzz) | {READERS}").as_str()), "{file}");
        }
        assert!(change(&["crates/oap/src/lib.rs"]).touches(Touch::Packages(&["fuzz"], &[])));
    }

    #[test]
    fn a_folder_is_not_taken_for_one_whose_name_it_begins() {
        assert!(change(&["crates/logs/src/lib.rs"]).packages.is_empty());
    }
}
