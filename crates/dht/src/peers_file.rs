//! The file of known nodes: a line for each, its id and its addresses; written anew as a whole.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use libp2p::Multiaddr;
use ron_store::PeerId;
use ron_types::limits::dht as limits;

/// First line of the file, so that a person who finds it knows what it is.
const HEADER: &str = "# nodes that this one knew, for its next start; written by the node, safe to delete";

/// The nodes of the file; nothing if there is none. A line that cannot be read is left out: the file is a help, and
/// nothing depends on it.
pub(crate) fn read(path: &Path) -> io::Result<Vec<(PeerId, Vec<Multiaddr>)>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(limits::PEERS_FILE_BYTES_MAX as u64).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().filter_map(parse).take(limits::PEERS_SAVED_MAX).collect())
}

fn parse(line: &str) -> Option<(PeerId, Vec<Multiaddr>)> {
    let mut words = line.split_whitespace();
    let peer = words.next()?.parse().ok()?;
    let addrs: Vec<Multiaddr> =
        words.filter_map(|word| word.parse().ok()).take(limits::ADDRESSES_PER_PEER_MAX).collect();
    (!addrs.is_empty()).then_some((peer, addrs))
}

/// Replaces the file: whoever reads it, even after a crash, finds the old one or the new one.
pub(crate) fn write(path: &Path, peers: &[(PeerId, Vec<Multiaddr>)]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = File::create(&beside)?;
    let mut text = format!("{HEADER}\n");
    for (peer, addrs) in peers {
        text.push_str(&peer.to_string());
        for addr in addrs {
            text.push(' ');
            text.push_str(&addr.to_string());
        }
        text.push('\n');
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_broken_left_out() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("dht-peers");
        assert_eq!(read(&path).expect("no file is no error"), Vec::new());
        let peers: Vec<(PeerId, Vec<Multiaddr>)> = (1..4_u8)
            .map(|number| {
                let addrs = ["/ip4/192.0.2.1/tcp/4001", "/ip6/2001:db8::1/udp/4001/quic-v1"];
                (PeerId::of_ed25519(&[number; 32]), addrs.map(|addr| addr.parse().expect("an address")).to_vec())
            })
            .collect();
        write(&path, &peers).expect("written");
        assert_eq!(read(&path).expect("read"), peers);
        let mut text = fs::read_to_string(&path).expect("text");
        text.push_str("nonsense /ip4/192.0.2.1/tcp/1\n");
        text.push_str(&format!("{} nonsense\n\u{0}\u{1}", peers[0].0));
        fs::write(&path, text).expect("written");
        assert_eq!(read(&path).expect("read"), peers, "the broken lines are left out");
        write(&path, &peers[..1]).expect("written again");
        assert_eq!(read(&path).expect("read").len(), 1);
        assert_eq!(fs::read_dir(directory.path()).expect("listed").count(), 1, "nothing is left beside it");
    }
}
