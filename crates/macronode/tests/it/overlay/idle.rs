//! Sessions that stand and say nothing: what each costs a node.

use testkit::anonymous_bytes;

use crate::member::{Member, network_with};

/// Sessions before those that are counted: threads, pools and tables are there from then on.
const BEFORE: usize = 200;
const SESSIONS: usize = 500;
/// What the contract allows for each at 10,000 of them; a build without optimization keeps larger tasks.
const BYTES_MAX: u64 = 25 * 1024;
const SETTINGS: &str = "[connections]\nper_ip_max = 1000\naccepts_per_ip_per_second = 100000\n";

async fn begin(member: &Member, count: usize) -> Vec<oap_client::Client> {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(member.oap_client().await);
    }
    clients
}

#[tokio::test]
async fn an_idle_session_costs_little_memory() {
    let mut members = network_with(1, &[], SETTINGS).await;
    let before = begin(&members[0], BEFORE).await;
    let held_before = anonymous_bytes(members[0].process().id());
    let clients = begin(&members[0], SESSIONS).await;
    let grown = anonymous_bytes(members[0].process().id()).saturating_sub(held_before);
    let each = grown / SESSIONS as u64;
    assert!(each <= BYTES_MAX, "{each} bytes for each of {SESSIONS} idle sessions");
    // They stand: each still answers.
    for client in before.iter().chain(&clients) {
        client.subscribe("chat", oap_client::Since::now()).await.expect("the session stands");
    }
}
