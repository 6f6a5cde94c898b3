//! Settings of the overlay on the real node: what a reload takes up, and what each bounds.

use http::Method;
use oap_client::{Error, Since};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::member::{Member, network_with};
use crate::overlay::subscriber::Subscriber;
use testkit::eventually;

/// Bytes of one message, of which a ring of one MiB holds few.
const PAYLOAD_BYTES: usize = 60_000;

async fn node(settings: &str) -> Member {
    let mut member = Member::new();
    member.configure(settings);
    member.start().await;
    member
}

/// First number that a node still has, asked for from the beginning, and whether a gap was told before it.
async fn oldest(member: &Member, lane: &str) -> (u64, bool) {
    let mut replay = Subscriber::open(member, lane, &format!("?from={}:1", member.id)).await;
    let first = replay.next().await;
    match first.kind.as_str() {
        "gap" => {
            assert_eq!(first.data["from"], 1);
            (first.data["to"].as_u64().expect("a number") + 1, true)
        }
        _ => (first.seq(), false),
    }
}

#[tokio::test]
async fn a_larger_ring_is_taken_up_without_a_restart_of_the_process() {
    let mut member = node("[overlay]\nring_bytes = \"1 MiB\"\n").await;
    let before = member.publish("chat", "x").await;
    for _ in 0..40 {
        member.publish("chat", vec![1; PAYLOAD_BYTES]).await;
    }
    let (first, has_gap) = oldest(&member, "chat").await;
    assert!(has_gap && (20..40).contains(&first), "{first}");
    let mut subscriber = Subscriber::open(&member, "chat", "").await;
    let client = member.oap_client().await;
    let mut framed = client.subscribe("chat", Since::now()).await.expect("subscribed");

    member.configure("[overlay]\nring_bytes = \"16 MiB\"\n");
    let reply = member.process().control("/reload").await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    // The engine that was told to end says so, and what it is.
    let end = subscriber.next().await;
    assert_eq!((end.kind.as_str(), &end.data["reason"]), ("end", &"restarted".into()), "{end:?}");
    let ended = framed.next_batch(&mut Vec::new()).await;
    assert!(matches!(&ended, Err(Error::Refused(refusal)) if refusal.status == 503), "{ended:?}");
    drop(framed);
    eventually("the next life of the lane", async || {
        let reply = member.try_publish("chat", "x").await;
        let answer = reply.json().ok().filter(|_| reply.status == 202)?;
        (answer["epoch"] != before["epoch"]).then_some(())
    })
    .await;
    for _ in 0..40 {
        member.publish("chat", vec![1; PAYLOAD_BYTES]).await;
    }
    assert_eq!(oldest(&member, "chat").await, (1, false), "all of them are held");
    client.subscribe("chat", Since::now()).await.expect("the session is whole");
}

#[tokio::test]
async fn a_lane_has_its_own_policy_for_slow_peers() {
    let settings = "[overlay]\nlane_overflow = [\"cut=disconnect\"]\npeer_egress_bytes = \"1 MiB\"\n";
    let mut pair = network_with(2, &[(1, 0)], settings).await;
    let stopped = pair[1].id.clone();
    let is_connected = async |node: &Member| node.peer(&stopped).await.is_some_and(|peer| peer["state"] == "connected");
    pair[1].process().signal(Signal::STOP);
    // Nothing is cut for a lane without a policy of its own, however full the queue.
    let busy = |answer: &Value| answer["peers"][0]["outcome"] == "busy";
    while !busy(&pair[0].publish("chat", vec![1; PAYLOAD_BYTES]).await) {}
    assert!(is_connected(&pair[0]).await);
    eventually("the end of the session", async || {
        pair[0].publish("cut", vec![1; PAYLOAD_BYTES]).await;
        (!is_connected(&pair[0]).await).then_some(())
    })
    .await;
    pair[1].process().signal(Signal::CONT);
}

#[tokio::test]
async fn a_peer_is_sent_no_more_than_its_budget() {
    let pair = network_with(2, &[(1, 0)], "[overlay]\npeer_bytes_per_second = \"256 KiB\"\n").await;
    let mut far = Subscriber::open(&pair[1], "chat", "").await;
    let began = std::time::Instant::now();
    let count = 16;
    let mut outcomes = Vec::new();
    for _ in 0..count {
        let answer = pair[0].publish("chat", vec![1; PAYLOAD_BYTES]).await;
        outcomes.push(answer["peers"][0]["outcome"].as_str().expect("an outcome").to_owned());
    }
    assert_eq!(far.messages(count).await.last().map(|message| message.seq()), Some(count as u64), "none is lost");
    // A second's worth goes at once, the rest at the rate: never sooner, whatever the machine.
    let least = (count * PAYLOAD_BYTES - 256 * 1024 - PAYLOAD_BYTES) as f64 / (256.0 * 1024.0);
    assert!(began.elapsed().as_secs_f64() >= least, "{:?} for {least:.1} s", began.elapsed());
    assert!(outcomes.iter().any(|outcome| outcome == "busy"), "{outcomes:?}");
}

#[tokio::test]
async fn a_node_that_is_not_listed_is_not_let_in() {
    let host = node("[overlay]\naccept = \"listed\"\n").await;
    let mut stranger = Member::new();
    stranger.knows(&host.address());
    stranger.start().await;
    eventually("a try that was refused", async || {
        let peer = stranger.peer(&host.id).await.expect("it stays configured");
        (peer["state"] == "backoff").then_some(())
    })
    .await;
    assert_eq!(host.peers().await, Vec::<Value>::new());
    let listed = json!({"node_id": stranger.id, "addr": stranger.oap});
    assert_eq!(host.ask(Method::POST, "/overlay/peers", &listed).await.status, 202);
    host.wait_connected(&stranger.id).await;
    stranger.wait_connected(&host.id).await;
}

#[tokio::test]
async fn a_session_that_would_not_be_let_in_any_more_ends_with_the_reload() {
    let mut host = node("[overlay]\naccept = \"any\"\n").await;
    let mut guest = Member::new();
    guest.knows(&host.address());
    guest.start().await;
    host.wait_connected(&guest.id).await;
    host.configure("[overlay]\naccept = \"listed\"\n");
    let reply = host.process().control("/reload").await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    eventually("its end", async || host.peers().await.is_empty().then_some(())).await;
    eventually("a try that was refused", async || {
        let peer = guest.peer(&host.id).await.expect("it stays configured");
        (peer["state"] == "backoff").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_peer_that_is_removed_and_named_again_comes_back() {
    let (mut host, guest) = (Member::new(), node("").await);
    host.start().await;
    let named = json!({"node_id": guest.id, "addr": guest.oap});
    for _ in 0..3 {
        assert_eq!(host.ask(Method::POST, "/overlay/peers", &named).await.status, 202);
        host.wait_connected(&guest.id).await;
        let removed = host.ask(Method::DELETE, &format!("/overlay/peers/{}", guest.id), &Value::Null).await;
        assert_eq!(removed.status, 204, "{}", removed.text());
    }
}

#[tokio::test]
async fn wrong_policies_of_lanes_are_refused_by_name() {
    for wrong in
        ["[\"chat\"]", "[\"chat=keep\"]", "[\"a b=disconnect\"]", "[\"a=disconnect\", \"a=busy\"]", "\"a=disconnect\""]
    {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let file = folder.path().join("node.toml");
        std::fs::write(&file, format!("[overlay]\nlane_overflow = {wrong}\n")).expect("written");
        let outcome = crate::process::run(folder.path(), &["check", "--config", &file.display().to_string()]).await;
        assert!(outcome.code != Some(0) && outcome.said().contains("overlay.lane_overflow"), "{wrong}: {outcome:?}");
    }
}

#[tokio::test]
async fn publications_are_counted_for_their_tenant() {
    let mut member = Member::running("http,oap,overlay,rewarder");
    member.start().await;
    let ann = member.mint(&["overlay:publish:*"], None).await;
    let body = json!({"payload_b64": "aGVsbG8="});
    assert_eq!(member.ask_as(&ann, Method::POST, "/overlay/lanes/chat/publish", &body).await.status, 202);
    assert_eq!(member.ask_as(&ann, Method::POST, "/overlay/lanes/chat/publish", &body).await.status, 202);
    let usage = member.ask(Method::GET, "/rewarder/usage", &Value::Null).await.json().expect("JSON");
    let quantity = |metric: &str| {
        let rows = usage["rows"].as_array().expect("rows");
        let row = rows.iter().find(|row| row["actor"] == "ann" && row["metric"] == metric);
        row.and_then(|row| row["quantity"].as_str()).unwrap_or_else(|| panic!("{metric} in {usage}")).to_owned()
    };
    assert_eq!(
        (quantity("overlay.messages_published"), quantity("overlay.bytes_published")),
        ("2".into(), "10".into())
    );
}

#[tokio::test]
async fn an_overlay_in_a_crash_loop_stays_down_until_an_operator_starts_it() {
    let mut member = Member::new().with_argument("--chaos");
    member.start().await;
    let law = svc_overlay::specs::OVERLAY.law;
    let process = member.process();
    let mut kills = 0;
    eventually("the end of patience", async || {
        // Killed as soon as it is back.
        let hit = process.control("/chaos/kill?task=conn_supervisor").await.json().ok();
        kills += hit.and_then(|answer| answer["hit"].as_array().map(|hit| hit.len() as u32)).unwrap_or(0);
        let topology = testkit::ask(process.admin, Method::GET, "/topology", &[], "").await.ok()?.json().ok()?;
        let service = topology["services"].as_array()?.iter().find(|service| service["name"] == "overlay")?.clone();
        (service["state"] == "failed").then_some(())
    })
    .await;
    assert!(kills > law.more_than, "{kills} kills, and the law allows {} restarts", law.more_than);
    let readiness = testkit::ask(process.admin, Method::GET, "/readyz", &[], "").await.expect("an answer");
    let state = readiness.json().expect("JSON")["state"].clone();
    assert_eq!((readiness.status, state), (200, "degraded".into()), "ready for the others: {}", readiness.text());
    let refused = testkit::ask(process.api, Method::GET, "/overlay/peers", &[], "").await.expect("an answer");
    assert_eq!(refused.status, 401, "who asks is looked at first: {}", refused.text());
    let bearer = [("authorization", format!("Bearer {}", process.token))];
    let bearer = bearer.each_ref().map(|(name, value)| (*name, value.as_str()));
    let refused = testkit::ask(process.api, Method::GET, "/overlay/peers", &bearer, "").await.expect("an answer");
    assert_eq!(refused.status, 503, "fail closed: {}", refused.text());
    let restarted = process.control("/services/overlay/restart").await;
    assert_eq!(restarted.status, 202, "{}", restarted.text());
    process.wait_ready().await;
    member.publish("chat", "again").await;
}
