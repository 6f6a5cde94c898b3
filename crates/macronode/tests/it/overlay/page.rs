//! The page of the mesh in a real browser.

use http::Method;
use serde_json::Value;
use testkit::{Client, Reply, shown_in_browser};

use crate::member::{Member, network};

async fn get(member: &Member, path: &str) -> Reply {
    let mut client = Client::connect(member.api()).await.expect("the node listens");
    client.request(Method::GET, path, &[], "").await.expect("an answer")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mesh_is_drawn_with_its_links() {
    let mut members = network(2, &[(1, 0)]).await;
    members[0].publish("chat", "x").await;
    let nobody = Member::new();
    let absent = serde_json::json!({"node_id": nobody.id, "addr": nobody.oap.to_string()});
    members[0].ask(Method::POST, "/overlay/peers", &absent).await;
    let bearer = members[0].bearer();
    let token = bearer.strip_prefix("Bearer ").expect("a bearer");
    let page = format!("http://{}/overlay#token={token}", members[0].api());
    let Some(shown) = shown_in_browser(&page, 3_000).await else { return };
    for words in [
        members[0].id.as_str(),
        "1 of 2 peers connected",
        "class=\"link eager\"",
        "class=\"link lost\"",
        &members[1].id[..8],
        &nobody.id[..8],
        "eager: chat",
    ] {
        assert!(shown.contains(words), "{words} is missing in {shown}");
    }
    assert!(!shown.contains(token), "the token is nowhere in the page");
    members[1].end(rustix::process::Signal::KILL).await;
}

#[tokio::test]
async fn the_page_holds_no_data_and_runs_no_script_but_its_own() {
    let mut member = Member::new();
    member.start().await;
    let page = get(&member, "/overlay").await;
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    let policy = page.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; script-src 'self'") && !policy.contains("unsafe"), "{policy}");
    assert!(!page.text().contains(&member.id), "it knows the node");
    for (file, media_type) in [
        ("page.mjs", "text/javascript"),
        ("mesh.mjs", "text/javascript"),
        ("live.mjs", "text/javascript"),
        ("frame.css", "text/css"),
    ] {
        let reply = get(&member, &format!("/overlay/page/{file}")).await;
        assert!(reply.status == 200 && reply.header("content-type").starts_with(media_type), "{file}");
    }
    assert_eq!(get(&member, "/overlay/page/page.html").await.status, 404);
    let refused = member.ask_as("Bearer AAAA", Method::GET, "/overlay/peers", &Value::Null).await;
    assert_eq!(refused.status, 401);
}
