//! Faults: workers killed under load, a worker frozen, a service restarted by its operator.

use std::time::{Duration, Instant};

use testkit::{Load, Node, PATIENCE_MAX, Plane, eventually};

use crate::alone;
use crate::gates::{chaos, dev_node, echoes};

/// Workers that are killed at least, so that it was a crash loop.
const KILLS_MIN: usize = 30;

/// Sees every change of the node's state on /readyz.
#[derive(Default)]
struct Readiness {
    states: Vec<String>,
    refusals: Vec<String>,
}

impl Readiness {
    async fn look(&mut self, node: &Node) {
        let reply = node.get(Plane::Admin, "/readyz").await.expect("the admin plane answers");
        let state = reply.json().expect("JSON")["state"].as_str().expect("a word").to_owned();
        if reply.status != 200 {
            self.refusals.push(reply.text());
        }
        if self.states.last() != Some(&state) {
            self.states.push(state);
        }
    }

    fn now(&self) -> &str {
        self.states.last().map_or("", String::as_str)
    }
}

#[tokio::test]
async fn killing_a_tenth_of_the_workers_again_and_again_is_survived() {
    let turn = alone().await;
    let node = dev_node().chaos().start().await.expect("started");
    let mut readiness = Readiness::default();
    readiness.look(&node).await;
    let load = Load::shaped(node.api, echoes(16));
    let began = Instant::now();
    let mut kills = tokio::time::interval(Duration::from_millis(250));
    let mut looks = tokio::time::interval(Duration::from_millis(50));
    let mut killed = 0;
    // Ten seconds, and on a slow machine as many more as the kills take.
    while began.elapsed() < Duration::from_secs(10) || killed <= KILLS_MIN {
        tokio::select! {
            _ = kills.tick() => killed += chaos(&node, "kill?task=worker&share=0.1").await.len(),
            _ = looks.tick() => readiness.look(&node).await,
        }
    }
    let report = load.stop().await;
    drop(turn);
    let restarts = eventually("as many restarts", async || {
        let restarts = node.metric(r#"service_restarts_total{service="workers"}"#).await;
        (restarts > KILLS_MIN as f64).then_some(restarts)
    })
    .await;
    println!("chaos: {:?}, {restarts} restarts, states {:?}", report.by_status, readiness.states);
    assert!(report.answered() > 1_000, "there was load");
    let share = report.server_errors() as f64 / report.answered() as f64;
    assert!(share <= 0.001, "{share} of the answers are 5xx: {:?} {:?}", report.by_status, report.samples);
    assert_eq!((report.broken, report.truncated), (0, 0));

    // The crash loop is over when its restarts have left the window of 60 s.
    let end = Instant::now() + Duration::from_secs(60) + PATIENCE_MAX;
    while readiness.now() != "ready" && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(250)).await;
        readiness.look(&node).await;
    }
    assert_eq!(readiness.states, ["ready", "degraded", "ready"]);
    assert!(readiness.refusals.is_empty(), "/readyz was not 200: {}", readiness.refusals[0]);
}

#[tokio::test]
async fn a_frozen_worker_is_found_by_its_heartbeat_and_replaced() {
    let node = dev_node().chaos().start().await.expect("started");
    let load = Load::shaped(node.api, echoes(4));
    let hit = chaos(&node, "freeze?task=worker").await;
    let began = Instant::now();
    let instance: u64 = hit[0].trim_start_matches("worker[").trim_end_matches(']').parse().expect("a number");
    loop {
        let topology = node.get(Plane::Admin, "/topology").await.expect("answers").json().expect("JSON");
        let tasks = topology["tasks"].as_array().expect("a list");
        let frozen = tasks.iter().find(|task| task["name"] == "worker" && task["instance"] == instance);
        let frozen = frozen.expect("the instance is shown");
        let missed = frozen["last_exit"].as_str().is_some_and(|exit| exit.contains("heartbeat"));
        if missed && frozen["state"] == "running" {
            break;
        }
        assert!(began.elapsed() < PATIENCE_MAX, "{} is not replaced: {frozen}", hit[0]);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let report = load.stop().await;
    println!("frozen: replaced after {:?}, {:?}", began.elapsed(), report.by_status);
    assert!(report.with_status(200) > 100, "requests go on: {:?}", report.by_status);
    // At most the one job the worker held when it froze.
    assert!(report.answered() - report.with_status(200) <= 1, "{:?} {:?}", report.by_status, report.samples);
    assert_eq!((report.broken, report.truncated), (0, 0));
    assert_eq!(node.metric(r#"service_restarts_total{service="workers"}"#).await, 1.0);
}

#[tokio::test]
async fn a_service_restarted_under_load_serves_again_on_the_same_port() {
    let node = dev_node().start().await.expect("started");
    let load = Load::shaped(node.api, echoes(16));
    let spawned = r#"tasks_spawned_total{kind="overlay_http"}"#;
    assert_eq!(node.metric(spawned).await, 1.0);
    let began = Instant::now();
    let reply = node.post(Plane::Admin, "/services/http/restart", "", &[]).await.expect("answers");
    assert_eq!(reply.status, 202, "{}", reply.text());
    let json = [("content-type", "application/json")];
    loop {
        let restarted = node.metric(spawned).await == 2.0;
        let echo = node.post(Plane::Api, "/v1/echo", r#"{"message":"again"}"#, &json).await;
        if restarted && echo.as_ref().is_ok_and(|reply| reply.status == 200) {
            break;
        }
        assert!(began.elapsed() < PATIENCE_MAX, "no echo after the restart: {echo:?}\n{}", node.stderr());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("restart: served again after {:?}", began.elapsed());
    let report = load.stop().await;
    assert_eq!(report.truncated, 0);
    let allowed = |status: &u16| matches!(status, 200 | 503);
    assert!(report.by_status.keys().all(allowed), "{:?} {:?}", report.by_status, report.samples);
    assert_eq!(report.refused, 0, "the port stays open");
}
