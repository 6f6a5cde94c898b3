//! How a scratch node is started.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Context as _;

use crate::node::Node;
use crate::wait::PATIENCE_MAX;

/// Arguments and environment of a scratch node. Its ports are free ones, its directory is its own.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    binary: PathBuf,
    arguments: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    config: Option<String>,
    configures_api: bool,
    folder: Option<PathBuf>,
    amnesia: bool,
    /// Kind of runtime; the one that `MACRO_TEST_RUNTIME` names if not given.
    runtime: Option<String>,
}

impl NodeOptions {
    pub(crate) fn new(binary: PathBuf) -> Self {
        NodeOptions {
            binary,
            arguments: Vec::new(),
            variables: Vec::new(),
            config: None,
            configures_api: false,
            folder: None,
            amnesia: false,
            runtime: None,
        }
    }

    /// With the development routes.
    pub fn dev(self) -> Self {
        self.arg("--dev")
    }

    /// With killing and freezing allowed.
    pub fn chaos(self) -> Self {
        self.arg("--chaos")
    }

    /// Keeping nothing on disk.
    pub fn amnesia(mut self) -> Self {
        self.amnesia = true;
        self.arg("--amnesia")
    }

    /// On this kind of runtime: `multi` or `current`.
    pub fn runtime(mut self, kind: &str) -> Self {
        self.runtime = Some(kind.to_owned());
        self
    }

    /// One more argument.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.arguments.push(argument.as_ref().to_owned());
        self
    }

    /// One more environment variable.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// A configuration file with this text: `macronode.toml` in the node's scratch directory.
    pub fn config(mut self, text: impl Into<String>) -> Self {
        self.config = Some(text.into());
        self
    }

    /// With the address of the API from the configuration file, so that a reload can move it.
    pub fn configures_api(mut self) -> Self {
        self.configures_api = true;
        self
    }

    /// With its scratch directory in this folder, such as a file system of its own.
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Starts the node and waits until it is ready; fails with what the node said on stderr.
    pub async fn start(self) -> anyhow::Result<Node> {
        let mut node = self.spawn()?;
        node.wait_ready(PATIENCE_MAX).await?;
        Ok(node)
    }

    /// Starts the node without waiting: its addresses are not known before [`Node::locate`].
    pub fn spawn(self) -> anyhow::Result<Node> {
        let folder = self.folder.unwrap_or_else(std::env::temp_dir);
        let dir = tempfile::Builder::new().prefix("macronode-test").tempdir_in(folder)?;
        let mut command = Command::new(&self.binary);
        command.arg("run");
        let by_flag = |plane: &&str| *plane != "--api" || !self.configures_api;
        for plane in ["--api", "--admin", "--oap"].into_iter().filter(by_flag) {
            command.args([plane, "127.0.0.1:0"]);
        }
        let configured = || std::env::var("MACRO_TEST_RUNTIME").unwrap_or_else(|_| "multi".to_owned());
        let runtime = self.runtime.clone().unwrap_or_else(configured);
        command.args(["--runtime", &runtime]).arg("--data-dir").arg(dir.path().join("macronode-data"));
        if let Some(text) = &self.config {
            let file = dir.path().join("macronode.toml");
            fs::write(&file, text)?;
            command.arg("--config").arg(file);
        }
        command.args(&self.arguments).current_dir(dir.path());
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"MACRO_") {
                command.env_remove(name);
            }
        }
        command.env_remove("NOTIFY_SOCKET").env("NO_COLOR", "1").envs(self.variables);
        // Files rather than pipes: nobody has to read along, and everything is there once the node has ended.
        command.stdin(Stdio::null());
        command.stdout(File::create(dir.path().join("stdout.log"))?);
        command.stderr(File::create(dir.path().join("stderr.log"))?);
        let child = command.spawn().with_context(|| format!("{} cannot be started", self.binary.display()))?;
        Ok(Node::new(child, dir, self.amnesia))
    }
}
