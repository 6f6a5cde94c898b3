//! The page of an epoch in a real browser: a payee follows a link, sees the amount, and has it verified in the page.
//! `cargo xtask clients payee` does more of this: it types, and bends the answers on their way.

use http::Method;
use serde_json::{Value, json};
use testkit::{Node, Plane, ask, eventually, shown_in_browser};

use crate::options;

/// An id that would take over the page if it were put there as markup.
const MARKUP: &str = "<img src=x onerror=document.title=1>";

const ADDRESS: &str = "0x00000000000000000000000000000000000000Ab";

/// Has an epoch computed from this usage, and waits until it is sealed.
async fn computed(node: &Node, epoch: &str, csv: &str) {
    let bearer = format!("Bearer {}", node.token);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let b3 = format!("b3:{}", blake3::hash(csv.as_bytes()).to_hex());
    let input = format!("/rewarder/inputs/{b3}");
    let put = ask(node.api, Method::PUT, &input, &headers[..1], csv.to_owned()).await.expect("answered");
    assert!(put.status < 300, "{}", put.text());
    let assets = json!([{"asset": "RON", "pool": "1000003", "weights": {"usage": "1"}}]);
    let policy = json!({"id": "page", "ruleset": 1, "assets": assets});
    let body = json!({"inputs": [{"b3": b3}], "policy": policy, "unsigned": true}).to_string();
    let path = format!("/rewarder/epochs/{epoch}");
    let begun = ask(node.api, Method::POST, &format!("{path}/compute"), &headers, body).await.expect("answered");
    assert!(matches!(begun.status, 200 | 202), "{}", begun.text());
    eventually("a sealed epoch", async || {
        let answer = ask(node.api, Method::GET, &path, &headers, "").await.ok()?;
        let state = answer.json().ok()?["state"].as_str()?.to_owned();
        (state != "computing").then_some(())
    })
    .await;
}

/// Time of the page itself: it loads, asks, and verifies a proof.
const PAGE_TIME_MS: u64 = 8_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payee_sees_and_verifies_a_payout() {
    let node = options().config("[rewarder]\nunsigned_policies = true\n").start().await.expect("started");
    let csv = format!("actor,quantity\nalice,500\nbob,333\n{MARKUP},7\n{ADDRESS},90\n");
    computed(&node, "2026-11", &csv).await;
    let page = format!("http://{}/rewarder/epochs/2026-11", node.api);
    let token = &node.token;
    for (id, amount) in [("alice", "537\u{202f}636"), (ADDRESS, "96\u{202f}774")] {
        let payout = format!("{page}#token={token}&id={id}&verify");
        let Some(shown) = shown_in_browser(&payout, PAGE_TIME_MS).await else { return };
        assert!(shown.contains(r#"data-verdict="ok""#), "{shown}");
        assert!(shown.contains(amount), "{id} has not {amount}: {shown}");
    }
    let markup = "%3Cimg%20src%3Dx%20onerror%3Ddocument.title%3D1%3E";
    let payout = format!("{page}#token={token}&id={markup}&verify");
    let marked = shown_in_browser(&payout, PAGE_TIME_MS).await.expect("a browser");
    assert!(marked.contains(r#"data-verdict="ok""#), "{marked}");
    assert!(marked.contains("<title>Payouts of 2026-11</title>"), "{marked}");
    assert!(!marked.contains("<img"), "an id became markup");
    let stranger = shown_in_browser(&format!("{page}#id=alice&verify"), PAGE_TIME_MS).await.expect("a browser");
    assert!(stranger.contains("This epoch is not public.") && !stranger.contains("1\u{202f}000\u{202f}003"));
}

#[tokio::test]
async fn the_page_holds_no_data_and_runs_no_script_but_its_own() {
    let node = options().amnesia().start().await.expect("started");
    let browser = [("accept", "text/html,application/xhtml+xml,*/*;q=0.8")];
    let page = ask(node.api, Method::GET, "/rewarder/epochs/zz-7", &browser, "").await.expect("answered");
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    let policy = page.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; script-src 'self'") && !policy.contains("unsafe"), "{policy}");
    assert!(!page.text().contains("zz-7"), "it knows the epoch");
    for (file, media_type) in [("page.mjs", "text/javascript"), ("page.css", "text/css")] {
        let reply = node.get(Plane::Api, &format!("/rewarder/page/{file}")).await.expect("answered");
        assert!(reply.status == 200 && reply.header("content-type").starts_with(media_type), "{file}");
    }
    assert_eq!(node.get(Plane::Api, "/rewarder/page/agree.mjs").await.expect("answered").status, 404);
    // A program that asks for the same address has to show a token.
    let data: Value = {
        let reply = node.get(Plane::Api, "/rewarder/epochs/zz-7").await.expect("answered");
        assert_eq!(reply.status, 401);
        reply.json().expect("a problem")
    };
    assert!(data["title"].is_string());
}
