//! What each client needs from its registry: installed once under the target folder, and again when the pins change.

use super::Folders;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where a client's packages come from.
#[derive(Clone, Copy)]
pub enum Packages {
    /// A Python environment of this name with these requirements.
    Python {
        /// Its folder in the cache.
        environment: &'static str,
        /// The file of pins.
        requirements: &'static str,
    },
    /// `package-lock.json`.
    Npm,
    /// Another `package-lock.json`, for scripts that need a newer Node than the machine may have: it pins that as well.
    NpmWithNode {
        /// Folder of the scripts, and of what is installed in the cache.
        folder: &'static str,
    },
    /// `Cargo.lock` of the client's own workspace.
    Cargo,
    /// Those of all others, for the examples of the README.
    All,
}

/// Why a client cannot run.
pub enum Unready {
    /// Its packages could not be had: not our fault, said aloud.
    NotInstalled(String),
    /// They were there, and something of ours is wrong.
    Broken(anyhow::Error),
}

impl From<anyhow::Error> for Unready {
    fn from(error: anyhow::Error) -> Self {
        Unready::Broken(error)
    }
}

impl Packages {
    /// Today's Python clients.
    pub const PYTHON: Packages = Packages::Python { environment: "python", requirements: "requirements.txt" };
    /// boto3 from before it spoke JSON.
    pub const PYTHON_QUERY: Packages =
        Packages::Python { environment: "python-query", requirements: "requirements-query.txt" };

    /// What makes up requests from a description.
    pub const PYTHON_SCHEMATHESIS: Packages =
        Packages::Python { environment: "python-schemathesis", requirements: "requirements-schemathesis.txt" };

    /// A library of signed envelopes.
    pub const PYTHON_DSSE: Packages =
        Packages::Python { environment: "python-dsse", requirements: "requirements-dsse.txt" };

    /// BLAKE3, which the client of OAP/1 needs beside Python itself.
    pub const PYTHON_OAP: Packages =
        Packages::Python { environment: "python-oap", requirements: "requirements-oap.txt" };

    /// Fetches and installs the packages; nothing is built.
    pub fn install(self, folders: &Folders) -> Result<(), Unready> {
        match self {
            Packages::Python { environment, requirements } => {
                python(folders, environment, requirements, "").map(|_command| ())
            }
            Packages::Npm => npm(folders, "").map(|_command| ()),
            Packages::NpmWithNode { folder } => npm_with_node(folders, folder, "").map(|_command| ()),
            Packages::Cargo => cargo_fetch(folders).map(|_sources| ()),
            Packages::All => Ok(()),
        }
    }

    /// Makes the packages available; the command that runs the script with them.
    pub fn ready(self, folders: &Folders, script: &str) -> Result<Command, Unready> {
        match self {
            Packages::Python { environment, requirements } => python(folders, environment, requirements, script),
            Packages::Npm => npm(folders, script),
            Packages::NpmWithNode { folder } => npm_with_node(folders, folder, script),
            Packages::Cargo => cargo(folders),
            Packages::All => super::readme::ready(folders),
        }
    }
}

/// File beside installed packages that holds the pins they were installed by.
const STAMP: &str = "installed";
/// The modules of the payee's page, from the folder of the clients' scripts: the page's own code is what is tried.
const PAGE_MODULES: &str = "../../crates/api/src/rewarder/page";

fn python(folders: &Folders, environment: &str, requirements: &str, script: &str) -> Result<Command, Unready> {
    let sources = folders.sources.join("python");
    let home = folders.cache.join(environment);
    let pins = sources.join(requirements);
    let interpreter = home.join("bin/python");
    install(&home, &pins, || {
        quietly(Command::new("python3").args(["-m", "venv"]).arg(&home))?;
        let pip = ["-m", "pip", "install", "--quiet", "--no-input", "--requirement"];
        quietly(Command::new(&interpreter).args(pip).arg(&pins))
    })?;
    let mut command = Command::new(interpreter);
    command.arg(script).current_dir(sources);
    Ok(command)
}

/// Installs what the lock file pins, without running any of it, and puts the scripts beside it: a script looks for
/// modules where it lies.
pub fn npm_packages(sources: &Path, home: &Path) -> Result<(), Unready> {
    install(home, &sources.join("package-lock.json"), || npm_ci(sources, home))?;
    Ok(replace_scripts(sources, home)?)
}

fn npm_ci(sources: &Path, home: &Path) -> Result<()> {
    copy(sources, home)?;
    quietly(Command::new("npm").args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(home))
}

fn npm(folders: &Folders, script: &str) -> Result<Command, Unready> {
    let sources = folders.sources.join("node");
    let home = folders.cache.join("node");
    npm_packages(&sources, &home)?;
    let modules = home.join("page");
    std::fs::create_dir_all(&modules).context("a folder for the page's modules")?;
    copy(&folders.sources.join(PAGE_MODULES), &modules)?;
    let mut command = Command::new("node");
    command.arg(script).current_dir(home);
    Ok(command)
}

/// The packages of Node are optional, because each is for one kind of machine: npm says nothing if none came.
fn npm_with_node(folders: &Folders, folder: &str, script: &str) -> Result<Command, Unready> {
    let sources = folders.sources.join(folder);
    let home = folders.cache.join(folder);
    let node = home.join("node_modules/.bin/node");
    install(&home, &sources.join("package-lock.json"), || {
        npm_ci(&sources, &home)?;
        quietly(Command::new(&node).arg("--version")).context("the Node that package-lock.json pins")
    })?;
    replace_scripts(&sources, &home)?;
    for (owner, shared) in [("node", "harness.mjs"), ("helia", "node.mjs")] {
        std::fs::copy(folders.sources.join(owner).join(shared), home.join(shared)).context(shared)?;
    }
    let mut command = Command::new(node);
    command.arg(script).current_dir(home);
    Ok(command)
}

/// Fetching may fail for want of a registry; building what was fetched may not.
fn cargo(folders: &Folders) -> Result<Command, Unready> {
    let sources = cargo_fetch(folders)?;
    quietly(&mut cargo_build(folders, &sources))?;
    Ok(Command::new(folders.target.join("debug/sqs-client-job")))
}

fn cargo_fetch(folders: &Folders) -> Result<PathBuf, Unready> {
    let sources = folders.sources.join("rust");
    let fetched = quietly(Command::new("cargo").args(["fetch", "--locked", "--quiet"]).current_dir(&sources));
    fetched.map_err(|error| Unready::NotInstalled(format!("{error:#}")))?;
    Ok(sources)
}

/// Builds what was fetched, in the target folder of the node: half of the SDK's crates are the node's, too.
pub fn cargo_build(folders: &Folders, sources: &Path) -> Command {
    let mut command = Command::new("cargo");
    command.args(["build", "--locked", "--offline", "--quiet", "--target-dir"]).arg(&folders.target);
    command.current_dir(sources);
    command
}

/// Installs unless this very file of pins was installed before.
fn install(home: &Path, pins: &Path, install: impl FnOnce() -> Result<()>) -> Result<(), Unready> {
    let wanted = std::fs::read(pins).with_context(|| pins.display().to_string())?;
    let stamp = home.join(STAMP);
    if std::fs::read(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    if home.exists() {
        std::fs::remove_dir_all(home).context("packages of other versions")?;
    }
    std::fs::create_dir_all(home).context("a folder for packages")?;
    println!("installing what {} pins", pins.display());
    install().map_err(|error| Unready::NotInstalled(format!("{error:#}")))?;
    std::fs::write(stamp, wanted).context("the stamp of what is installed")?;
    Ok(())
}

/// Puts the scripts beside the packages, in place of those of an earlier run: what is no longer in the repository must
/// not be found there.
fn replace_scripts(sources: &Path, home: &Path) -> Result<()> {
    for entry in std::fs::read_dir(home).with_context(|| home.display().to_string())? {
        let path = entry?.path();
        if path.ends_with(STAMP) || path.ends_with("node_modules") {
            continue;
        }
        let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        removed.with_context(|| path.display().to_string())?;
    }
    copy(sources, home)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    for entry in std::fs::read_dir(from).with_context(|| from.display().to_string())? {
        let path: PathBuf = entry?.path();
        if let (true, Some(name)) = (path.is_file(), path.file_name()) {
            std::fs::copy(&path, to.join(name)).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

/// Runs it without a word; the end of what it said on failure.
pub fn quietly(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| command.get_program().display().to_string())?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let end = lines[lines.len().saturating_sub(3)..].join(" / ");
    ensure!(output.status.success(), "{}: {}: {end}", command.get_program().display(), output.status);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("xtask-packages-{}-{name}", std::process::id()))
    }

    #[test]
    fn packages_are_installed_once_for_each_set_of_pins() {
        let (home, pins) = (folder("home"), folder("pins"));
        let mut count = 0;
        for (text, expected) in [("a==1", 1), ("a==1", 1), ("a==2", 2), ("a==2", 2)] {
            std::fs::write(&pins, text).expect("the pins");
            let installed = install(&home, &pins, || {
                count += 1;
                Ok(())
            });
            assert!(installed.is_ok());
            assert_eq!(count, expected, "{text}");
        }
        std::fs::remove_dir_all(home).and_then(|()| std::fs::remove_file(pins)).expect("cleaned up");
    }

    #[test]
    fn what_cannot_be_installed_is_told_and_tried_again() {
        let (home, pins) = (folder("broken"), folder("broken-pins"));
        std::fs::write(&pins, "a==1").expect("the pins");
        for _ in 0..2 {
            let outcome = install(&home, &pins, || {
                quietly(Command::new("sh").args(["-c", "echo 'no such registry' >&2; exit 1"]))
            });
            let Err(Unready::NotInstalled(reason)) = outcome else { panic!("it cannot be installed") };
            assert!(reason.contains("no such registry"), "{reason}");
        }
        std::fs::remove_dir_all(home).and_then(|()| std::fs::remove_file(pins)).expect("cleaned up");
    }
}
