//! A node that pays a ledger behind HTTP, which is misconfigured in the middle of the payouts and mended.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::process::{Process, run};
use crate::rewarder::service::{UNSIGNED, caller_of, usage, write_settings};

/// Payees: two calls of 4,096 at most.
const PAYEES: usize = 5_000;

/// Payouts by key, and whether the next batch is refused.
#[derive(Default)]
struct Books {
    booked: BTreeMap<String, Value>,
    is_refusing: bool,
    /// Every payout is booked as one unit, and said to be there already.
    is_lying: bool,
    batches: u64,
    duplicates: u64,
}

type Shared = State<Arc<Mutex<Books>>>;

async fn transfers(State(books): Shared, Json(batch): Json<Value>) -> Result<Json<Value>, (StatusCode, &'static str)> {
    let mut books = books.lock().expect("whole");
    books.batches += 1;
    if books.is_refusing {
        return Err((StatusCode::UNPROCESSABLE_ENTITY, "no such scheme"));
    }
    // Every batch but the first meets the wrong settings, once.
    books.is_refusing = books.batches == 1;
    let mut outcomes = Vec::new();
    for entry in batch["entries"].as_array().expect("entries") {
        let key = entry["key"].as_str().expect("a key").to_owned();
        if books.is_lying {
            books.booked.insert(key, json!([batch["run"], batch["asset"], batch["pot"], {"amount": "1"}]));
            outcomes.push("duplicate");
            continue;
        }
        let content = json!([batch["run"], batch["asset"], batch["pot"], entry]);
        let outcome = match books.booked.get(&key) {
            None => "accepted",
            Some(known) if *known == content => "duplicate",
            Some(_) => "conflict",
        };
        books.duplicates += u64::from(outcome == "duplicate");
        books.booked.entry(key).or_insert(content);
        outcomes.push(outcome);
    }
    Ok(Json(json!({"outcomes": outcomes})))
}

async fn tally(State(books): Shared, Path(asked): Path<String>) -> Json<Value> {
    let books = books.lock().expect("whole");
    let entries = books.booked.values().filter(|content| content[0] == asked.as_str());
    let amounts: Vec<u128> =
        entries.map(|content| content[3]["amount"].as_str().expect("units").parse().expect("a number")).collect();
    let (count, paid) = (amounts.len().to_string(), amounts.iter().sum::<u128>().to_string());
    Json(json!({"assets": [{"asset": "RON", "count": count, "paid": paid, "taken_back": "0"}]}))
}

/// A ledger that books these amounts, and a node that pays it.
async fn node_of(
    here: &std::path::Path,
    books: &Arc<Mutex<Books>>,
    server: &mut JoinSet<std::io::Result<()>>,
) -> Process {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let routes = axum::Router::new()
        .route("/v1/transfers", post(transfers))
        .route("/v1/runs/{run}/tally", get(tally))
        .layer(axum::extract::DefaultBodyLimit::max(16 << 20))
        .with_state(Arc::clone(books));
    server.spawn(async move { axum::serve(listener, routes).await });
    write_settings(&here.join("ledger.toml"), format!("base = \"http://{address}/v1\"\n"));
    let config = format!("{UNSIGNED}ledger = \"http\"\nledger_settings = \"ledger.toml\"\n");
    std::fs::write(here.join("node.toml"), config).expect("written");
    Process::start(here, &here.join("data"), &["--config", "node.toml"]).await
}

#[tokio::test]
async fn a_ledger_that_calls_other_amounts_duplicates_is_found_out_by_its_own_sums() {
    let books = Arc::new(Mutex::new(Books { is_lying: true, ..Books::default() }));
    let (folder, mut server) = (tempfile::tempdir().expect("a folder"), JoinSet::new());
    let node = node_of(folder.path(), &books, &mut server).await;
    let caller = caller_of(&node);
    let b3 = caller.upload("actor,quantity\nann,1\nbob,1\n").await;
    assert_eq!(caller.compute("e1", &crate::rewarder::service::body(&b3)).await.status, 202);
    let epoch = caller.ended("e1").await;
    assert_eq!(epoch["state"], "quarantined", "{epoch}");
    let settlement = caller.get("/rewarder/epochs/e1/settlement").await.json().expect("JSON");
    assert_eq!(settlement["quarantine"]["reason"], "intent", "{settlement}");
    let asset = &settlement["reconciliation"]["assets"][0];
    assert_eq!((&asset["expected_paid"], &asset["found_paid"]), (&json!("1000003"), &json!("2")), "{settlement}");
}

#[tokio::test]
async fn an_epoch_that_its_ledger_refused_halfway_is_lifted_and_everybody_is_paid_once() {
    let books = Arc::new(Mutex::new(Books::default()));
    let (folder, mut server) = (tempfile::tempdir().expect("a folder"), JoinSet::new());
    let here = folder.path();
    let node = node_of(here, &books, &mut server).await;
    let caller = caller_of(&node);
    let b3 = caller.upload(&usage(PAYEES, 0)).await;
    let assets = json!([{"asset": "RON", "pool": "100000000", "weights": {"usage": "1"}}]);
    let policy = json!({"id": "demo", "ruleset": 1, "assets": assets});
    let body = json!({"inputs": [{"b3": b3}], "policy": policy, "unsigned": true});
    assert_eq!(caller.compute("e1", &body).await.status, 202);
    assert_eq!(caller.ended("e1").await["state"], "quarantined");
    let booked = books.lock().expect("whole").booked.len();
    assert!(booked > 0 && booked < PAYEES, "{booked} are booked");

    let again = caller.compute("e1", &body).await;
    assert_eq!(again.status, 422, "{}", again.text());
    let told = again.json().expect("a problem");
    assert_eq!(told["code"], "E_QUARANTINE", "{told}");
    let detail = told["detail"].as_str().expect("words");
    assert!(detail.contains("no such scheme") && detail.contains("lifted"), "{detail}");
    assert!(!detail.contains("another id"), "under another id everybody would be paid again: {detail}");

    books.lock().expect("whole").is_refusing = false;
    run(here, &["reward", "release", "e1", "--data-dir", "data"]).await.expect(70, &["E_QUARANTINE"]);
    let lift = ["reward", "release", "e1", "--lift-quarantine", "--data-dir", "data"];
    run(here, &lift).await.expect(0, &["e1 is released"]);
    assert_eq!(caller.ended("e1").await["state"], "settled");
    let settlement = caller.get("/rewarder/epochs/e1/settlement").await.json().expect("JSON");
    assert_eq!((&settlement["sent"], &settlement["quarantine"]), (&json!(PAYEES), &Value::Null), "{settlement}");
    let books = books.lock().expect("whole");
    assert_eq!((books.booked.len(), books.duplicates as usize), (PAYEES, booked), "what was booked came again");
    let paid = books.booked.values().map(|content| content[3]["amount"].as_str().expect("units"));
    assert_eq!(paid.map(|units| units.parse::<u64>().expect("a number")).sum::<u64>(), 100_000_000);
}
