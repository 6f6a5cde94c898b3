//! Requests that are wrong: each gets a problem that says what, under the id it can be found by.

use crate::hostile::wire::{self, Answer, within};
use crate::hostile::{SLACK, assert_still_serves, start};

const JSON: (&str, &str) = ("content-type", "application/json");

async fn answer_to(node: &testkit::Node, bytes: &[u8]) -> Option<Answer> {
    within(SLACK, "an answer", wire::send(node.api, bytes)).await
}

#[tokio::test]
async fn every_mistake_is_a_problem_that_names_it() {
    let node = start("").await;
    let post = |headers: &[(&str, &str)], body: &[u8]| wire::request("POST", "/v1/echo", headers, body);
    let get = |path: &str, headers: &[(&str, &str)]| wire::request("GET", path, headers, b"");
    let good = br#"{"message":"x"}"#;
    let deep = [vec![b'['; 20_000], vec![b']'; 20_000]].concat();
    let deadline = "x-request-deadline-ms";
    let cases: Vec<(&str, Vec<u8>, u16, &str, &str)> = vec![
        ("cut JSON", post(&[JSON], br#"{"message":"#), 400, "E_SCHEMA", ""),
        ("no body", post(&[JSON], b""), 400, "E_SCHEMA", ""),
        ("two documents", post(&[JSON], br#"{"message":"x"} {}"#), 400, "E_SCHEMA", ""),
        ("an unknown field", post(&[JSON], br#"{"message":"x","extra":1}"#), 400, "E_SCHEMA", "extra"),
        ("a missing field", post(&[JSON], b"{}"), 400, "E_SCHEMA", "message"),
        ("a wrong type", post(&[JSON], br#"{"message":5}"#), 400, "E_SCHEMA", "message"),
        ("a field twice", post(&[JSON], br#"{"message":"x","message":"y"}"#), 400, "E_SCHEMA", "message"),
        ("bad UTF-8", post(&[JSON], b"{\"message\":\"\xff\xfe\"}"), 400, "E_SCHEMA", ""),
        ("a deep document", post(&[JSON], &deep), 400, "E_SCHEMA", ""),
        ("no content type", post(&[], good), 415, "E_SCHEMA", "application/json"),
        ("another content type", post(&[("content-type", "text/plain")], good), 415, "E_SCHEMA", "application/json"),
        ("an unknown path", get("/v1/nothing", &[]), 404, "E_NOT_FOUND", ""),
        ("a path upwards", get("/v1/../../etc/passwd", &[]), 404, "E_NOT_FOUND", ""),
        ("a wrong method", get("/v1/echo", &[]), 405, "E_SCHEMA", ""),
        ("a deadline in words", get("/v1/work?ms=1", &[(deadline, "soon")]), 400, "E_SCHEMA", "Deadline"),
        ("no deadline at all", get("/v1/work?ms=1", &[(deadline, "0")]), 400, "E_SCHEMA", "Deadline"),
        ("a negative deadline", get("/v1/work?ms=1", &[(deadline, "-5")]), 400, "E_SCHEMA", "Deadline"),
        ("a bad grpc-timeout", get("/v1/work?ms=1", &[("grpc-timeout", "5x")]), 400, "E_SCHEMA", "grpc-timeout"),
        ("a missing parameter", get("/v1/work", &[]), 400, "E_SCHEMA", "ms"),
        ("an unknown parameter", get("/v1/work?ms=1&colour=red", &[]), 400, "E_SCHEMA", "colour"),
        ("too much work", get("/v1/work?ms=99999999", &[]), 400, "E_SCHEMA", "ms"),
        ("a deadline that passes", get("/v1/work?ms=5000", &[(deadline, "50")]), 504, "E_TIMEOUT", ""),
    ];
    for (what, request, status, code, named) in cases {
        let answer = answer_to(&node, &request).await.unwrap_or_else(|| panic!("{what}: no answer"));
        answer.assert_problem(status, code, what);
        let detail = answer.json()["detail"].as_str().unwrap_or_default().to_owned();
        assert!(detail.contains(named), "{what}: {detail}");
        if status == 405 {
            assert_eq!(answer.header("allow"), Some("POST"), "{what}");
        }
    }
    assert_still_serves(&node).await;
}

#[tokio::test]
async fn what_is_not_http_is_closed_or_refused() {
    let node = start("").await;
    for (what, bytes) in [
        ("noise", b"\x00\x01\x02\x03\xff\xfe\r\n\r\n".to_vec()),
        ("a TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".repeat(50)),
        ("a request line alone", b"\r\n\r\nGET\r\n\r\n".to_vec()),
        ("an unknown version", b"GET / HTTP/9.9\r\nhost: localhost\r\n\r\n".to_vec()),
        ("a header without a colon", b"GET / HTTP/1.1\r\nhost node\r\n\r\n".to_vec()),
        ("a folded header", b"GET / HTTP/1.1\r\nhost: localhost\r\n x: y\r\n\r\n".to_vec()),
        ("a bad length", wire::request("POST", "/v1/echo", &[JSON, ("content-length", "-1")], b"")),
        (
            "two lengths",
            wire::request("POST", "/v1/echo", &[JSON, ("content-length", "3"), ("content-length", "4")], b""),
        ),
        ("a bad chunk", wire::request("POST", "/v1/echo", &[JSON, ("transfer-encoding", "chunked")], b"zz\r\n")),
        ("a broken HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n".to_vec()),
        ("noise after the HTTP/2 preface", [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &[0xff; 200]].concat()),
    ] {
        if let Some(answer) = answer_to(&node, &bytes).await {
            assert!((400..500).contains(&answer.status), "{what}: {}", answer.status);
        }
        assert_still_serves(&node).await;
    }
}

#[tokio::test]
async fn correlation_ids_are_kept_if_sane_and_replaced_if_not() {
    let node = start("").await;
    let long = "x".repeat(65);
    for (sent, kept) in
        [("my-id_1.2", true), ("a b", false), ("\"quoted\"", false), ("", false), (long.as_str(), false)]
    {
        for path in ["/v1/work?ms=1", "/nowhere"] {
            let request = wire::request("GET", path, &[("x-corr-id", sent)], b"");
            let answer = answer_to(&node, &request).await.expect("an answer");
            let returned = answer.header("x-corr-id").expect("always there");
            assert_eq!(returned == sent, kept, "{sent:?} came back as {returned:?}");
            assert!(kept || is_uuid_of_version_7(returned), "{returned:?}");
            if path == "/nowhere" {
                answer.assert_problem(404, "E_NOT_FOUND", sent);
            }
        }
    }
}

fn is_uuid_of_version_7(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    let hexadecimal = groups.iter().all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    hexadecimal && lengths == [8, 4, 4, 4, 12] && groups[2].starts_with('7')
}
