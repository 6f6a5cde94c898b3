//! Debian packages unpacked into the target folder: tools that need not, or cannot, be installed beside our own.

use crate::runner::{CommandLine, Session};
use crate::tree;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};

const FOLDER: &str = "debian";
/// Shared libraries of the packages, for programs that run from there.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// A folder that holds unpacked packages as if it were `/`.
pub struct Unpacked(PathBuf);

impl Unpacked {
    /// Downloads and unpacks what is not there yet; nothing is installed, so nobody has to be root.
    pub fn with(session: &mut Session, packages: &[&str]) -> Result<Unpacked> {
        let root = tree::target_folder(&session.root).join(FOLDER);
        // Packages of other versions belong to another list: half of the old one would be a mixture.
        let list = packages.join("\n");
        for package in packages {
            let folder = root.join("downloads").join(package);
            let done = folder.join("unpacked");
            if std::fs::read_to_string(&done).is_ok_and(|earlier| earlier == list) {
                println!("{package}: here");
                continue;
            }
            empty(&folder)?;
            if download(&folder, package).is_err() {
                // The lists of packages may be older than the packages.
                session.run_line("apt-get update")?;
                empty(&folder)?;
                download(&folder, package)?;
            }
            let archive = archive_in(&folder)?;
            let unpack = format!("dpkg -x {} {}", archive.display(), root.display());
            session.run_line(&unpack)?;
            std::fs::write(&done, &list).with_context(|| done.display().to_string())?;
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

/// A download that was cut off must not be taken for the package.
fn empty(folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())
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
