//! The rewarder under load: six hundred at once, half of its workers dying, a drain.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use testkit::{Client, Node, Plane, eventually};

use crate::options;
use crate::rewarder::service::{Caller, UNSIGNED, b3, body, policy, usage};

/// A usage file that takes a worker many seconds: a small file that unpacks to hundreds of megabytes of rows.
fn slow_usage() -> Vec<u8> {
    let packed = |text: &str| {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut packer, text.as_bytes()).expect("packed");
        packer.finish().expect("packed")
    };
    [packed("actor,quantity\n"), packed(&"a,1\n".repeat(1 << 18)).repeat(900)].concat()
}

/// In memory, so that six hundred runs do not wait for as many syncs; then only pinned files are paid from.
#[tokio::test]
async fn a_crowd_is_answered_by_the_book_and_nothing_accepted_is_lost() {
    // On a slow machine the worker is free again before all of the crowd has come, and nobody is turned away.
    for deadline_ms in [25_000, 60_000] {
        if is_turned_away_in_part(deadline_ms).await {
            return;
        }
    }
    panic!("the queue holds 512, and one of 600 must have been turned away");
}

/// Sends the crowd while the only worker is busy for so long; whether somebody was turned away.
async fn is_turned_away_in_part(deadline_ms: u64) -> bool {
    let inputs = tempfile::tempdir().expect("a folder");
    std::fs::write(inputs.path().join("slow.csv.gz"), slow_usage()).expect("written");
    let folder = inputs.path().display().to_string();
    let config = format!("{UNSIGNED}inputs_dir = {folder:?}\ncompute_workers = 1\n[connections]\nper_ip_max = 4000\n");
    let node = options().amnesia().config(config).start().await.expect("started");
    let caller = Caller::of(&node);
    // The only worker is busy until this run's own deadline ends it, so that the queue behind it fills.
    let slow =
        json!({"inputs": [{"path": "slow.csv.gz"}], "policy": policy(), "unsigned": true, "deadline_ms": deadline_ms});
    assert_eq!(caller.compute("slow", &slow).await.status, 202);
    eventually("the slow run has the worker", async || {
        let answer = caller.get("/rewarder/epochs/slow").await.json().ok()?;
        (answer["progress"]["stage"] == "reading").then_some(())
    })
    .await;
    let epochs: Vec<String> = (0..600).map(|number| format!("crowd-{number:03}")).collect();
    let asked = epochs.iter().enumerate().map(|(number, epoch)| {
        let (content, name) = (usage(3, number), format!("{epoch}.csv"));
        std::fs::write(inputs.path().join(&name), &content).expect("written");
        let pinned = json!([{"path": name, "b3": b3(&content)}]);
        let request = json!({"inputs": pinned, "policy": policy(), "unsigned": true}).to_string();
        let (path, bearer) = (format!("/rewarder/epochs/{epoch}/compute"), &caller.bearer);
        let api = node.api;
        async move {
            let json = ("content-type", "application/json");
            let headers = [("authorization", bearer.as_str()), json, ("x-request-deadline-ms", "30000")];
            let mut client = Client::connect(api).await.expect("it listens");
            let reply = client.request(Method::POST, &path, &headers, request).await.expect("answered");
            assert!(reply.status != 429 || !reply.header("retry-after").is_empty(), "busy says when to come back");
            reply.status
        }
    });
    let statuses = futures_util::future::join_all(asked).await;
    assert!(statuses.iter().all(|status| matches!(status, 202 | 429)), "{statuses:?}");
    let taken = epochs.iter().zip(&statuses).filter(|(_, status)| **status == 202);
    let accepted: Vec<&String> = taken.map(|(epoch, _)| epoch).collect();
    assert!(accepted.len() >= 500, "{} accepted", accepted.len());
    let slow = caller.ended("slow").await;
    assert_eq!(slow["state"], "refused", "{slow}");
    assert!(slow["refusal"]["reason"].as_str().is_some_and(|reason| reason.contains("deadline")), "{slow}");
    for epoch in &accepted {
        assert_eq!(caller.ended(epoch).await["state"], "settled", "{epoch} was accepted");
    }
    let sealed = node.metric(r#"reward_runs_total{status="sealed"}"#).await;
    assert_eq!(sealed as usize, accepted.len(), "what was refused was not computed");
    statuses.contains(&429)
}

/// Time after which a crash loop must be over: its window of a minute and the patience for anything else.
const CRASH_LOOP_MAX: Duration = Duration::from_secs(120);

/// Waits until every worker runs and so many were restarted.
async fn until_restarted(node: &Node, restarts: usize) {
    eventually("every worker runs again", async || {
        let topology = node.get(Plane::Admin, "/topology").await.ok()?.json().ok()?;
        let workers = topology["tasks"].as_array()?.iter().filter(|task| task["name"] == "compute_worker");
        let states: Vec<&Value> = workers.map(|task| &task["state"]).collect();
        let counted = node.metric(r#"service_restarts_total{service="rewarder"}"#).await;
        let all_run = states.len() == 4 && states.iter().all(|state| **state == "running");
        (all_run && counted >= restarts as f64).then_some(())
    })
    .await;
}

async fn readiness(node: &Node) -> (u16, Value) {
    let reply = node.get(Plane::Admin, "/readyz").await.expect("answered");
    (reply.status, reply.json().expect("JSON")["state"].clone())
}

#[tokio::test]
async fn half_of_the_workers_die_under_load_and_every_run_is_sealed_once() {
    let config = format!("{UNSIGNED}compute_workers = 4\n");
    let node = options().chaos().config(config).start().await.expect("started");
    let caller = Caller::of(&node);
    assert_eq!(readiness(&node).await, (200, json!("ready")));
    let epochs: Vec<String> = (0..24).map(|number| format!("load-{number:02}")).collect();
    let mut killed = 0;
    for (number, epoch) in epochs.iter().enumerate() {
        let b3 = caller.upload(&usage(2_000, number)).await;
        assert_eq!(caller.compute(epoch, &body(&b3)).await.status, 202);
        if number % 8 == 3 {
            let path = "/chaos/kill?task=compute_worker&share=0.5";
            let answer = node.post(Plane::Admin, path, "", &[]).await.expect("answered");
            let hit = answer.json().expect("JSON")["hit"].as_array().map_or(0, Vec::len);
            assert_eq!((answer.status, hit), (200, 2), "half of four: {}", answer.text());
            killed += hit;
            until_restarted(&node, killed).await;
        }
    }
    // More than five restarts in a minute are a crash loop: the service is shown as unready, and goes on working; the
    // node stays ready for the others. On a slow machine that minute may be over before the last epoch is settled.
    eventually("a crash loop", async || {
        let reply = node.get(Plane::Admin, "/readyz").await.expect("answered");
        let (status, body) = (reply.status, reply.json().expect("JSON"));
        let rewarder = body["services"].as_array()?.iter().find(|service| service["name"] == "rewarder")?.clone();
        let is_shown = (&rewarder["state"], &body["state"]) == (&json!("unready"), &json!("degraded"));
        (status == 200 && is_shown).then_some(())
    })
    .await;
    for epoch in &epochs {
        assert_eq!(caller.ended(epoch).await["state"], "settled", "{epoch}");
    }
    assert_eq!(node.metric(r#"reward_runs_total{status="sealed"}"#).await, 24.0, "no run twice");
    assert_eq!(node.metric(r#"service_restarts_total{service="rewarder"}"#).await, 6.0);
    let over = async {
        while readiness(&node).await != (200, json!("ready")) {
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    };
    tokio::time::timeout(CRASH_LOOP_MAX, over)
        .await
        .expect("it is over when its restarts have left the window of 60 s");
}

/// Connections that ask again and again while the node leaves.
const ASKERS: usize = 16;
/// Nodes after which a refusal that nobody has heard is missing. A connection that is closed in the very moment of the
/// drain says nothing, so that one node may leave without having been asked.
const DRAINS_MAX: usize = 4;

#[tokio::test]
async fn a_drain_refuses_new_runs_and_leaves_in_time() {
    for _ in 0..DRAINS_MAX {
        if drained().await.contains(&503) {
            return;
        }
    }
    panic!("no request was answered with 503");
}

/// Statuses that were answered while a node left; none of another kind than a run that is begun and a refusal.
async fn drained() -> Vec<u16> {
    let inputs = tempfile::tempdir().expect("a folder");
    std::fs::write(inputs.path().join("usage.csv"), usage(3, 0)).expect("written");
    let config = format!("{UNSIGNED}inputs_dir = {:?}\n", inputs.path().display().to_string());
    let mut node = options().amnesia().config(config).start().await.expect("started");
    let bearer = Caller::of(&node).bearer;
    let request = json!({"inputs": [{"path": "usage.csv"}], "policy": policy(), "unsigned": true}).to_string();
    let mut askers = tokio::task::JoinSet::new();
    for asker in 0..ASKERS {
        let (bearer, request) = (bearer.clone(), request.clone());
        let mut client = Client::connect(node.api).await.expect("it listens");
        askers.spawn(async move {
            let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
            let mut statuses = Vec::new();
            for number in 0.. {
                let path = format!("/rewarder/epochs/late-{asker}-{number}/compute");
                let Ok(reply) = client.request(Method::POST, &path, &headers, request.clone()).await else { break };
                assert!(matches!(reply.status, 202 | 429 | 503), "{}", reply.text());
                if reply.status == 503 {
                    assert_eq!(reply.json().expect("a problem")["code"], "E_CANCELED");
                }
                statuses.push(reply.status);
            }
            statuses
        });
    }
    eventually("runs are begun", async || {
        let begun = node.metric(r#"reward_runs_total{status="sealed"}"#).await;
        (begun > 0.0).then_some(())
    })
    .await;
    node.signal(testkit::Signal::Term);
    let statuses = askers.join_all().await.concat();
    let status = node.wait_exit(testkit::PATIENCE_MAX).await.expect("it leaves");
    assert_eq!(status.code(), Some(0), "{}", node.stderr());
    statuses
}
