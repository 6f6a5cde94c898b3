//! Sessions between two nodes as they begin, end and are refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{Client, eventually, soak};

use crate::member::{Member, joined, network, network_with};
use crate::overlay::subscriber::Subscriber;

/// Rounds in which two nodes dial each other.
const ROUNDS: usize = 30;
const SOAK_ROUNDS: usize = 300;

/// Holds every core until it is dropped.
struct Load(Arc<AtomicBool>);

impl Load {
    fn begin() -> Load {
        let is_over = Arc::new(AtomicBool::new(false));
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || while !is_over.load(Ordering::Relaxed) {});
        }
        Load(is_over)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

async fn want(member: &Member, other: &Member) {
    let wanted = json!({"node_id": other.id, "addr": other.oap.to_string()});
    assert_eq!(member.ask(Method::POST, "/overlay/peers", &wanted).await.status, 202);
}

async fn no_longer_want(member: &Member, other: &Member) {
    let path = format!("/overlay/peers/{}", other.id);
    member.ask(Method::DELETE, &path, &Value::Null).await;
}

/// Reads until a message with this content; those of earlier rounds may come again.
async fn hears(subscriber: &mut Subscriber, payload: &[u8]) {
    while subscriber.messages(1).await[0].payload() != payload {}
}

#[tokio::test]
async fn two_nodes_that_dial_each_other_have_one_session_that_works_both_ways() {
    let nodes = network(2, &[]).await;
    let [one, other] = &nodes[..] else { panic!("two of them") };
    let mut at_one = Subscriber::open(one, "chat", "?own=false").await;
    let mut at_other = Subscriber::open(other, "chat", "?own=false").await;
    let rounds = if soak() { SOAK_ROUNDS } else { ROUNDS };
    for round in 0..rounds {
        // In the soak every other round has to share the machine.
        let load = (soak() && round % 2 == 1).then(Load::begin);
        tokio::join!(want(one, other), want(other, one));
        let payload = format!("round {round}");
        tokio::join!(one.publish("chat", payload.clone()), other.publish("chat", payload.clone()));
        tokio::join!(hears(&mut at_one, payload.as_bytes()), hears(&mut at_other, payload.as_bytes()));
        drop(load);
        eventually("nothing of the session", async || {
            tokio::join!(no_longer_want(one, other), no_longer_want(other, one));
            (one.peers().await.is_empty() && other.peers().await.is_empty()).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_peer_is_found_again_after_the_task_that_kept_its_session_failed() {
    // Whichever side dialled: that of the task that fails, or the other.
    for dialler in [0, 1] {
        let nodes = vec![Member::new().with_argument("--chaos"), Member::new()];
        let mut pair = joined(nodes, &[(dialler, 1 - dialler)]).await;
        let mut at_one = Subscriber::open(&pair[0], "chat", "?own=false").await;
        let mut at_other = Subscriber::open(&pair[1], "chat", "?own=false").await;
        let hit = pair[0].process().control("/chaos/kill?task=conn_supervisor").await.json().expect("JSON");
        assert_eq!(hit["hit"].as_array().map(Vec::len), Some(1), "{hit}");
        for member in &mut pair {
            eventually("the end of the first session", async || {
                (member.process().metric("session_close_total").await >= 1.0).then_some(())
            })
            .await;
        }
        pair[0].wait_connected(&pair[1].id).await;
        pair[1].wait_connected(&pair[0].id).await;
        tokio::join!(pair[0].publish("chat", "again"), pair[1].publish("chat", "again"));
        tokio::join!(hears(&mut at_one, b"again"), hears(&mut at_other, b"again"));
    }
}

#[tokio::test]
async fn what_a_node_that_drains_was_told_to_be_sent_arrives() {
    // A queue that is full is sent within the two seconds that a leaving node has.
    let mut pair = network_with(2, &[(0, 1)], "[overlay]\npeer_egress_bytes = \"512 KiB\"\n").await;
    let mut at_other = Subscriber::open(&pair[1], "chat", "?own=false").await;
    pair[0].publish("chat", "the first").await;
    at_other.messages(1).await;
    // It is slow for a moment: what it is sent lies in sockets, and then in the queue, until that is full.
    pair[1].process().signal(Signal::STOP);
    // One connection for all: a way that takes nothing for five seconds is given up.
    let bearer = pair[0].bearer();
    let mut api = Client::connect(pair[0].api()).await.expect("the node listens");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/octet-stream")];
    let (mut sent, mut is_full) = (0, false);
    while !is_full && sent < 2_000 {
        let (path, payload) = ("/overlay/lanes/chat/publish", vec![sent as u8; 32 * 1024]);
        let reply = api.request(Method::POST, path, &headers, payload).await.expect("an answer");
        let answer = reply.json().expect("JSON");
        match answer["peers"][0]["outcome"].as_str() {
            Some("sent") => sent += 1,
            outcome => {
                assert_eq!(outcome, Some("busy"), "{answer}");
                is_full = true;
            }
        }
    }
    assert!(is_full, "the queue was never full");
    drop(api);
    pair[0].process().signal(Signal::TERM);
    pair[1].process().signal(Signal::CONT);
    let heard = at_other.messages(sent).await;
    assert!(heard.iter().map(|message| message.seq()).eq(2..2 + sent as u64), "{sent} in order");
    assert!(pair[0].process().wait_exit().await.success(), "it left in order");
}

#[tokio::test]
async fn both_operators_see_that_a_session_is_refused() {
    let (mut strict, mut stranger) = (Member::new(), Member::new());
    strict.configure("[overlay]\naccept = \"listed\"\n");
    strict.start().await;
    stranger.knows(&strict.address());
    stranger.start().await;
    let refused = eventually("the reason", async || {
        let peer = stranger.peer(&strict.id).await?;
        peer["reason"].as_str().filter(|reason| reason.contains("403")).map(str::to_owned)
    })
    .await;
    assert!(refused.contains("overlay.accept"), "{refused}");
    for (member, reason, line) in
        [(&mut stranger, "refused", "a peer refused this node"), (&mut strict, "not_accepted", "a node was not let in")]
    {
        let series = format!("handshake_refusals_total{{reason=\"{reason}\"}}");
        // It goes on trying.
        eventually("a second refusal", async || (member.process().metric(&series).await >= 2.0).then_some(())).await;
        let lines = member.process().stderr().matches(line).count();
        assert_eq!(lines, 1, "said once, however often it happens");
    }
    want(&strict, &stranger).await;
    let there = stranger.wait_connected(&strict.id).await;
    assert!(there.get("reason").is_none(), "{there}");
}
