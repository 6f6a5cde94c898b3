//! A router that says one thing and then another, over a real connection.

use ron_store::ContentId;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::answer::{Lines, PeerWords, vouched};
use super::*;

const PEER: &str = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN";

fn router(address: &str) -> Result<Router, String> {
    Router::new(address, &system_trust().expect("a list of roots"), NodeKey::generate().expect("a key"))
}

#[test]
fn a_router_does_not_speak_for_the_node_that_asks_it() {
    let (own, other) = (NodeKey::generate().expect("a key"), NodeKey::generate().expect("a key"));
    let said_of = |peer: ron_store::PeerId| {
        let words = format!(r#"{{"Schema":"peer","ID":"{peer}","Addrs":["/ip4/203.0.113.66/tcp/66"]}}"#);
        let words: PeerWords = serde_json::from_str(&words).expect("a record");
        vouched(words, &ContentId::of_bytes(b"abc"), &own, 1_800_000_000_000)
    };
    assert_eq!(said_of(own.node_id().into()), None, "the node knows best where it is");
    assert!(said_of(other.node_id().into()).is_some());
}

/// Asks a router that answers with these bytes; gives its question as well.
async fn asked(answer: &str, question: UpstreamQuestion) -> (String, Result<Reply, AskError>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let router = router(&format!("http://{}/base/routing/v1/", listener.local_addr().expect("bound"))).expect("valid");
    let serve = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("a request"));
        }
        stream.write_all(answer.as_bytes()).await.expect("it reads");
        String::from_utf8(head).expect("text")
    };
    tokio::join!(serve, router.ask(question, Duration::from_secs(5)))
}

fn response(status: &str, media_type: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-type: {media_type}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn providers() -> UpstreamQuestion {
    UpstreamQuestion::Providers(ContentId::of_bytes(b"abc"))
}

#[tokio::test]
async fn lines_and_documents_become_records_that_are_vouched_for() {
    let record = format!(
        r#"{{"Schema":"peer","ID":"{PEER}","Addrs":["/ip4/10.0.0.1/tcp/1","nonsense"],"Protocols":["transport-bitswap"],"x":1}}"#
    );
    let lines = response("200 OK", "application/x-ndjson; charset=utf-8", &format!("{record}\n\n{record}"));
    let (head, reply) = asked(&lines, providers()).await;
    let cid = "bafkr4ideg6z2yocgkez77nr3outtvdnvjdcvqrs5phnqh7jvtrwnlpm5qu";
    assert!(head.starts_with(&format!("GET /base/routing/v1/providers/{cid} HTTP/1.1\r\n")), "{head}");
    let reply = reply.expect("records");
    assert_eq!(reply.records.len(), 2);
    let ron_store::Record::Provider(provider) = &reply.records[0] else { panic!("{reply:?}") };
    assert!(provider.verify().is_ok() && !provider.is_self_signed());
    assert_eq!((provider.peer.to_string().as_str(), provider.addrs.len()), (PEER, 1));
    assert_eq!(provider.key, ContentId::of_bytes(b"abc").key());
    let document = response("200 OK", "application/json", &format!(r#"{{"Providers":[{record}]}}"#));
    assert_eq!(asked(&document, providers()).await.1.map(|reply| reply.records.len()), Ok(1));
    let empty = response("200 OK", "application/json", r#"{"Providers":null}"#);
    assert_eq!(asked(&empty, providers()).await.1, Ok(Reply::default()));
}

#[tokio::test]
async fn records_of_other_schemas_and_shapes_do_not_spoil_the_others() {
    let known = format!(r#"{{"Schema":"peer","ID":"{PEER}","Addrs":null,"Protocols":null}}"#);
    let odd = [r#"{"Schema":"newer","Addrs":{"tcp":1},"Protocol":7}"#, r#"{"Schema":"peer","ID":5}"#, "null", "[]"];
    // More of them than a reply may have records.
    let all = [odd.join("\n").as_str(), &known].join("\n");
    let many = format!("{}\n{all}", vec![odd[0]; 100].join("\n"));
    let lines = response("200 OK", "application/x-ndjson", &many);
    assert_eq!(asked(&lines, providers()).await.1.map(|reply| reply.records.len()), Ok(1));
    let document = response("200 OK", "application/json", &format!(r#"{{"Providers":[{}]}}"#, many.replace('\n', ",")));
    assert_eq!(asked(&document, providers()).await.1.map(|reply| reply.records.len()), Ok(1));
}

#[tokio::test]
async fn refusals_and_nonsense_are_told_apart() {
    for (answer, expected) in [
        (response("404 Not Found", "text/plain", "no"), Ok(Reply::default())),
        (response("429 Too Many Requests", "text/plain", ""), Err(AskError::Busy)),
        (response("501 Not Implemented", "text/plain", ""), Err(AskError::Unsupported)),
        (response("500 Oh", "text/plain", ""), Err(AskError::Refused)),
        (response("200 OK", "text/html", "<p>"), Err(AskError::Malformed)),
        (response("200 OK", "application/json", "{"), Err(AskError::Malformed)),
        (response("200 OK", "application/x-ndjson", "x\n"), Err(AskError::Malformed)),
        (response("200 OK", "application/json", &" ".repeat(1024 * 1024 + 1)), Err(AskError::Malformed)),
    ] {
        assert_eq!(asked(&answer, providers()).await.1, expected, "{:.60}", answer);
    }
    let name = UpstreamQuestion::Ipns(PEER.parse().expect("a peer id"));
    let miss = response("200 OK", "text/plain", "none");
    let (head, reply) = asked(&miss, name.clone()).await;
    assert!(head.contains("/routing/v1/ipns/k") || head.contains("/routing/v1/ipns/b"), "a CID: {head}");
    assert_eq!(reply, Ok(Reply::default()));
    let forged = response("200 OK", "application/vnd.ipfs.ipns-record", "record");
    assert_eq!(asked(&forged, name).await.1, Err(AskError::Malformed));
}

/// Asks a router that sends these bytes as its lines and then keeps its stream open.
async fn asked_and_kept_open(lines: &str, budget: Duration) -> Result<Reply, AskError> {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let router = router(&format!("http://{}", listener.local_addr().expect("bound"))).expect("valid");
    let serve = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n";
        let answer = format!("{head}{:x}\r\n{lines}\r\n", lines.len());
        stream.write_all(answer.as_bytes()).await.expect("it reads");
        std::future::pending::<()>().await;
    };
    tokio::select! {
        reply = router.ask(providers(), budget) => reply,
        () = serve => unreachable!("it never ends"),
    }
}

#[tokio::test]
async fn what_came_in_time_counts_although_the_router_goes_on() {
    let budget = Duration::from_secs(3);
    let line = format!(r#"{{"Schema":"peer","ID":"{PEER}"}}"#);
    let began = ron_kernel::clock::now();
    let reply = asked_and_kept_open(&format!("{line}\n{line}\n{}", &line[..20]), budget).await;
    assert_eq!(reply.map(|reply| reply.records.len()), Ok(2), "and not the line that is half there");
    assert!(began.elapsed() >= budget / 2, "more could have come");
    // Of one that has said nothing of use it is not known that it has nothing.
    for nothing in ["\n", "{\"Schema\":\"other\"}\n"] {
        let reply = asked_and_kept_open(nothing, Duration::from_millis(200)).await;
        assert_eq!(reply, Err(AskError::TimedOut), "{nothing:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_router_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let router = router(&format!("http://{}", listener.local_addr().expect("bound"))).expect("valid");
    assert_eq!(router.ask(providers(), Duration::from_millis(300)).await, Err(AskError::TimedOut));
}

#[test]
fn addresses_are_read_as_written() {
    let name = |address: &str| router(address).map(|router| router.name().to_owned());
    for (address, expected) in [
        ("https://router.example", "https://router.example"),
        ("https://router.example/routing/v1", "https://router.example"),
        ("https://router.example:8443/a/routing/v1/", "https://router.example:8443/a"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://[::1]:80/", "http://[::1]:80"),
    ] {
        assert_eq!(name(address), Ok(expected.to_owned()));
    }
    for wrong in
        ["", "router", "ftp://x/", "http://router.example", "https://a@b/", "https://x/?q=1", "http://10.0.0.1"]
    {
        assert!(name(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn lines_are_the_same_however_their_bytes_come_and_have_an_end() {
    let text = format!("{{\"Schema\":\"peer\",\"ID\":\"{PEER}\"}}\n").repeat(3);
    for size in [1, 7, text.len()] {
        let mut lines = Lines::default();
        text.as_bytes().chunks(size).for_each(|bytes| lines.take(bytes).expect("lines"));
        assert_eq!(lines.end().map(|records| records.len()), Ok(3), "{size} bytes at once");
    }
    let mut long = Lines::default();
    assert_eq!(long.take(&[b'x'; 64 * 1024 + 1]), Err(AskError::Malformed));
    let mut many = Lines::default();
    many.take(text.repeat(100).as_bytes()).expect("lines");
    assert_eq!(many.records.len(), ron_types::limits::records::WIRE_RECORDS_MAX);
}

#[test]
fn a_record_is_taken_to_its_bounds() {
    let (key, content) = (NodeKey::generate().expect("a key"), ContentId::of_bytes(b"abc"));
    let of = |json: serde_json::Value| {
        let words: PeerWords = serde_json::from_value(json).expect("the shape");
        match vouched(words, &content, &key, 1_800_000_000_000) {
            Some(ron_store::Record::Provider(record)) => Some((record.addrs.len(), record.protocols)),
            _ => None,
        }
    };
    let addr = "/ip4/10.0.0.1/tcp/1";
    let many = serde_json::json!({"Schema": "peer", "ID": PEER, "Addrs": vec![addr; 50], "Protocols": vec!["p"; 50]});
    assert_eq!(of(many).map(|(addrs, protocols)| (addrs, protocols.len())), Some((8, 8)));
    let old =
        serde_json::json!({"Schema": "bitswap", "ID": PEER, "Protocol": "transport-bitswap", "Protocols": ["a b"]});
    assert_eq!(of(old), Some((0, vec!["transport-bitswap".to_owned()])));
    for wrong in [
        serde_json::json!({"Schema": "peer"}),
        serde_json::json!({"Schema": "peer", "ID": "x"}),
        serde_json::json!({"Schema": "other", "ID": PEER}),
    ] {
        assert_eq!(of(wrong.clone()), None, "{wrong}");
    }
}
