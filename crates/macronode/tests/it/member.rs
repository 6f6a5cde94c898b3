//! A node of a network: its id and port are known before it starts, so that it can be killed and come back.

use std::net::SocketAddr;
use std::path::PathBuf;

use http::Method;
use ron_transport::NodeKey;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{Client, Reply, own_address};

use crate::process::{BINARY, Process, command};
use testkit::eventually;

/// One node of a network, running or not.
pub struct Member {
    pub id: String,
    pub oap: SocketAddr,
    /// Services that it runs.
    services: &'static str,
    /// Arguments beside its ports and folders.
    arguments: Vec<String>,
    folder: TempDir,
    process: Option<Process>,
}

impl Member {
    /// A node that is not started yet.
    pub fn new() -> Member {
        Member::running("http,oap,overlay")
    }

    /// A node with these services that is not started yet.
    pub fn running(services: &'static str) -> Member {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let data = folder.path().join("data");
        std::fs::create_dir(&data).expect("made");
        let key = NodeKey::load_or_create(&data.join("node.key")).expect("made");
        let (id, oap, arguments) = (key.node_id().to_string(), own_address(), Vec::new());
        Member { id, oap, services, arguments, folder, process: None }
    }

    /// The node as others are told of it.
    pub fn address(&self) -> String {
        format!("{}@{}", self.id, self.oap)
    }

    pub fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Tells it of another node, from its next start on.
    pub fn knows(&mut self, peer: &str) {
        self.arguments.extend(["--peer".to_owned(), peer.to_owned()]);
    }

    /// Gives it an argument, from its next start on.
    pub fn with_argument(mut self, argument: &str) -> Member {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Gives it a file of settings, which it reads at its next start; a node that runs takes up the change.
    pub fn configure(&mut self, settings: &str) {
        let file = self.folder.path().join("node.toml");
        std::fs::write(&file, settings).expect("written");
        if !self.arguments.iter().any(|argument| argument == "--config") {
            self.arguments.extend(["--config".to_owned(), file.display().to_string()]);
        }
    }

    /// Starts it and waits until it is ready.
    pub async fn start(&mut self) {
        let data = self.data_dir();
        let runtime = std::env::var("MACRO_TEST_RUNTIME").unwrap_or_else(|_| "multi".to_owned());
        let mut prepared = command(BINARY, self.folder.path());
        prepared.args(["run", "--services", self.services, "--runtime", &runtime]);
        prepared.args(["--api", "127.0.0.1:0", "--admin", "127.0.0.1:0"]).arg("--oap").arg(self.oap.to_string());
        prepared.arg("--data-dir").arg(&data).args(&self.arguments);
        let mut process = Process::spawn(prepared, self.folder.path());
        process.locate(&data).await;
        process.wait_ready().await;
        self.process = Some(process);
    }

    pub fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("it runs")
    }

    pub fn api(&self) -> SocketAddr {
        self.process.as_ref().expect("it runs").api
    }

    /// The operator's token as a header.
    pub fn bearer(&self) -> String {
        format!("Bearer {}", self.process.as_ref().expect("it runs").token)
    }

    /// Ends the process by a signal and waits until it is gone.
    pub async fn end(&mut self, signal: rustix::process::Signal) -> std::process::ExitStatus {
        self.process().signal(signal);
        let status = self.process().wait_exit().await;
        self.process = None;
        status
    }

    /// One request with a token.
    pub async fn ask_as(&self, bearer: &str, method: Method, path: &str, body: &Value) -> Reply {
        let headers = [("authorization", bearer), ("content-type", "application/json")];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut client = Client::connect(self.api()).await.expect("the node listens");
        client.request(method, path, &headers, body).await.expect("the node answers")
    }

    /// One request of the operator.
    pub async fn ask(&self, method: Method, path: &str, body: &Value) -> Reply {
        self.ask_as(&self.bearer(), method, path, body).await
    }

    /// A token with these rights.
    pub async fn mint(&self, rights: &[&str], expires_in_ms: Option<u64>) -> String {
        let mut body = json!({"subject": "ann", "rights": rights});
        if let Some(expires_in_ms) = expires_in_ms {
            body["expires_in_ms"] = expires_in_ms.into();
        }
        let reply = self.ask(Method::POST, "/v1/tokens", &body).await;
        let token = reply.json().expect("JSON")["token"].as_str().expect("a token").to_owned();
        format!("Bearer {token}")
    }

    /// How it stands with its peers.
    pub async fn peers(&self) -> Vec<Value> {
        let reply = self.ask(Method::GET, "/overlay/peers", &Value::Null).await;
        let answer = reply.json().expect("JSON");
        assert_eq!(answer["node_id"], self.id.as_str(), "{answer}");
        answer["peers"].as_array().expect("a list").clone()
    }

    /// The peer with this id, if it has one.
    pub async fn peer(&self, id: &str) -> Option<Value> {
        self.peers().await.into_iter().find(|peer| peer["node_id"] == id)
    }

    /// Waits until a session with this node stands.
    pub async fn wait_connected(&self, id: &str) -> Value {
        eventually("a session", async || self.peer(id).await.filter(|peer| peer["state"] == "connected")).await
    }

    /// A session over OAP with the operator's token.
    pub async fn oap_client(&self) -> oap_client::Client {
        self.oap_client_with(oap_client::Options::default()).await
    }

    /// The same with settings of its own.
    pub async fn oap_client_with(&self, options: oap_client::Options) -> oap_client::Client {
        let address = self.address().parse().expect("an address");
        let token = Some(self.process.as_ref().expect("it runs").token.clone());
        oap_client::Client::connect(&address, oap_client::Options { token, ..options }).await.expect("connected")
    }

    /// Publishes bytes as they are.
    pub async fn publish(&self, lane: &str, payload: impl Into<bytes::Bytes>) -> Value {
        let reply = self.try_publish(lane, payload).await;
        assert_eq!(reply.status, 202, "{}", reply.text());
        reply.json().expect("JSON")
    }

    /// The same, where a refusal is an answer too.
    pub async fn try_publish(&self, lane: &str, payload: impl Into<bytes::Bytes>) -> Reply {
        let bearer = self.bearer();
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/octet-stream")];
        let mut client = Client::connect(self.api()).await.expect("the node listens");
        let path = format!("/overlay/lanes/{lane}/publish");
        client.request(Method::POST, &path, &headers, payload).await.expect("the node answers")
    }
}

/// Nodes that are started and joined: each pair names a node and one that it is told of.
pub async fn network(count: usize, links: &[(usize, usize)]) -> Vec<Member> {
    network_with(count, links, "").await
}

/// The same, with settings for all of them.
pub async fn network_with(count: usize, links: &[(usize, usize)], settings: &str) -> Vec<Member> {
    let mut members: Vec<Member> = (0..count).map(|_| Member::new()).collect();
    members.iter_mut().for_each(|member| member.configure(settings));
    joined(members, links).await
}

/// Starts these nodes and joins them.
pub async fn joined(mut members: Vec<Member>, links: &[(usize, usize)]) -> Vec<Member> {
    for (from, to) in links {
        let address = members[*to].address();
        members[*from].knows(&address);
    }
    for member in &mut members {
        member.start().await;
    }
    for (from, to) in links {
        members[*from].wait_connected(&members[*to].id).await;
        members[*to].wait_connected(&members[*from].id).await;
    }
    members
}
