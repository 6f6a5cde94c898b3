//! `macronode overlay trace`: a message's way through the tree, as far as the nodes that are asked know it.

mod tree;

use std::path::{Path, PathBuf};

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::args::TraceArgs;
use super::peers::{PATH, Peers};
use crate::cli::ApiArgs;
use crate::client::{ApiClient, NodeAnswer, PATIENCE};
use crate::commands::Report;
use crate::data_dir::ADDRESSES_FILE;
use crate::errors::{Code, Exit, Failure};

/// A message's way through one node, as it says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
struct NodeTrace {
    lane: String,
    origin: String,
    epoch: u64,
    seq: u64,
    hops: u64,
    from: Option<String>,
    eager: Vec<String>,
    lazy: Vec<String>,
}

/// What one of several nodes says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct AskedNode {
    /// Name for the reader: the last part of its data directory.
    name: String,
    node_id: String,
    /// Its part; none if its ring does not hold the message.
    trace: Option<NodeTrace>,
    /// Reason why it could not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

/// Shows a message's way.
pub async fn trace(args: &TraceArgs) -> Result<Report, Failure> {
    let folders: Vec<PathBuf> = args.data_dir.iter().flat_map(|folder| nodes_in(folder)).collect();
    if folders.len() < 2 {
        return of_one(args, folders.first()).await;
    }
    let mut nodes = Vec::new();
    for folder in &folders {
        nodes.push(ask_node(args, folder).await);
    }
    let exit = if nodes.iter().any(|node| node.trace.is_some()) { Exit::Clean } else { Exit::Failed };
    let json = || format!("{}\n", json!({"msg_id": args.msg_id.to_string(), "nodes": nodes}));
    let text = if args.json { json() } else { tree::show(&args.msg_id.to_string(), &nodes) };
    Ok(Report { text, exit })
}

/// The data directories that a folder stands for: itself, or those of the nodes of a cluster beneath it.
fn nodes_in(folder: &Path) -> Vec<PathBuf> {
    if folder.join(ADDRESSES_FILE).exists() {
        return vec![folder.to_owned()];
    }
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut nodes: Vec<PathBuf> = entries.filter(|path| path.join(ADDRESSES_FILE).exists()).collect();
    // As people count: node-10 comes after node-9.
    nodes.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
    if nodes.is_empty() { vec![folder.to_owned()] } else { nodes }
}

async fn of_one(args: &TraceArgs, folder: Option<&PathBuf>) -> Result<Report, Failure> {
    let mut client = ApiClient::find(&node_args(args, folder))?;
    let path = trace_path(args);
    let answer = client.get(&path).await?;
    if args.json {
        return Ok(Report::clean(answer.text() + "\n"));
    }
    let name = client.address().to_owned();
    let node_id = own_id(&mut client).await?;
    let node = AskedNode { name, node_id, trace: Some(answer.read(&path)?), failure: None };
    Ok(Report::clean(tree::show(&args.msg_id.to_string(), &[node])))
}

/// One node's part. That a node does not answer is part of the picture, not the end of it.
async fn ask_node(args: &TraceArgs, folder: &Path) -> AskedNode {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let asked = async {
        let mut client = ApiClient::find(&node_args(args, Some(&folder.to_owned())))?;
        let node_id = own_id(&mut client).await?;
        let path = trace_path(args);
        let answer: NodeAnswer = client.ask(Method::GET, &path, None, PATIENCE).await?;
        let trace = if answer.status == 404 { None } else { Some(client.accepted(&path, answer)?.read(&path)?) };
        Ok::<_, Failure>((node_id, trace))
    };
    match asked.await {
        Ok((node_id, trace)) => AskedNode { name, node_id, trace, failure: None },
        Err(failure) => AskedNode { name, failure: Some(failure.message), ..AskedNode::default() },
    }
}

fn trace_path(args: &TraceArgs) -> String {
    format!("/overlay/messages/{}/trace", args.msg_id)
}

async fn own_id(client: &mut ApiClient) -> Result<String, Failure> {
    let peers: Peers = client.get(PATH).await?.read(PATH)?;
    match peers.node_id.is_empty() {
        true => Err(Failure::new(Code::NodeRefused, format!("the answer to {PATH} has no node_id"))),
        false => Ok(peers.node_id),
    }
}

fn node_args(args: &TraceArgs, folder: Option<&PathBuf>) -> ApiArgs {
    ApiArgs {
        api: args.api.clone(),
        data_dir: folder.cloned(),
        token: args.token.clone(),
        token_file: args.token_file.clone(),
        ca: args.ca.clone(),
        json: args.json,
    }
}
