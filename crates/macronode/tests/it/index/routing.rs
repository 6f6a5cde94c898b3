//! Delegated Routing V1, as clients of IPFS ask.

use std::io::Read as _;

use flate2::read::GzDecoder;
use http::Method;
use ron_store::PeerId;
use serde_json::{Value, json};
use testkit::Reply;

use crate::index::node::{ABC_CID, PEER, SERVICES, alone, open, provide_abc};
use crate::index::routers::{Router, upstreams};
use crate::member::Member;

const NDJSON: (&str, &str) = ("accept", "application/x-ndjson");

async fn get(node: &Member, path: &str, headers: &[(&str, &str)]) -> Reply {
    open(node, Method::GET, &format!("/routing/v1{path}"), headers, "").await
}

fn is_open_to_pages(reply: &Reply) -> bool {
    reply.header("access-control-allow-origin") == "*" && reply.header("access-control-allow-methods").contains("GET")
}

#[tokio::test]
async fn providers_are_given_as_a_document_or_as_lines() {
    let node = alone().await;
    provide_abc(&node).await;
    let path = format!("/providers/{ABC_CID}");
    let document = get(&node, &path, &[]).await;
    let record = json!({"Schema": "peer", "ID": PEER, "Protocols": ["transport-bitswap"],
        "Addrs": ["/ip4/10.0.0.1/tcp/4001", "/ip6/2001:db8::1/udp/4001/quic-v1"]});
    assert_eq!(document.json().expect("JSON"), json!({"Providers": [record]}));
    assert_eq!((document.status, document.header("content-type")), (200, "application/json"));
    assert!(document.header("cache-control").starts_with("public, max-age=300, "), "{:?}", document.headers);
    assert!(document.header("vary").contains("Accept") && !document.header("last-modified").is_empty());
    assert!(is_open_to_pages(&document), "{:?}", document.headers);
    // Every spelling of the same hash, and every codec, has the same providers.
    for id in [
        "b3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85",
        "f01551e206437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85",
        "f01701e206437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85",
    ] {
        let same = get(&node, &format!("/providers/{id}"), &[]).await.json().expect("JSON");
        assert_eq!(same["Providers"][0]["ID"], PEER, "{id}");
    }
    let lines = get(&node, &path, &[("accept", "application/x-ndjson, application/json;q=0.8")]).await;
    assert_eq!(lines.header("content-type"), "application/x-ndjson");
    let read: Vec<Value> = lines.text().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(read, [record]);
    let packed = get(&node, &path, &[NDJSON, ("accept-encoding", "gzip, br")]).await;
    assert_eq!(packed.header("content-encoding"), "gzip");
    let mut text = String::new();
    GzDecoder::new(&packed.body[..]).read_to_string(&mut text).expect("a whole stream");
    assert_eq!(text, lines.text());
    assert_eq!(get(&node, &path, &[("accept", "text/html")]).await.status, 400);
}

#[tokio::test]
async fn filters_choose_addresses_and_providers() {
    let node = alone().await;
    provide_abc(&node).await;
    for (query, addrs) in [
        ("filter-addrs=tcp", Some(1)),
        ("filter-addrs=tcp%2Cquic-v1", Some(2)),
        ("filter-addrs=%21ip6", Some(1)),
        ("filter-addrs=webtransport", None),
        ("filter-protocols=transport-bitswap,unknown", Some(2)),
        ("filter-protocols=transport-ipfs-gateway-http", None),
        ("filter-protocols=unknown", None),
        ("filter-addrs=TCP&filter-protocols=Transport-Bitswap", Some(1)),
        ("something=else", Some(2)),
    ] {
        let reply = get(&node, &format!("/providers/{ABC_CID}?{query}"), &[]).await;
        let answer = reply.json().expect("JSON");
        let shown = answer["Providers"][0]["Addrs"].as_array().map(Vec::len);
        assert_eq!((reply.status, shown), (200, addrs), "{query}: {answer}");
    }
}

#[tokio::test]
async fn nothing_is_an_answer_and_nonsense_is_refused() {
    let node = alone().await;
    let unknown = "bafkr4ifpcne3t5pzugtkaqcn5i3nzskjtpfslsnnyejlpte2spfoihzsmi";
    let empty = get(&node, &format!("/providers/{unknown}"), &[]).await;
    assert_eq!((empty.status, empty.json().expect("JSON")), (200, json!({"Providers": []})));
    assert!(empty.header("cache-control").starts_with("public, max-age=15, "));
    let lines = get(&node, &format!("/providers/{unknown}"), &[NDJSON]).await;
    assert_eq!((lines.status, lines.text().as_str()), (200, ""));
    assert!(lines.header("cache-control").starts_with("public, max-age=15, "));
    let nowhere = get(&node, &format!("/peers/{PEER}"), &[]).await;
    assert_eq!((nowhere.status, nowhere.json().expect("JSON")), (200, json!({"Peers": []})));
    let nobody = get(&node, &format!("/dht/closest/peers/{unknown}"), &[]).await;
    assert_eq!((nobody.status, nobody.json().expect("JSON")), (200, json!({"Peers": []})));
    assert!(nobody.header("cache-control").starts_with("public, max-age=15, ") && is_open_to_pages(&nobody));
    for path in
        ["/providers/nonsense", "/providers/b3:00", "/peers/nonsense", "/ipns/nonsense", "/dht/closest/peers/nonsense"]
    {
        let refused = get(&node, path, &[]).await;
        assert_eq!(refused.status, 422, "{path}: {}", refused.text());
        assert!(is_open_to_pages(&refused), "{path}");
    }
    let put = open(&node, Method::PUT, "/routing/v1/providers/", &[], "{}").await;
    assert_eq!(put.status, 501);
}

#[tokio::test]
async fn the_node_itself_is_a_peer_that_it_knows() {
    let node = alone().await;
    let peers = node.ask(Method::GET, "/dht/peers", &Value::Null).await.json().expect("JSON");
    let id = peers["peer_id"].as_str().expect("an id").to_owned();
    let own: PeerId = id.parse().expect("a peer id");
    // As a name is written, too.
    for spelled in [id.clone(), own.cid_text()] {
        let found = get(&node, &format!("/peers/{spelled}"), &[]).await;
        let record = json!({"Schema": "peer", "ID": id, "Addrs": peers["listen"]});
        assert_eq!(found.json().expect("JSON"), json!({"Peers": [record]}), "{spelled}");
        assert!(found.header("cache-control").starts_with("public, max-age=300, "), "{spelled}");
    }
    let quic = get(&node, &format!("/peers/{id}?filter-addrs=quic-v1"), &[NDJSON]).await;
    let line: Value = serde_json::from_str(&quic.text()).expect("one line");
    assert_eq!(line["Addrs"].as_array().map(Vec::len), Some(1), "{line}");
}

#[tokio::test]
async fn what_nobody_could_say_is_kept_by_no_cache() {
    let routers = [Router::silent().await];
    let mut node = Member::running(SERVICES);
    node.configure(&upstreams(&routers));
    node.start().await;
    let name = "/ipns/k51qzi5uqu5dlvj2baxnqndepeb86cbk3ng7n3i46uzyxzyqj2xjonzllnv0v8";
    for (path, headers, body) in [
        (format!("/providers/{ABC_CID}"), &[][..], "{\"Providers\":[]}"),
        (format!("/providers/{ABC_CID}"), &[NDJSON], ""),
        (name.to_owned(), &[], "no record of this name is known\n"),
    ] {
        let reply = get(&node, &path, headers).await;
        assert_eq!((reply.status, reply.text().as_str()), (200, body), "{path}");
        assert_eq!(reply.header("cache-control"), "no-store", "{path}");
        assert!(is_open_to_pages(&reply) && reply.header("vary").contains("Accept"), "{path}");
    }
    assert!(routers[0].asked() > 0);
    // Routers are not asked for peers, so that the network of this node alone has its say: nobody.
    let nowhere = get(&node, &format!("/peers/{PEER}"), &[]).await;
    assert!(nowhere.header("cache-control").starts_with("public, max-age=15, "));
}

#[tokio::test]
async fn every_refusal_can_be_read_by_a_page() {
    let node = alone().await;
    let page = [("origin", "https://page.example"), ("sec-fetch-site", "cross-site")];
    let token = ("authorization", "Bearer nonsense");
    let providers = format!("/routing/v1/providers/{ABC_CID}");
    let long = format!("/routing/v1/providers/{}", "b".repeat(40_000));
    for (method, path, headers, status) in [
        (Method::GET, "/routing/v1", &page[..], 400),
        (Method::GET, "/routing/v1/", &page, 400),
        (Method::GET, "/routing/v1/nothing/here", &page, 400),
        (Method::OPTIONS, "/routing/v1/nothing/here", &page, 400),
        (Method::PUT, "/routing/v1/providers", &page, 400),
        (Method::GET, "/routing/v1/providers/", &page, 501),
        (Method::PUT, &providers, &page, 501),
        (Method::DELETE, &format!("/routing/v1/ipns/{PEER}"), &page, 501),
        (Method::POST, &format!("/routing/v1/dht/closest/peers/{PEER}"), &page, 501),
        (Method::GET, &providers, &[page[0], token], 401),
        (Method::GET, &providers, &[page[0], ("accept", "text/html")], 400),
        (Method::GET, &long, &page, 431),
    ] {
        let reply = open(&node, method.clone(), path, headers, "").await;
        assert_eq!(reply.status, status, "{method} {path:.60}: {}", reply.text());
        assert!(is_open_to_pages(&reply), "{method} {path:.60}: {:?}", reply.headers);
        assert_eq!(reply.header("cache-control"), "no-store", "{method} {path:.60}");
        assert_eq!(reply.header("content-type"), "application/problem+json", "{method} {path:.60}");
    }
    // Elsewhere nothing has changed.
    assert_eq!(open(&node, Method::GET, "/routing/v10", &[], "").await.status, 404);
    assert_eq!(open(&node, Method::GET, "/routing", &page, "").await.status, 403);
    assert_eq!(open(&node, Method::DELETE, &format!("/resolve/{ABC_CID}"), &[], "").await.status, 405);
}

#[tokio::test]
async fn pages_of_others_may_ask_here_and_nowhere_else() {
    let node = alone().await;
    let page = [("origin", "https://page.example"), ("sec-fetch-site", "cross-site")];
    let asked = get(&node, &format!("/providers/{ABC_CID}"), &page).await;
    assert!(asked.status == 200 && is_open_to_pages(&asked));
    let elsewhere = open(&node, Method::GET, &format!("/resolve/{ABC_CID}"), &page, "").await;
    assert_eq!(elsewhere.status, 403);
    for (path, methods) in [
        (format!("/routing/v1/providers/{ABC_CID}"), "GET, OPTIONS"),
        (format!("/routing/v1/peers/{PEER}"), "GET, OPTIONS"),
        (format!("/routing/v1/dht/closest/peers/{PEER}"), "GET, OPTIONS"),
        (format!("/routing/v1/ipns/{PEER}"), "GET, PUT, OPTIONS"),
    ] {
        let preflight = open(&node, Method::OPTIONS, &path, &page, "").await;
        assert_eq!((preflight.status, preflight.header("access-control-allow-methods")), (200, methods), "{path}");
        // A page needs the first where the node asks for a token, and the second to put a record.
        let allowed = preflight.header("access-control-allow-headers");
        assert!(allowed.contains("Authorization") && allowed.contains("Content-Type"), "{path}: {allowed}");
    }
}

#[tokio::test]
async fn ipns_records_are_taken_only_if_they_hold() {
    let node = alone().await;
    let path = format!("/routing/v1/ipns/{PEER}");
    let record = ("content-type", "application/vnd.ipfs.ipns-record");
    let miss = open(&node, Method::GET, &path, &[], "").await;
    assert_eq!((miss.status, miss.header("content-type")), (200, "text/plain; charset=utf-8"));
    assert_eq!(open(&node, Method::GET, &path, &[("accept", "application/json")], "").await.status, 406);
    for (headers, body, status) in [
        (&[record][..], vec![0; 20], 400),
        (&[record], Vec::new(), 400),
        (&[record], vec![0; 10 * 1024 + 1], 413),
        (&[("content-type", "application/json")], vec![0; 20], 406),
        (&[], vec![0; 20], 406),
    ] {
        let reply = open(&node, Method::PUT, &path, headers, body).await;
        assert_eq!(reply.status, status, "{}", reply.text());
        assert_eq!(reply.header("access-control-allow-methods"), "GET, PUT, OPTIONS");
    }
}
