//! The files that git knows (tracked, or new and not ignored), read once for all rules.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// One file of the tree.
pub struct SourceFile {
    /// Path from the root, with forward slashes.
    pub path: String,
    /// Size on disk.
    pub bytes: u64,
    /// Content, if it is UTF-8.
    pub text: Option<String>,
}

/// The root of the repository; asked at run time, so that a shared target folder cannot point elsewhere.
pub fn root() -> PathBuf {
    let manifest_dir = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
    let manifest_dir = PathBuf::from(manifest_dir);
    manifest_dir.parent().map_or_else(|| manifest_dir.clone(), Path::to_path_buf)
}

/// Where cargo puts what it builds: `CARGO_TARGET_DIR`, else `target` at the root.
pub fn target_folder(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder))
}

/// Reads every file that git knows, in path order.
pub fn read(root: &Path) -> Result<Vec<SourceFile>> {
    let output = Command::new("git")
        .args(["ls-files", "-co", "--exclude-standard", "-z"])
        .current_dir(root)
        .output()
        .context("git ls-files")?;
    ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim());
    let listing = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    let mut paths: Vec<&str> = listing.split_terminator('\0').collect();
    paths.sort_unstable();
    paths.dedup();
    // A file deleted in the checkout but still in the index is on its way out: not our business.
    let present = paths.into_iter().filter(|path| root.join(path).is_file());
    present.map(|path| read_file(root, path)).collect()
}

fn read_file(root: &Path, path: &str) -> Result<SourceFile> {
    let content = std::fs::read(root.join(path)).with_context(|| format!("reading {path}"))?;
    let bytes = content.len() as u64;
    Ok(SourceFile { path: path.to_owned(), bytes, text: String::from_utf8(content).ok() })
}
