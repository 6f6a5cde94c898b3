//! `macronode overlay id`: who the node is, from its key or by asking it.

use ron_transport::NodeKey;
use serde_json::json;

use super::peers::ask_peers;
use crate::cli::ApiArgs;
use crate::client::configured;
use crate::commands::{Report, wait};
use crate::data_dir::{DataDir, NODE_KEY_FILE};
use crate::errors::{Code, Failure};

/// Prints the id of the node.
pub fn id(args: &ApiArgs) -> Result<Report, Failure> {
    let config = configured();
    // A node that forgets has its key in memory only; one that is named by its address has it somewhere else.
    let is_asked = args.api.is_some() || (config.amnesia && args.data_dir.is_none());
    if is_asked {
        return wait(async { Ok(report(args, &ask_peers(args).await?.1.node_id)) });
    }
    let path = args.data_dir.clone().unwrap_or(config.data_dir);
    let unusable = |cause: String| Failure::new(Code::DataDirUnusable, format!("{}: {cause}", path.display()));
    let data = DataDir::open(&path, false).map_err(|error| unusable(error.to_string()))?;
    let file = data.path(NODE_KEY_FILE).ok_or_else(|| unusable("there is no such directory".to_owned()))?;
    let key = NodeKey::load_or_create(&file)
        .map_err(|error| Failure::new(Code::SigningKeyUnusable, format!("{}: {error}", file.display())))?;
    Ok(report(args, &key.node_id().to_string()))
}

fn report(args: &ApiArgs, node_id: &str) -> Report {
    Report::clean(if args.json { format!("{}\n", json!({"node_id": node_id})) } else { format!("{node_id}\n") })
}
