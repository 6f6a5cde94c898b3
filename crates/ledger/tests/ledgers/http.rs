//! A ledger behind HTTP that keeps the contract, seen through a server that loses, delays and garbles answers.

use super::*;
use ::http::{Method, Request, Response, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use ron_ledger::{Book, BookOptions, HttpLedger, HttpOptions};
use ron_log::RamDisk;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// What the server does with one request.
#[derive(Clone, Debug)]
enum Mischief {
    /// Books and loses the answer with the connection.
    LoseAnswer,
    /// Ends the connection without doing anything.
    Hang,
    /// Never answers.
    Silence,
    /// Books and answers one outcome too few.
    TooFew,
    /// Books and answers more than anybody wants to read.
    Huge,
    /// Books and answers something else.
    Garbage,
    /// Refuses with a status, a header and a body.
    Status(u16, Option<(&'static str, &'static str)>, &'static str),
}

/// What the server saw of a request.
#[derive(Clone, Debug)]
struct Seen {
    idempotency_key: Option<String>,
    authorization: Option<String>,
    body: Bytes,
}

struct Server {
    book: Book,
    mischief: Mutex<VecDeque<Mischief>>,
    seen: Mutex<Vec<Seen>>,
}

/// A server with its task and its address.
struct Running {
    server: Arc<Server>,
    base: String,
    _task: JoinSet<()>,
}

async fn start() -> Running {
    start_with(None).await
}

async fn start_with(tls: Option<TlsAcceptor>) -> Running {
    let (book, _) = Book::open(Arc::new(RamDisk::new()), BookOptions::default()).expect("good");
    let server = Arc::new(Server { book, mischief: Mutex::default(), seen: Mutex::default() });
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("good");
    let port = listener.local_addr().expect("good").port();
    let base =
        if tls.is_some() { format!("https://localhost:{port}/v1") } else { format!("http://127.0.0.1:{port}/v1/") };
    let (mut task, handler) = (JoinSet::new(), Arc::clone(&server));
    task.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.expect("good");
            let (server, tls) = (Arc::clone(&handler), tls.clone());
            connections.spawn(async move {
                match tls {
                    // A client that does not believe us hangs up.
                    Some(tls) => drop(serve(tls.accept(stream).await.ok()?, server).await),
                    None => drop(serve(stream, server).await),
                }
                Some(())
            });
        }
    });
    Running { server, base, _task: task }
}

/// A connection that is hung up on purpose ends with an error.
async fn serve<S>(stream: S, server: Arc<Server>) -> Result<(), hyper::Error>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let service = hyper::service::service_fn(move |request| answer(Arc::clone(&server), request));
    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await
}

impl Running {
    fn ledger(&self) -> HttpLedger {
        HttpLedger::new(&HttpOptions::at(&self.base)).expect("good")
    }

    fn plan(&self, mischief: impl IntoIterator<Item = Mischief>) {
        self.server.mischief.lock().expect("good").extend(mischief);
    }

    fn seen(&self) -> Vec<Seen> {
        self.server.seen.lock().expect("good").clone()
    }
}

async fn answer(server: Arc<Server>, request: Request<Incoming>) -> io::Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.expect("good").to_bytes();
    let text = |name: &str| head.headers.get(name).map(|value| value.to_str().expect("good").to_owned());
    let seen =
        Seen { idempotency_key: text("idempotency-key"), authorization: text("authorization"), body: body.clone() };
    server.seen.lock().expect("good").push(seen);
    let next = server.mischief.lock().expect("good").pop_front();
    let respond = |status: StatusCode, body: String| {
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = status;
        Ok(response)
    };
    if let Some(Mischief::Status(status, header, body)) = next {
        let mut response: io::Result<_> = respond(StatusCode::from_u16(status).expect("good"), body.to_owned());
        if let (Ok(response), Some((name, value))) = (&mut response, header) {
            response.headers_mut().insert(name, value.parse().expect("good"));
        }
        return response;
    }
    match next {
        Some(Mischief::Hang) => return Err(io::Error::other("hung up on purpose")),
        Some(Mischief::Silence) => std::future::pending().await,
        _ => {}
    }
    let (status, mut value) = keep_contract(&server.book, &head.method, head.uri.path(), &body).await;
    match next {
        Some(Mischief::LoseAnswer) => return Err(io::Error::other("hung up on purpose")),
        Some(Mischief::TooFew) => drop(value["outcomes"].as_array_mut().expect("good").pop()),
        Some(Mischief::Huge) => return respond(status, " ".repeat(8 << 20)),
        Some(Mischief::Garbage) => return respond(status, "<html>".to_owned()),
        _ => {}
    }
    respond(status, value.to_string())
}

fn bytes_of(hex: &str) -> [u8; 32] {
    *blake3::Hash::from_hex(hex).expect("good").as_bytes()
}

/// What docs/ledger-http.md asks for, made of a book.
async fn keep_contract(book: &Book, method: &Method, path: &str, body: &[u8]) -> (StatusCode, Value) {
    if (method, path) == (&Method::GET, "/v1") {
        return (StatusCode::OK, json!({ "one_run_per_pot": true }));
    }
    if let Some(run) = path.strip_prefix("/v1/runs/").and_then(|rest| rest.strip_suffix("/tally")) {
        assert_eq!(method, Method::GET);
        let assets = book.tally(&bytes_of(run)).await.expect("good").into_iter().map(|tally| {
            let Tally { asset, count, paid, taken_back } = tally;
            let [count, paid, taken_back] = [count.to_string(), paid.to_string(), taken_back.to_string()];
            json!({ "asset": asset, "count": count, "paid": paid, "taken_back": taken_back })
        });
        return (StatusCode::OK, json!({ "assets": assets.collect::<Vec<_>>() }));
    }
    assert_eq!((method, path), (&Method::POST, "/v1/transfers"));
    let sent: Value = serde_json::from_slice(body).expect("good");
    let text = |value: &Value| value.as_str().expect("good").to_owned();
    let entries = sent["entries"].as_array().expect("good").iter().map(|entry| Entry {
        key: bytes_of(entry["key"].as_str().expect("good")),
        account: text(&entry["account"]),
        amount: text(&entry["amount"]).parse().expect("good"),
        direction: if entry["direction"] == "pay" { Direction::Pay } else { Direction::TakeBack },
    });
    let (run, asset, pot) = (bytes_of(&text(&sent["run"])), text(&sent["asset"]), text(&sent["pot"]));
    let follows = sent.get("follows").map(|run| bytes_of(&text(run)));
    match book.submit(&Batch { run, asset, pot, follows, entries: entries.collect() }).await {
        Ok(outcomes) => {
            let words = outcomes.iter().map(|outcome| format!("{outcome:?}").to_lowercase());
            let status = if outcomes.contains(&Outcome::Conflict) { StatusCode::CONFLICT } else { StatusCode::OK };
            (status, json!({ "outcomes": words.collect::<Vec<_>>() }))
        }
        Err(error) => (StatusCode::UNPROCESSABLE_ENTITY, json!({ "detail": error.to_string() })),
    }
}

#[tokio::test]
async fn it_does_what_a_ledger_does() {
    let running = start().await;
    does_what_a_ledger_does(&running.ledger()).await;
    let book = Book::open(Arc::new(RamDisk::new()), BookOptions::default()).expect("good").0;
    does_what_a_ledger_does(&book).await;
}

#[tokio::test]
async fn pots_are_kept_and_a_ledger_that_does_not_say_so_is_told_nothing_new() {
    let running = start().await;
    keeps_pots(&running.ledger()).await;
    keeps_pots(&Book::open(Arc::new(RamDisk::new()), BookOptions::default()).expect("good").0).await;
    let follows = |seen: &Seen| !seen.body.is_empty() && String::from_utf8_lossy(&seen.body).contains("\"follows\"");
    let with = running.seen().iter().filter(|seen| follows(seen)).count();
    assert!(with > 0);
    let ledger = running.ledger();
    for (status, body) in [(404, "none"), (405, ""), (501, ""), (301, ""), (200, "<html>"), (200, "{}")] {
        running.plan([Mischief::Status(status, None, body)]);
        assert_eq!(ledger.one_run_per_pot().await, Ok(false), "{status} {body}");
    }
    for status in [401, 429, 500, 503] {
        running.plan([Mischief::Status(status, None, "")]);
        absence(ledger.one_run_per_pot().await);
    }
    let correction = batch_from(30, 30, Some(24), vec![pay(3000, "a", 1)]);
    ledger.submit(&correction).await.expect("good");
    assert_eq!(running.seen().iter().filter(|seen| follows(seen)).count(), with, "a word it may not know");
}

#[tokio::test]
async fn answers_are_lost_and_every_key_is_booked_once() {
    let running = start().await;
    let ledger = running.ledger();
    let mischief = [
        Mischief::LoseAnswer,
        Mischief::TooFew,
        Mischief::Hang,
        Mischief::Huge,
        Mischief::Garbage,
        Mischief::Status(500, None, "oops"),
        Mischief::Status(503, None, ""),
    ];
    let mut losses = 0;
    for round in 0..60_usize {
        running.plan((0..round % 3).map(|nth| mischief[(round + nth) % mischief.len()].clone()));
        let sent = many(1, round as u64 * 20, 20);
        loop {
            match ledger.submit(&sent).await {
                Ok(outcomes) => break assert!(!outcomes.contains(&Outcome::Conflict)),
                Err(LedgerError::Unavailable(_)) => losses += 1,
                Err(refused) => panic!("{refused}"),
            }
        }
    }
    assert!(losses > 20, "{losses}");
    assert_eq!(ledger.tally(&[1; 32]).await.expect("good"), [tally(1200, 1200, 0)]);
    let mut keys: Vec<_> =
        running.seen().into_iter().filter_map(|seen| Some((seen.idempotency_key?, seen.body))).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 60, "the same batch has the same key and the same bytes each time it is sent");
}

#[tokio::test]
async fn every_status_has_its_meaning() {
    let running = start().await;
    let ledger = running.ledger();
    let one = many(1, 0, 1);
    for status in [401, 403, 408, 425, 429, 500, 502, 503, 504, 202] {
        running.plan([Mischief::Status(status, None, "later\nplease")]);
        let why = absence(ledger.submit(&one).await);
        assert!(why.contains(&status.to_string()) && why.contains("later please"), "{why}");
    }
    for status in [400, 404, 409, 410, 413, 422, 301] {
        running.plan([Mischief::Status(status, None, "never")]);
        assert!(refusal(ledger.submit(&one).await).contains("never"), "{status}");
    }
    running.plan([Mischief::Status(409, None, r#"{"outcomes":["conflict"]}"#)]);
    assert_eq!(ledger.submit(&one).await.expect("good"), [Outcome::Conflict]);
    running.plan([Mischief::Status(409, None, r#"{"outcomes":["accepted"]}"#)]);
    refusal(ledger.submit(&one).await);
    assert_eq!(ledger.tally(&[1; 32]).await.expect("good"), [], "none of these was booked");
    let before = running.seen().len();
    running.plan([Mischief::Status(429, Some(("retry-after", "30")), "")]);
    absence(ledger.submit(&one).await);
    assert!(absence(ledger.submit(&one).await).contains("rest"), "it is left alone for as long as it asked");
    assert_eq!(running.seen().len(), before + 1);
}

#[tokio::test]
async fn silence_ends_the_wait() {
    let running = start().await;
    let options = HttpOptions { timeout: Duration::from_millis(60), ..HttpOptions::at(&running.base) };
    let ledger = HttpLedger::new(&options).expect("good");
    running.plan([Mischief::Silence]);
    assert!(absence(ledger.submit(&many(1, 0, 1)).await).contains("no answer in time"));
    assert_eq!(ledger.submit(&many(1, 0, 1)).await.expect("good"), [Outcome::Accepted], "on another connection");
    let closed = testkit::own_address();
    absence(HttpLedger::new(&HttpOptions::at(format!("http://{closed}"))).expect("good").submit(&many(1, 0, 1)).await);
}

#[tokio::test]
async fn a_token_is_sent_and_read_again_when_it_is_not_taken() {
    let running = start().await;
    let folder = tempfile::tempdir().expect("good");
    let file = folder.path().join("token");
    std::fs::write(&file, "old\n").expect("good");
    let options = HttpOptions { token_file: Some(file.clone()), ..HttpOptions::at(&running.base) };
    let ledger = HttpLedger::new(&options).expect("good");
    running.plan([Mischief::Status(401, None, "")]);
    std::fs::write(&file, "new\n").expect("good");
    absence(ledger.submit(&many(1, 0, 1)).await);
    ledger.submit(&many(1, 0, 1)).await.expect("good");
    let tokens: Vec<_> = running.seen().into_iter().map(|seen| seen.authorization.expect("good")).collect();
    assert_eq!(tokens, ["Bearer old", "Bearer new"]);
}

#[tokio::test]
async fn a_secret_that_the_ledger_sends_back_is_told_to_nobody() {
    let running = start().await;
    let folder = tempfile::tempdir().expect("good");
    let file = folder.path().join("token");
    std::fs::write(&file, "tk-5f3a.9~77\n").expect("good");
    let options = HttpOptions { token_file: Some(file), ..HttpOptions::at(&running.base) };
    let ledger = HttpLedger::new(&options).expect("good");
    let one = many(1, 0, 1);
    let echo = r#"{"detail":"bad","headers":{"authorization":"Bearer tk-5f3a.9~77"},"dsn":"password=hunter2"}"#;
    let strange = r#"{"outcomes":["tk-5f3a.9~77"]}"#;
    for (status, body) in [(422, echo), (500, echo), (401, "tk-5f3a.9~77"), (409, strange), (200, strange)] {
        running.plan([Mischief::Status(status, None, body), Mischief::Status(status, None, body)]);
        let told = [ledger.submit(&one).await.expect_err("no answer"), ledger.tally(&[1; 32]).await.expect_err("none")];
        for words in told.map(|error| error.to_string()) {
            assert!(!words.contains("5f3a") && !words.contains("hunter2"), "{status}: {words}");
        }
    }
    let named = r#"{"assets":[{"asset":"of tk-5f3a.9~77","count":"1","paid":"1","taken_back":"0"}]}"#;
    running.plan([Mischief::Status(200, None, named)]);
    assert_eq!(ledger.tally(&[1; 32]).await.expect("sums")[0].asset, "of [hidden]");
}

#[tokio::test]
async fn a_server_is_believed_only_with_its_certificate() {
    let made = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let (own, other) = (made(), made());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config =
        rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("good");
    let key = rustls::pki_types::PrivateKeyDer::try_from(own.signing_key.serialize_der()).expect("good");
    let config = config.with_no_client_auth().with_single_cert(vec![own.cert.der().clone()], key).expect("good");
    let running = start_with(Some(TlsAcceptor::from(Arc::new(config)))).await;
    let folder = tempfile::tempdir().expect("good");
    let with = |pem: String, base: &str| {
        let ca_file = folder.path().join("root.pem");
        std::fs::write(&ca_file, pem).expect("good");
        HttpLedger::new(&HttpOptions { ca_file: Some(ca_file), ..HttpOptions::at(base) }).expect("good")
    };
    let good = with(own.cert.pem(), &running.base);
    assert_eq!(good.submit(&many(1, 0, 5)).await.expect("good"), [Outcome::Accepted; 5]);
    assert!(absence(with(other.cert.pem(), &running.base).submit(&many(1, 5, 1)).await).contains("certificate"));
    let misnamed = running.base.replace("localhost", "127.0.0.1");
    assert!(absence(with(own.cert.pem(), &misnamed).submit(&many(1, 5, 1)).await).contains("certificate"));
    assert_eq!(good.tally(&[1; 32]).await.expect("good"), [tally(5, 5, 0)]);
}
