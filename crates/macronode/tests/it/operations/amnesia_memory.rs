//! The gate `amnesia`: at the last moment of its life a forgetful node has no secret and no message in its memory.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use aws_lc_rs::signature::Ed25519KeyPair;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use bytes::Bytes;
use http::Method;
use oap::{AppId, Control, Frame, Hello, status};
use serde_json::{Value, json};
use testkit::frames::RawSession;
use testkit::{MailboxClient, Take};

use crate::operations::amnesia::start_traced;
use crate::operations::has_tool;
use crate::operations::sqs_cli::Made;
use crate::process::Process;
use testkit::{ask, eventually};

const TEST: &str = "no_secret_and_no_message_is_in_memory_at_the_last_moment";

/// What strace is told: hold the process for this long before it ends, so that it can be looked at.
const HOLD_AT_EXIT: [&str; 4] = ["-e", "trace=exit_group", "-e", "inject=exit_group:delay_enter=60000000"];
/// Number of the system call that ends a process.
const EXIT_GROUP: &str = if cfg!(target_arch = "aarch64") { "94" } else { "231" };

/// Bytes of a secret that make a find: an allocator writes over the beginning of what is freed, and half a key is still
/// a leak. Long enough never to be found by chance.
const PIECE_BYTES: usize = 16;
/// Kinds that a running node may already have let go of.
const PASSING: [&str; 3] = [TOKEN_DECODED, PAYLOAD_ENCODED, SIGNING_KEY];
const TOKEN_DECODED: &str = "tenant token, decoded";
const SIGNING_KEY: &str = "key derived from the secret of an access key";
const PAYLOAD_ENCODED: &str = "payload in base64";
const PAGE_BYTES: u64 = 4096;

/// Things looked for: a kind in words, and one form in which it could be in memory.
struct Marker {
    kind: &'static str,
    bytes: Vec<u8>,
}

/// Kinds of which a piece is in the writable memory of a process.
struct Scan {
    /// Pieces with the kind they belong to, by their first two bytes.
    pieces: Vec<Vec<(&'static str, Vec<u8>)>>,
}

impl Scan {
    fn of(markers: &[Marker]) -> Scan {
        let mut pieces = vec![Vec::new(); 1 << 16];
        for marker in markers {
            assert!(marker.bytes.len() >= PIECE_BYTES, "{} is long enough to be told from chance", marker.kind);
            for piece in marker.bytes.chunks_exact(PIECE_BYTES) {
                pieces[usize::from(u16::from_le_bytes([piece[0], piece[1]]))].push((marker.kind, piece.to_vec()));
            }
        }
        Scan { pieces }
    }

    /// Finds with where they are, such as `payload in [heap]`.
    fn of_process(&self, pid: &str) -> BTreeSet<(&'static str, String)> {
        let mut found = BTreeSet::new();
        each_run(pid, &mut |region, content| {
            let mut kinds = BTreeSet::new();
            self.of_bytes(content, &mut kinds);
            found.extend(kinds.into_iter().map(|kind| (kind, region.to_owned())));
        });
        found
    }

    fn of_bytes(&self, content: &[u8], found: &mut BTreeSet<&'static str>) {
        for at in 0..content.len().saturating_sub(PIECE_BYTES - 1) {
            for (kind, piece) in &self.pieces[usize::from(u16::from_le_bytes([content[at], content[at + 1]]))] {
                if content[at..].starts_with(piece) {
                    found.insert(kind);
                }
            }
        }
    }
}

/// Shows the writable memory of a process, with the name of the region that each stretch is in.
fn each_run(pid: &str, visit: &mut dyn FnMut(&str, &[u8])) {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("the process lives");
    let memory = File::open(format!("/proc/{pid}/mem")).expect("our process");
    let pages = File::open(format!("/proc/{pid}/pagemap")).expect("our process");
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (range, rights) = (words.next().expect("a range"), words.next().expect("rights"));
        let (begin, end) = range.split_once('-').expect("a range");
        let address = |text: &str| u64::from_str_radix(text, 16).expect("an address");
        if rights.starts_with("rw") {
            let region = words.nth(3).unwrap_or("anonymous memory");
            runs_of_region(&memory, &pages, address(begin)..address(end), &mut |content| visit(region, content));
        }
    }
}

/// Shows one run of pages that are there after the other: untouched ones would read as zeros, slowly.
fn runs_of_region(memory: &File, pages: &File, region: std::ops::Range<u64>, visit: &mut dyn FnMut(&[u8])) {
    let mut entries = vec![0; ((region.end - region.start) / PAGE_BYTES * 8) as usize];
    pages.read_exact_at(&mut entries, region.start / PAGE_BYTES * 8).expect("the map of our process");
    // The two highest bits of an entry: the page is in memory, or in swap.
    let is_there = |entry: &[u8]| entry[7] & 0xc0 != 0;
    let mut at = region.start;
    let entries: Vec<&[u8]> = entries.chunks_exact(8).collect();
    for run in entries.chunk_by(|a, b| is_there(a) == is_there(b)) {
        let bytes = run.len() as u64 * PAGE_BYTES;
        if is_there(run[0]) {
            let mut content = vec![0; bytes as usize];
            memory.read_exact_at(&mut content, at).expect("the pages are there");
            visit(&content);
        }
        at += bytes;
    }
}

/// The private half of the node's key. Nobody but the node knows it, so that it is found in its memory: the library
/// keeps it before the public half, which is the node's id.
fn node_key(pid: &str, id: &[u8]) -> Vec<u8> {
    let mut key = None;
    each_run(pid, &mut |_, content| {
        for at in (0..content.len().saturating_sub(id.len())).filter(|at| content[*at..].starts_with(id)) {
            let seed = at.checked_sub(32).map(|begin| &content[begin..at]);
            key = key.take().or_else(|| {
                seed.filter(|seed| Ed25519KeyPair::from_seed_and_public_key(seed, id).is_ok()).map(<[u8]>::to_vec)
            });
        }
    });
    key.expect("the node has its key in memory")
}

#[test]
fn a_piece_of_a_secret_is_found_in_this_very_process() {
    let secret = text("own");
    let scan = Scan::of(&[Marker { kind: "secret", bytes: secret.clone().into_bytes() }]);
    // Beside the secret itself the scan has its pieces in memory: both are on the heap of this process.
    let found = scan.of_process("self");
    assert!(found.iter().any(|(kind, _)| *kind == "secret"), "{secret}");
    let other = Scan::of(&[Marker { kind: "other", bytes: secret.bytes().map(|byte| !byte).collect() }]);
    let mut none = BTreeSet::new();
    other.of_bytes(secret.as_bytes(), &mut none);
    assert!(none.is_empty());
}

/// 48 characters that occur nowhere else.
fn text(kind: &str) -> String {
    let mut random = [0_u8; 24];
    aws_lc_rs::rand::fill(&mut random).expect("random bytes");
    let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{kind}{hex}")[..48].to_owned()
}

/// One of everything that a node is told and must forget.
struct Secrets {
    tenant: String,
    key: Made,
    kept: String,
    taken: String,
    attribute: String,
    idem_key: String,
    group: String,
    reason: String,
    sqs_body: String,
    sqs_attribute: String,
    frame: String,
    lane: String,
    /// Public half of the node's key.
    node_id: Vec<u8>,
}

async fn operator(node: &Process, path: &str, body: Value) -> Value {
    let bearer = format!("Bearer {}", node.token);
    let headers = [("authorization", &*bearer), ("content-type", "application/json")];
    let reply = ask(node.api, Method::POST, path, &headers, body.to_string()).await.expect("an answer");
    assert!((200..300).contains(&reply.status), "{path}: {}", reply.text());
    reply.json().expect("JSON")
}

/// Tells the node its secrets over both surfaces; some messages are consumed, one fails, the others stay.
async fn tell(node: &Process) -> Secrets {
    let word = |value: &Value| value.as_str().expect("text").to_owned();
    let rights = json!({ "subject": "tenant", "rights": ["mailbox:*:*"] });
    let tenant = word(&operator(node, "/v1/tokens", rights).await["token"]);
    let made = operator(node, "/v1/sqs/keys", json!({ "note": "forgotten" })).await;
    let (id, secret) = (word(&made["access_key_id"]), word(&made["secret_access_key"]));
    let key = Made { id, secret, url: String::new() };
    let secrets = Secrets {
        tenant,
        key,
        kept: text("kept"),
        taken: text("taken"),
        attribute: text("attribute"),
        idem_key: text("idem"),
        group: text("group"),
        reason: text("reason"),
        sqs_body: text("sqsbody"),
        sqs_attribute: text("sqsattribute"),
        frame: text("frame"),
        lane: text("lane"),
        node_id: node_id(node).await,
    };
    let mut mailbox = MailboxClient::connect(node.api, &secrets.tenant).await.expect("connected");
    mailbox.topic("forgotten", &json!({ "groups": "fifo" })).await.expect("made");
    // Small ones go through other buffers than large ones.
    for (number, (payload, repeated)) in
        [(&secrets.taken, 1), (&secrets.kept, 1), (&secrets.kept, 2_000)].iter().enumerate()
    {
        let body = json!({
            "topic": "forgotten",
            "payload_b64": STANDARD.encode(payload.repeat(*repeated)),
            "attrs": { "secret": secrets.attribute },
            "idem_key": format!("{}{number}", secrets.idem_key),
            "group": secrets.group,
        });
        mailbox.post("/v1/send", &body).await.expect("sent");
    }
    let take = Take { max: 2, visibility_ms: 60_000, wait_ms: 0 };
    let messages = mailbox.recv("forgotten", take).await.expect("received");
    assert_eq!(messages.iter().map(|message| message.text()).collect::<Vec<_>>(), [&*secrets.taken, &*secrets.kept]);
    assert_eq!(mailbox.ack(&[&messages[0].receipt]).await.expect("answered"), [true]);
    mailbox.nack(&[&messages[1].receipt], &secrets.reason, None).await.expect("answered");
    use_sqs(node, &secrets).await;
    use_frames(node, &secrets).await;
    secrets
}

/// The node's id, as it introduces itself.
async fn node_id(node: &Process) -> Vec<u8> {
    let mut raw = RawSession::connect(node.oap).await;
    raw.write(&Control::Hello(Hello::new(1 << 20, 8)).to_frame().to_bytes()).await;
    let hello = raw.frame().await.expect("a HELLO");
    let Ok(Control::Hello(Hello { node_id: Some(id), .. })) = Control::parse(&hello) else { panic!("{hello:?}") };
    let digits = |at: usize| u8::from_str_radix(&id[at..at + 2], 16).expect("hex digits");
    (0..id.len()).step_by(2).map(digits).collect()
}

/// Sends a message and publishes one, short and long.
async fn use_frames(node: &Process, secrets: &Secrets) {
    let mut raw = RawSession::hello(node.oap, &secrets.tenant).await;
    let mut operator = RawSession::hello(node.oap, &node.token).await;
    for (corr, repeated) in [(1, 1), (2, 2_000)] {
        let body = secrets.frame.repeat(repeated);
        let head = json!({ "topic": "framed", "messages": [{ "len": body.len() }] }).to_string();
        let length = (head.len() as u32).to_be_bytes();
        let payload = [&[1][..], &length, head.as_bytes(), body.as_bytes()].concat();
        raw.write(&Frame::request(AppId::MAILBOX, corr, Bytes::from(payload)).to_bytes()).await;
        assert_eq!(raw.answer().await.expect("an answer").code, status::OK);
        let published = format!("{}\n{}", json!({ "publish": "forgotten" }), secrets.lane.repeat(repeated));
        operator.write(&Frame::request(AppId::LANES, corr, Bytes::from(published)).to_bytes()).await;
        assert_eq!(operator.answer().await.expect("an answer").code, status::ACCEPTED);
    }
    let head = json!({ "topic": "framed" }).to_string();
    let payload = [&[2][..], &(head.len() as u32).to_be_bytes(), head.as_bytes()].concat();
    raw.write(&Frame::request(AppId::MAILBOX, 3, Bytes::from(payload)).to_bytes()).await;
    assert_eq!(raw.answer().await.expect("an answer").code, status::OK);
}

async fn use_sqs(node: &Process, secrets: &Secrets) {
    let made = secrets.key.call(node, "CreateQueue", r#"{"QueueName":"queue"}"#).await;
    assert_eq!(made.status, 200, "{}", made.text());
    let url = made.json().expect("JSON")["QueueUrl"].clone();
    let attribute = json!({ "secret": { "DataType": "String", "StringValue": secrets.sqs_attribute } });
    let message = json!({ "QueueUrl": url, "MessageBody": secrets.sqs_body, "MessageAttributes": attribute });
    for (action, body) in [("SendMessage", &message), ("ReceiveMessage", &json!({ "QueueUrl": url }))] {
        let reply = secrets.key.call(node, action, &body.to_string()).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
}

/// The forms in which each secret passes through the node.
fn markers(node: &Process, pid: &str, secrets: &Secrets) -> Vec<Marker> {
    let decoded = URL_SAFE.decode(&secrets.tenant).expect("base64");
    let mut markers = vec![
        // Its end is the signature: what comes before says nothing that is secret.
        Marker { kind: TOKEN_DECODED, bytes: decoded[decoded.len() - 64..].to_vec() },
        Marker { kind: "private key of the node", bytes: node_key(pid, &secrets.node_id) },
    ];
    let texts = [
        ("operator token", &node.token),
        ("tenant token", &secrets.tenant),
        ("secret of an access key", &secrets.key.secret),
        ("payload that waits", &secrets.kept),
        ("payload that was consumed", &secrets.taken),
        ("attribute", &secrets.attribute),
        ("idempotency key", &secrets.idem_key),
        ("group", &secrets.group),
        ("reason of a failure", &secrets.reason),
        ("body over SQS", &secrets.sqs_body),
        ("attribute over SQS", &secrets.sqs_attribute),
        ("payload over frames", &secrets.frame),
        ("payload on a lane", &secrets.lane),
    ];
    markers.extend(texts.map(|(kind, text)| Marker { kind, bytes: text.clone().into_bytes() }));
    let encoded = [&secrets.kept, &secrets.taken].map(|payload| STANDARD.encode(payload).into_bytes());
    markers.extend(encoded.map(|bytes| Marker { kind: PAYLOAD_ENCODED, bytes }));
    let derived = secrets.key.key().signing_keys();
    markers.extend(derived.into_iter().map(|bytes| Marker { kind: SIGNING_KEY, bytes }));
    markers
}

/// The exit code with which a held process is about to end.
fn held_with(pid: &str) -> Option<String> {
    let call = fs::read_to_string(Path::new("/proc").join(pid).join("syscall")).ok()?;
    let mut words = call.split_whitespace();
    (words.next() == Some(EXIT_GROUP)).then(|| words.next().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn no_secret_and_no_message_is_in_memory_at_the_last_moment() {
    if !has_tool("strace", TEST) {
        return;
    }
    let working = tempfile::tempdir().expect("a scratch folder");
    let elsewhere = tempfile::tempdir().expect("a scratch folder");
    let node = start_traced(working.path(), elsewhere.path(), &HOLD_AT_EXIT).await;
    let pid = node.children()[0].as_raw_nonzero().to_string();
    let secrets = tell(&node).await;
    let markers = markers(&node, &pid, &secrets);
    let scan = Scan::of(&markers);

    let known: BTreeSet<&str> = scan.of_process(&pid).into_iter().map(|(kind, _)| kind).collect();
    let held = markers.iter().map(|marker| marker.kind).filter(|kind| !PASSING.contains(kind));
    let unknown: Vec<&str> = held.filter(|kind| !known.contains(kind)).collect();
    assert!(unknown.is_empty(), "the scan does not find what the node surely holds: {unknown:?}");
    assert_eq!(node.control("/drain").await.status, 202);
    let code = eventually("the last moment", async || held_with(&pid)).await;
    let left = scan.of_process(&pid);
    assert!(left.is_empty(), "left in memory: {left:#?}");
    assert_eq!(code, "0x0", "{}", node.stderr());
}

#[tokio::test]
async fn no_core_file_and_no_other_process_gets_the_memory_of_a_forgetful_node() {
    if !has_tool("strace", "no_core_file_and_no_other_process_gets_the_memory_of_a_forgetful_node") {
        return;
    }
    let working = tempfile::tempdir().expect("a scratch folder");
    let elsewhere = tempfile::tempdir().expect("a scratch folder");
    let mut node = start_traced(working.path(), elsewhere.path(), &["-e", "trace=prctl"]).await;
    let pid = node.children()[0].as_raw_nonzero().to_string();
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).expect("our process");
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).expect("a limit of core files");
    assert_eq!(core.split_whitespace().rev().take(3).collect::<Vec<_>>(), ["bytes", "0", "0"], "{core}");
    assert_eq!(node.control("/drain").await.status, 202);
    assert_eq!(node.wait_exit().await.code(), Some(0), "{}", node.stderr());
    let trace = fs::read_to_string(elsewhere.path().join("trace")).expect("a trace");
    assert!(trace.contains("PR_SET_DUMPABLE, SUID_DUMP_DISABLE") && trace.contains(") = 0"), "{trace}");
}
