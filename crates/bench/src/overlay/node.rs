//! A node for lanes: a process with its OAP port on loopback.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ron_transport::{NodeKey, PeerAddress};
use rustix::process::Signal;

use crate::mailbox::child::{Running, Start};
use crate::process::{free_address, is_ready};

const READY_WITHIN: Duration = Duration::from_secs(60);
/// A window of the bench has to fit what may wait for one subscriber, and each cell connects anew.
const CONFIG: &str = "[connections]\nmax = 4096\nper_ip_max = 2048\naccepts_per_ip_per_second = 100000\n\
    [overlay]\npeer_inflight_frames = 16384\n";

/// A node that was seen ready. Dropping it ends the process.
pub struct LaneNode {
    /// Id of the node and address of its OAP port.
    pub address: PeerAddress,
    /// A token that may do everything.
    pub token: String,
    _process: Running,
}

impl LaneNode {
    /// Starts a node with its data in a folder.
    pub async fn start(binary: &Path, folder: PathBuf) -> anyhow::Result<LaneNode> {
        let (config, data) = (folder.join("macronode.toml"), folder.join("data"));
        fs::write(&config, CONFIG)?;
        let (api, admin, oap) = (free_address()?, free_address()?, free_address()?);
        let planes = [("--api", api), ("--admin", admin), ("--oap", oap)];
        let mut arguments = vec!["run".to_owned()];
        arguments.extend(planes.into_iter().flat_map(|(plane, address)| [plane.to_owned(), address.to_string()]));
        arguments.extend(["--config".to_owned(), config.display().to_string()]);
        arguments.extend(["--data-dir".to_owned(), data.display().to_string()]);
        let variables = vec![("NO_COLOR".to_owned(), "1".to_owned())];
        let start = Start {
            name: "macronode",
            program: binary,
            arguments,
            variables,
            user: None,
            folder: &folder,
            ending: Signal::KILL,
        };
        let mut process = start.spawn()?;
        process.until("ready", READY_WITHIN, || is_ready(admin)).await?;
        let node_id = NodeKey::load_or_create(&data.join("node.key"))?.node_id();
        let token = fs::read_to_string(data.join("operator.token"))?.trim().to_owned();
        Ok(LaneNode { address: PeerAddress::new(node_id, &oap.to_string())?, token, _process: process })
    }
}
