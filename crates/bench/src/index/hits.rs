//! Answers that nobody else has to be asked for: from memory and from the store, beside servers that do nothing else.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use http::Method;
use testkit::{Client, Reply};

use super::copies::Copied;
use super::lookups::content;
use super::node::IndexNode;
use super::{Absent, Options};
use crate::load::{self, Shape};
use crate::process::{Server, cpu_time};

const CONNECTIONS: usize = 16;
/// The answer stays in memory for the whole run.
const REMEMBERS: &str = "[index]\ncache_ttl = \"1h\"\n";
/// No answer stays in memory, so that each is read from the store.
const FORGETS: &str = "[index]\ncache_ttl = \"0s\"\n";

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answerer {
    /// A node that has the answer in memory.
    Cache,
    /// A node that reads its store.
    Store,
    /// Bare axum with the same bytes and headers.
    Bare,
    /// Bare axum that asks Redis.
    Redis,
    /// A node, on the routes of IPFS clients.
    Routing,
    /// Helia's server on the same routes.
    Helia,
}

/// One server over all rounds.
pub struct Side {
    /// Who answers.
    pub who: Answerer,
    /// Name and version, for the page.
    pub name: String,
    address: SocketAddr,
    process: u32,
    shape: Shape,
    /// Answers a second, one for each round.
    pub rates: Vec<f64>,
    /// Microseconds of a core that the server spent on an answer, one for each round.
    pub core_micros: Vec<f64>,
    /// Milliseconds of the slowest in a hundred at half of the rate, one for each round.
    pub half_load_p99s: Vec<f64>,
}

/// Servers that run while this is held.
struct Servers {
    sides: Vec<Side>,
    _nodes: Vec<IndexNode>,
    _bare: Vec<Server>,
    #[cfg(feature = "peers")]
    _peers: Vec<crate::mailbox::child::Running>,
}

/// Measures all of them, one after the other in each round.
pub async fn measure(options: &Options, absent: &mut Vec<Absent>) -> anyhow::Result<Vec<Side>> {
    let mut servers = start(options, absent).await?;
    for round in 0..=options.rounds {
        eprintln!("hits: round {round} of {}", options.rounds);
        let count = servers.sides.len();
        for turn in 0..count {
            let side = &mut servers.sides[(turn + round) % count];
            if let Err(error) = side.measure(options.time, round > 0).await {
                eprintln!("*** {} failed: {error:#}", side.name);
                absent.push((format!("{}, one round", side.name), format!("{error:#}")));
            }
        }
    }
    Ok(servers.sides)
}

impl Side {
    fn new(who: Answerer, name: &str, address: SocketAddr, process: u32, path: &str) -> anyhow::Result<Side> {
        Ok(Side {
            who,
            name: name.to_owned(),
            address,
            process,
            shape: Shape::get_made(path)?,
            rates: Vec::new(),
            core_micros: Vec::new(),
            half_load_p99s: Vec::new(),
        })
    }

    /// The first round warms it up and is not kept.
    async fn measure(&mut self, time: Duration, is_kept: bool) -> anyhow::Result<()> {
        let before = cpu_time(self.process)?;
        let measured = load::run(self.address, CONNECTIONS, &self.shape, time).await?;
        let core = cpu_time(self.process)?.saturating_sub(before);
        let half = measured.requests_per_second / 2.0;
        let micros = load::run_paced(self.address, &self.shape, half, time).await?;
        if is_kept {
            self.rates.push(measured.requests_per_second);
            self.core_micros.push(core.as_secs_f64() * 1e6 / measured.requests.max(1) as f64);
            self.half_load_p99s.push(micros.value_at_quantile(0.99) as f64 / 1e3);
        }
        Ok(())
    }
}

async fn start(options: &Options, absent: &mut Vec<Absent>) -> anyhow::Result<Servers> {
    let binary = options.node.as_ref().map_err(|error| anyhow::anyhow!("{error}"))?;
    let id = content(0);
    let id = id.b3_text().context("a BLAKE3 hash")?;
    let path = format!("/resolve/{id}");
    let folder = |name: &str| -> anyhow::Result<_> {
        let folder = options.scratch.join(name);
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    };
    let cache = IndexNode::start(binary, folder("hits-cache")?, REMEMBERS, &[]).await?;
    let store = IndexNode::start(binary, folder("hits-store")?, FORGETS, &[]).await?;
    for node in [&cache, &store] {
        node.provide(&id).await?;
    }
    let copied = Copied::of(&answer_from(&cache, &path, "cache").await?);
    answer_from(&store, &path, "store").await?;
    let file = folder("hits-copies")?.join("answer.json");
    copied.write(&file)?;
    let file = file.display().to_string();
    let bare = Server::start_with("serve-copy", &[&file])?;
    let routing = format!("/routing/v1/providers/{}", content(0).cid_text());
    let pid = |node: &IndexNode| node.pid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
    let sides = vec![
        Side::new(Answerer::Cache, "macronode, from memory", cache.api, pid(&cache), &path)?,
        Side::new(Answerer::Bare, "bare axum", bare.address, bare.pid(), &path)?,
        Side::new(Answerer::Store, "macronode, from its store", store.api, pid(&store), &path)?,
        Side::new(Answerer::Routing, "macronode, /routing/v1", cache.api, pid(&cache), &routing)?,
    ];
    let mut servers = Servers {
        sides,
        _nodes: vec![cache, store],
        _bare: vec![bare],
        #[cfg(feature = "peers")]
        _peers: Vec::new(),
    };
    if options.peers {
        start_peers(&mut servers, &copied, &file, &id, options, absent).await;
    }
    Ok(servers)
}

/// The answer, once it comes from where it should.
async fn answer_from(node: &IndexNode, path: &str, source: &str) -> anyhow::Result<Reply> {
    let mut client = Client::connect(node.api).await?;
    let by = ron_kernel::Deadline::after(Duration::from_secs(10));
    loop {
        let reply = client.request(Method::GET, path, &[], "").await?;
        let answer = reply.json()?;
        if answer["source"] == source && answer["outcome"] == "found" {
            return Ok(reply);
        }
        anyhow::ensure!(!by.has_passed(), "the answer comes from elsewhere than {source}: {answer}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[cfg(feature = "peers")]
async fn start_peers(
    servers: &mut Servers,
    copied: &Copied,
    file: &str,
    id: &str,
    options: &Options,
    absent: &mut Vec<Absent>,
) {
    match start_redis(servers, copied, file, id, options).await {
        Ok(side) => servers.sides.push(side),
        Err(error) => super::not_measured(absent, "Redis behind axum", &error),
    }
    match super::helia::start(&options.scratch, &content(0).cid_text()).await {
        Ok((running, address)) => {
            let path = format!("/routing/v1/providers/{}", content(0).cid_text());
            match Side::new(Answerer::Helia, super::helia::NAME, address, running.pid(), &path) {
                Ok(side) => {
                    servers.sides.push(side);
                    servers._peers.push(running);
                }
                Err(error) => super::not_measured(absent, super::helia::NAME, &error),
            }
        }
        Err(error) => super::not_measured(absent, super::helia::NAME, &error),
    }
}

#[cfg(feature = "peers")]
async fn start_redis(
    servers: &mut Servers,
    copied: &Copied,
    file: &str,
    id: &str,
    options: &Options,
) -> anyhow::Result<Side> {
    use rustix::process::Signal;

    use crate::mailbox::child::Start;
    use crate::mailbox::peers::install::{of_debian, on_path, version};
    use crate::process::free_address;

    let program = of_debian("redis-server", || on_path("redis-server"))?;
    let name = format!("Redis {} behind axum", version(&program, "--version"));
    let address = free_address()?;
    let folder = options.scratch.join("hits-redis");
    std::fs::create_dir_all(&folder)?;
    let port = address.port().to_string();
    let arguments = ["--bind", "127.0.0.1", "--port", &port, "--save", ""].map(str::to_owned).to_vec();
    let mut running = Start {
        name: "redis-server",
        program: &program,
        arguments,
        variables: Vec::new(),
        user: None,
        folder: &folder,
        ending: Signal::KILL,
    }
    .spawn()?;
    running.until_listening(address).await?;
    let client = redis::Client::open(format!("redis://{address}/"))?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let () = redis::cmd("SET").arg(id).arg(copied.body()).query_async(&mut connection).await?;
    let server = Server::start_with("serve-copy", &[file, "--redis", &port])?;
    // What Redis itself spends is not in the core time of the server in front of it: the page says so.
    let side = Side::new(Answerer::Redis, &name, server.address, server.pid(), &format!("/resolve/{id}"))?;
    servers._peers.push(running);
    servers._bare.push(server);
    Ok(side)
}

#[cfg(not(feature = "peers"))]
async fn start_peers(
    _servers: &mut Servers,
    _copied: &Copied,
    _file: &str,
    _id: &str,
    _options: &Options,
    absent: &mut Vec<Absent>,
) {
    let reason = anyhow::anyhow!("this binary was built without the feature `peers`");
    super::not_measured(absent, "Redis behind axum, Helia's routing server", &reason);
    std::future::ready(()).await;
}
