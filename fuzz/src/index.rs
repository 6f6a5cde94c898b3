//! The index's HTTP surface: bodies, ids and filters of a query.

use ron_store::{ContentId, PublicKey};
use serde_json::json;

use crate::{Seed, Target};

/// Targets of the surface.
pub const TARGETS: [Target; 1] =
    [Target { name: "index_dto", body: dto, is_read: ron_api::read_any_index_body, seeds: dto_seeds }];

/// Any bytes are a body, an id, a filter, or a clear refusal.
pub fn dto(bytes: &[u8]) {
    ron_api::read_any_index_body(bytes);
}

fn dto_seeds() -> Vec<Seed> {
    let content = ContentId::of_bytes(b"a manifest");
    let peer = PublicKey([4; 32]).peer_id();
    let (b3, cid) = (content.to_string(), content.cid_text());
    let batch = json!({ "ids": [b3, cid], "max": 3, "fresh": true });
    let provider = json!({
        "peer_id": peer.to_string(),
        "addrs": ["/ip4/192.0.2.17/tcp/9100", "/dns/node.example/tcp/443/wss"],
        "protocols": ["oap/1"],
        "ttl_s": 600,
    });
    let name = json!({ "value": b3, "ttl_s": 60 });
    let pin = json!({ "id": cid });
    vec![
        ("resolve-batch.seed", batch.to_string().into_bytes()),
        ("provider.seed", provider.to_string().into_bytes()),
        ("put-name.seed", name.to_string().into_bytes()),
        ("pin.seed", pin.to_string().into_bytes()),
        ("cid.seed", cid.into_bytes()),
    ]
}
