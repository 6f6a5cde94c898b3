//! Ids, records and messages. What targets hold to be unsigned has a signature that nobody made.

use ron_store::wire::{Answer, AskError, Question, Reply, Request};
use ron_store::{
    ContentId, Key, NameRecord, PeerRecord, Possession, ProviderFields, ProviderRecord, PublicKey, Record, Signer,
};
use ron_transport::NodeKey;

use super::ipns_entry;
use crate::Seed;

const NOW_MS: u64 = 1_800_000_000_000;
const END_MS: u64 = NOW_MS + 3_600_000;

/// Signs with bytes that are no signature: the target of records promises that none verifies which nobody signed.
struct NoSigner(PublicKey);

impl Signer for NoSigner {
    fn public_key(&self) -> PublicKey {
        self.0
    }

    fn sign(&self, bytes: &[u8]) -> [u8; 64] {
        [bytes[bytes.len() - 1]; 64]
    }
}

/// The key of a number, always the same.
fn key(number: u8) -> NodeKey {
    const PKCS8_HEAD: [u8; 16] =
        [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
    NodeKey::from_pkcs8(&[PKCS8_HEAD.as_slice(), &[number; 32]].concat()).expect("any 32 bytes are a key")
}

fn no_signer(number: u8) -> NoSigner {
    NoSigner(key(number).public_key())
}

fn content() -> ContentId {
    ContentId::of_bytes(b"a manifest")
}

/// Content, peers, keys and names as text and as bytes.
pub fn ids() -> Vec<Seed> {
    let owner = key(1).public_key();
    let peer = owner.peer_id();
    vec![
        ("b3.seed", content().to_string().into_bytes()),
        ("cid.seed", content().cid_text().into_bytes()),
        ("cid-bytes.seed", content().cid_bytes()),
        ("peer.seed", peer.to_string().into_bytes()),
        ("peer-bytes.seed", peer.as_bytes().to_vec()),
        ("key.seed", content().key().to_string().into_bytes()),
        ("name.seed", format!("name:{owner}/docs").into_bytes()),
    ]
}

fn provider() -> ProviderRecord {
    let addrs = ["/ip4/192.0.2.17/tcp/9100", "/dns/node.example/tcp/443/wss"];
    let fields = ProviderFields {
        key: content().key(),
        peer: key(1).public_key().peer_id(),
        addrs: addrs.map(|addr| addr.parse().expect("an address")).to_vec(),
        protocols: vec!["oap/1".to_owned()],
        region: Some("eu-north".to_owned()),
        sequence: 7,
        issued_ms: NOW_MS,
        expires_ms: END_MS,
    };
    ProviderRecord::sign(fields, &no_signer(1)).expect("a record within its bounds")
}

fn peer() -> PeerRecord {
    let addrs = vec!["/ip4/192.0.2.17/udp/9100/quic-v1".parse().expect("an address")];
    PeerRecord::sign(addrs, 3, END_MS, &no_signer(2)).expect("a record within its bounds")
}

fn name() -> NameRecord {
    NameRecord::sign("docs", content(), 9, NOW_MS, END_MS, &no_signer(3)).expect("a record within its bounds")
}

/// A record of each kind.
pub fn records() -> Vec<Seed> {
    vec![
        ("provider.seed", Record::Provider(provider()).encode()),
        ("name.seed", Record::Name(name()).encode()),
        ("peer.seed", Record::Peer(peer()).encode()),
    ]
}

/// Requests and answers.
pub fn wire() -> Vec<Seed> {
    let owner = key(3).public_key();
    let asked = |question| Request::Ask { question, budget_ms: 500 };
    let prove = Request::Prove { digest: [5; 32], draw: 1, budget_ms: 500 };
    let keep = Request::Keep { records: vec![Record::Provider(provider()), Record::Peer(peer())] };
    let reply =
        Reply { records: vec![Record::Name(name())], closer: vec![owner.peer_id(), key(4).public_key().peer_id()] };
    let possession = Possession::of(&[7; 1500], 0);
    let request = |request: Request| request.encode().expect("a request within its bounds");
    vec![
        ("ask-providers.seed", request(asked(Question::Providers(Key([6; 32]))))),
        ("ask-name.seed", request(asked(Question::Name { owner, label: "docs".to_owned() }))),
        ("prove.seed", request(prove)),
        ("keep.seed", request(keep)),
        ("reply.seed", Answer::Reply(reply).encode()),
        ("kept.seed", Answer::Kept { kept: 2, refused: 1 }.encode()),
        ("possession.seed", Answer::Possession(Some(Box::new(possession))).encode()),
        ("refused.seed", Answer::Refused(AskError::Busy).encode()),
    ]
}

/// Records behind the key that signed them, the second also for readers of version 1.
pub fn ipns() -> Vec<Seed> {
    let key = key(5);
    let behind_key = |entry: Vec<u8>| [key.public_key().0.as_slice(), &entry].concat();
    vec![
        ("version-2.seed", behind_key(ipns_entry::signed(&key))),
        ("older-fields.seed", behind_key([ipns_entry::older_fields(), ipns_entry::signed(&key)].concat())),
    ]
}
