//! Debian packages unpacked into the target folder: tools that need not, or cannot, be installed beside our own.

use crate::runner::{CommandLine, Session};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};

const FOLDER: &str = "target/debian";
/// Shared libraries of the packages, for programs that run from there.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// A folder that holds unpacked packages as if it were `/`.
pub struct Unpacked(PathBuf);

impl Unpacked {
    /// Downloads and unpacks what is not there yet; nothing is installed, so nobody has to be root.
    pub fn with(session: &mut Session, packages: &[&str]) -> Result<Unpacked> {
        let root = session.root.join(FOLDER);
        for package in packages {
            let folder = root.join("downloads").join(package);
            let done = folder.join("unpacked");
            if done.is_file() {
                println!("{package}: here");
                continue;
            }
            std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
            download(&folder, package)?;
            let archive = archive_in(&folder)?;
            let unpack = format!("dpkg -x {} {}", archive.display(), root.display());
            session.run_line(&unpack)?;
            std::fs::write(&done, "").with_context(|| done.display().to_string())?;
        }
        Ok(Unpacked(root))
    }

    /// A file of the packages.
    pub fn file(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    /// A command that finds the shared libraries of the packages.
    pub fn command(&self, command: CommandLine) -> CommandLine {
        command.env("LD_LIBRARY_PATH", &self.file(LIBRARIES).display().to_string())
    }
}

fn download(folder: &Path, package: &str) -> Result<()> {
    let command = CommandLine::new(&format!("apt-get download {package}"));
    let outcome = command.run(folder)?;
    ensure!(outcome.code == Some(0), "{package} cannot be downloaded (try apt-get update): {command}");
    Ok(())
}

fn archive_in(folder: &Path) -> Result<PathBuf> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut archives = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let archive = archives.find(|path| path.extension().is_some_and(|extension| extension == "deb"));
    archive.with_context(|| format!("no package in {}", folder.display()))
}
