//! How the client of the public plane speaks, against peers that answer in bytes.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

const EMPTY: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

async fn listen() -> (TcpListener, ApiClient) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let api = Some(listener.local_addr().expect("bound").to_string());
    let args = ApiArgs { api, token: Some("abc".to_owned()), ..ApiArgs::default() };
    (listener, ApiClient::find(&args).expect("an address and a token"))
}

/// Reads one request, head and body, and answers it.
async fn converse(stream: &mut TcpStream, answer: &[u8]) -> String {
    let mut asked = Vec::new();
    while !asked.ends_with(b"\r\n\r\n") {
        asked.push(stream.read_u8().await.expect("a request"));
    }
    let head = String::from_utf8(asked.clone()).expect("text");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a number"))];
    stream.read_exact(&mut body).await.expect("a body");
    stream.write_all(answer).await.expect("the client reads");
    head + &String::from_utf8(body).expect("text")
}

#[tokio::test]
async fn requests_carry_token_and_deadline_over_one_connection() {
    let (listener, mut client) = listen().await;
    let serve = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        (converse(&mut stream, EMPTY).await, converse(&mut stream, EMPTY).await)
    };
    let ask = async {
        client.post("/v1/send", &json!({"topic": "a"})).await.expect("answered");
        client.get("/v1/topics").await.expect("answered")
    };
    let ((first, second), answer) = tokio::join!(serve, ask);
    assert_eq!(answer.text(), "{}");
    assert!(first.starts_with("POST /v1/send HTTP/1.1\r\n") && first.ends_with(r#"{"topic":"a"}"#), "{first}");
    assert!(first.contains("authorization: Bearer abc\r\n"), "{first}");
    assert!(first.contains("x-request-deadline-ms: 5000\r\n"), "{first}");
    assert!(second.starts_with("GET /v1/topics HTTP/1.1\r\n"), "{second}");
}

#[tokio::test]
async fn a_connection_the_node_has_closed_is_opened_again() {
    let (listener, mut client) = listen().await;
    let serve = async {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            converse(&mut stream, EMPTY).await;
        }
    };
    let ask = async {
        client.get("/v1/topics").await.expect("answered");
        client.get("/v1/topics").await.expect("answered");
    };
    tokio::join!(serve, ask);
}

#[tokio::test]
async fn a_refusal_is_told_with_its_code_and_detail() {
    let client = listen().await.1;
    let refused = |status: u16, body: &'static str| {
        let answer = NodeAnswer { status, body: Bytes::from_static(body.as_bytes()) };
        client.accepted("/v1/send", answer).expect_err("refused").to_string()
    };
    let schema = r#"{"title":"the request is not understood","detail":"topic: no","code":"E_SCHEMA"}"#;
    assert_eq!(refused(400, schema), "MN0019 the node refused /v1/send: E_SCHEMA topic: no");
    let scope = r#"{"detail":"not send on a","code":"E_CAP_SCOPE"}"#;
    assert_eq!(refused(403, scope), "MN0018 the token of --token does not allow /v1/send: E_CAP_SCOPE not send on a");
    assert!(refused(401, "{}").starts_with("MN0018 the node refused the token of --token"));
    assert_eq!(refused(500, "oops"), "MN0019 the node refused /v1/send: 500 no reason given");
}

#[test]
fn a_busy_node_says_when_to_come_back() {
    let answer = |status: u16, body: &'static str| NodeAnswer { status, body: Bytes::from_static(body.as_bytes()) };
    let busy = r#"{"code":"E_SATURATED","retry_after_ms":250}"#;
    assert_eq!(answer(429, busy).retry_after(), Some(Duration::from_millis(250)));
    assert_eq!(answer(429, "").retry_after(), Some(Duration::from_secs(1)));
    assert_eq!(answer(503, busy).retry_after(), None);
}

#[test]
fn the_token_is_taken_from_where_it_was_named_last() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let (kept, other) = (folder.path().join("operator.token"), folder.path().join("other"));
    std::fs::write(&kept, "kept").expect("written");
    std::fs::write(&other, "other").expect("written");
    let token = |args: &ApiArgs, variable: Option<&str>| {
        find_token(args, variable.map(str::to_owned), kept.clone()).map(|(token, _)| token.to_string())
    };
    let none = ApiArgs::default();
    let named = ApiArgs { token: Some("named".to_owned()), ..ApiArgs::default() };
    let file = ApiArgs { token_file: Some(other), ..ApiArgs::default() };
    assert_eq!(token(&none, None).as_deref(), Ok("kept"));
    assert_eq!(token(&none, Some("")).as_deref(), Ok("kept"));
    assert_eq!(token(&none, Some("variable")).as_deref(), Ok("variable"));
    assert_eq!(token(&named, Some("variable")).as_deref(), Ok("named"));
    assert_eq!(token(&file, Some("variable")).as_deref(), Ok("other"));
    std::fs::remove_file(&kept).expect("removed");
    let failure = token(&none, None).expect_err("no token anywhere");
    assert_eq!(failure.code, Code::TokenUnusable);
    assert!(failure.message.contains("--token") && failure.message.contains("MACRO_TOKEN"), "{failure}");
}
