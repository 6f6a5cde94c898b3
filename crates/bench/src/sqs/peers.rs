//! Other servers that speak SQS: those that install from PyPI, and those that somebody has started already.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::Context as _;
use rustix::process::Signal;
use serde_json::json;

use super::client::{Queue, SqsClient};
use super::sign::Signer;
use crate::mailbox::cell::Payload;
use crate::mailbox::child::{Running, Start};
use crate::mailbox::scratch::{Scratch, target_folder};
use crate::mailbox::target::{Id, Promise, System, Target};
use crate::process::free_address;

/// A server of a Python package.
struct Packaged {
    id: Id,
    name: &'static str,
    package: &'static str,
    /// Requirement for pip, with the extras needed to serve.
    requirement: &'static str,
    program: &'static str,
    arguments: fn(SocketAddr) -> Vec<String>,
    variables: fn(SocketAddr) -> Vec<(String, String)>,
}

const PACKAGED: [Packaged; 2] = [
    Packaged {
        id: Id::Moto,
        name: "moto",
        package: "moto",
        requirement: "moto[server]",
        program: "moto_server",
        arguments: |address| {
            ["-H", &address.ip().to_string(), "-p", &address.port().to_string()].map(str::to_owned).into()
        },
        variables: |_| Vec::new(),
    },
    Packaged {
        id: Id::MiniStack,
        name: "MiniStack",
        package: "ministack",
        requirement: "ministack",
        program: "ministack",
        arguments: |_| Vec::new(),
        variables: |address| {
            let (host, port) = (address.ip().to_string(), address.port().to_string());
            [("BIND_HOST", host.as_str()), ("GATEWAY_PORT", &port), ("SERVICES", "sqs")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into()
        },
    },
];

/// Servers a developer may also use that no package index installs in one step, and what was found when it was tried.
const BY_HAND: [(&str, &str); 3] = [
    ("ElasticMQ", "its releases are jars outside the package indexes; the one that npm has is 0.7.1 of 2013"),
    ("GoAWS", "it is built from source or comes as an image"),
    ("LocalStack", "localstack-core 2026.3.0 of PyPI did not start with the dependencies that pip chose for it"),
];

/// A server that runs already, started by somebody else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    name: String,
    address: SocketAddr,
}

impl std::str::FromStr for Given {
    type Err = String;

    fn from_str(text: &str) -> Result<Given, String> {
        let (name, address) = text.split_once('=').ok_or("write it as NAME=ADDRESS:PORT")?;
        let address = address.trim_start_matches("http://").trim_end_matches('/');
        let address = address.parse().map_err(|error| format!("{address}: {error}"))?;
        Ok(Given { name: name.to_owned(), address })
    }
}

/// A server with its queue of the moment.
struct Peer {
    signer: Arc<Signer>,
    /// Cells so far: each has a queue of its own.
    cells: u32,
    queue: Option<Queue>,
    /// Ended when dropped; none if somebody else started it.
    _process: Option<Running>,
}

/// Those that could be started, and those that could not, with the reason.
pub async fn start(scratch: &Scratch, given: &[Given]) -> anyhow::Result<(Vec<System>, Vec<(String, String)>)> {
    let (mut systems, mut absent) = (Vec::new(), Vec::new());
    for packaged in &PACKAGED {
        match packaged.start(&scratch.folder(packaged.package)?).await {
            Ok(system) => systems.push(system),
            Err(error) => absent.push((packaged.name.to_owned(), format!("{error:#}"))),
        }
    }
    for (number, given) in given.iter().enumerate() {
        let peer = Peer::new(given.address, None);
        let setting = "as it was running";
        systems.push(System::new(Id::Given(number), given.name.clone(), setting, Promise::Unknown, peer));
    }
    let is_given = |name: &str| given.iter().any(|given| given.name.eq_ignore_ascii_case(name));
    let missing = BY_HAND.iter().filter(|(name, _)| !is_given(name));
    absent.extend(missing.map(|(name, reason)| {
        (
            (*name).to_owned(),
            format!("{reason}; start it and name it with --peer {}=127.0.0.1:PORT", name.to_lowercase()),
        )
    }));
    for (name, reason) in &absent {
        eprintln!("*** {name} is NOT measured: {reason}");
    }
    Ok((systems, absent))
}

impl Packaged {
    async fn start(&self, folder: &Path) -> anyhow::Result<System> {
        let environment = self.environment()?;
        let address = free_address()?;
        let start = Start {
            name: self.package,
            program: &environment.join("bin").join(self.program),
            arguments: (self.arguments)(address),
            variables: (self.variables)(address),
            user: None,
            folder,
            ending: Signal::TERM,
        };
        let mut process = start.spawn()?;
        process.until_listening(address).await?;
        let peer = Peer::new(address, Some(process));
        let name = format!("{} {}", self.name, self.version(&environment));
        Ok(System::new(self.id, name, "as it comes", Promise::Ram, peer))
    }

    /// Path of the server's Python environment, kept beside the build.
    fn environment(&self) -> anyhow::Result<PathBuf> {
        let folder = target_folder()?.join("tools").join(format!("sqs-{}", self.package));
        let program = folder.join("bin").join(self.program);
        if !program.is_file() {
            eprintln!("installing {}", self.requirement);
            run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
            let pip = ["-m", "pip", "install", "--quiet", self.requirement];
            run(Command::new(folder.join("bin").join("python")).args(pip))?;
        }
        anyhow::ensure!(program.is_file(), "not installed; pip install {}", self.requirement);
        Ok(folder)
    }

    fn version(&self, environment: &Path) -> String {
        let script = format!("import importlib.metadata as all; print(all.version('{}'))", self.package);
        let output = Command::new(environment.join("bin").join("python")).args(["-c", &script]).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
    }
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.stdin(Stdio::null()).status().context("not installed, and there is no python3")?;
    anyhow::ensure!(status.success(), "not installed: {command:?} ended with {status}");
    Ok(())
}

impl Peer {
    fn new(address: SocketAddr, process: Option<Running>) -> Peer {
        // Nobody of them checks who asks.
        let signer = Arc::new(Signer::new(address, "bench", "bench"));
        Peer { signer, cells: 0, queue: None, _process: process }
    }
}

impl Target for Peer {
    type Client = SqsClient;

    async fn prepare(&mut self) -> anyhow::Result<()> {
        self.finish().await?;
        self.cells += 1;
        self.queue = Some(Queue::create(Arc::clone(&self.signer), &format!("bench-{}", self.cells)).await?);
        Ok(())
    }

    async fn clients(&mut self, count: usize, payload: &Payload) -> anyhow::Result<Vec<SqsClient>> {
        self.queue.as_ref().context("prepared before")?.clients(count, payload).await
    }

    async fn finish(&mut self) -> anyhow::Result<()> {
        match self.queue.take() {
            Some(queue) => queue.ask("DeleteQueue", json!({})).await.map(drop),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_server_has_a_name_and_an_address() {
        let address = SocketAddr::from(([127, 0, 0, 1], 9324));
        let expected = Given { name: "elasticmq".to_owned(), address };
        for text in ["elasticmq=127.0.0.1:9324", "elasticmq=http://127.0.0.1:9324/"] {
            assert_eq!(text.parse(), Ok(expected.clone()), "{text}");
        }
        for text in ["127.0.0.1:9324", "a=b", "a=", "a=127.0.0.1"] {
            assert!(text.parse::<Given>().is_err(), "{text}");
        }
    }
}
