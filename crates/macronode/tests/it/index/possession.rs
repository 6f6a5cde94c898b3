//! Two nodes, one of which asks providers for a chunk of what they say they have.

use http::Method;
use serde_json::{Value, json};

use crate::index::node::{ABC_B3, PEER, SERVICES, open, provide, provide_abc, resolve};
use crate::member::{Member, joined};
use testkit::eventually;

/// Term of a provider's score that says nothing either way.
const NOT_SHOWN: f64 = 0.05;
/// Term of a provider that showed the chunk.
const SHOWN: f64 = 0.10;

/// A node that keeps documents, and one that asks for chunks.
async fn keeper_and_prober() -> [Member; 2] {
    let mut members = [Member::running(SERVICES), Member::running(SERVICES)];
    members[1].configure("[index]\npossession_probe = true\n");
    let joined = joined(members.into(), &[(1, 0)]).await;
    joined.try_into().ok().expect("two nodes")
}

async fn peer_id(member: &Member) -> String {
    let stats = member.ask(Method::GET, "/index/stats", &Value::Null).await.json().expect("JSON");
    stats["peer_id"].as_str().expect("an id").to_owned()
}

/// What the score of this provider has for possession, in the answer of this node.
async fn possession_term(member: &Member, provider: &str) -> Option<f64> {
    let answer = resolve(member, ABC_B3).await;
    let providers = answer["providers"].as_array()?;
    providers.iter().find(|one| one["peer_id"] == provider)?["terms"]["possession"].as_f64()
}

async fn probes(member: &mut Member, result: &str) -> f64 {
    member.process().metric(&format!("index_probes_total{{result=\"{result}\"}}")).await
}

#[tokio::test]
async fn who_keeps_the_document_shows_it_to_a_node_that_asks_and_ranks_higher() {
    let [mut keeper, mut prober] = keeper_and_prober().await;
    let bearer = keeper.bearer();
    let put =
        open(&keeper, Method::PUT, &format!("/manifests/{ABC_B3}"), &[("authorization", bearer.as_str())], "abc").await;
    assert_eq!(put.status, 200, "{}", put.text());
    // The keeper says that it has it, and vouches for somebody who cannot be reached.
    provide(&keeper, ABC_B3, &json!({})).await;
    provide_abc(&keeper).await;
    let keeper_id = peer_id(&keeper).await;
    // An answer from before the records came would be remembered for a while.
    eventually("both providers at the other node", async || {
        let answer = resolve(&prober, &format!("{ABC_B3}?fresh=true")).await;
        (answer["providers"].as_array()?.len() == 2).then_some(())
    })
    .await;
    eventually("the chunk at the node that asked for it", async || {
        // Who showed nothing in time on a loaded machine is asked again after a later lookup.
        resolve(&prober, &format!("{ABC_B3}?fresh=true")).await;
        (possession_term(&prober, &keeper_id).await == Some(SHOWN)).then_some(())
    })
    .await;
    let unreachable = eventually("the other provider", async || possession_term(&prober, PEER).await).await;
    assert_eq!(unreachable, NOT_SHOWN, "who cannot be asked has told no lie");
    assert!(probes(&mut prober, "proven").await >= 1.0);
    assert_eq!(probes(&mut prober, "failed").await, 0.0);
    // The same question on the node whose key is off: it knows both providers, and asked nobody.
    assert_eq!(possession_term(&keeper, &keeper_id).await, Some(NOT_SHOWN));
    assert_eq!(possession_term(&keeper, PEER).await, Some(NOT_SHOWN));
    for result in ["proven", "failed", "unknown"] {
        assert_eq!(probes(&mut keeper, result).await, 0.0, "{result}");
    }
}
