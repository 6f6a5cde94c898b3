//! Requests signed by an independent signer are taken; whatever is changed on them, they are not.

use http::{HeaderValue, Method, Request, StatusCode};
use serde::Deserialize;

use super::*;

/// Made by botocore, for the real client and for requests put together to be odd; the file says which release.
const BOTOCORE: &str = include_str!("botocore.json");

#[derive(Deserialize)]
struct Vectors {
    access_key: String,
    secret: String,
    now_s: u64,
    requests: Vec<Vector>,
}

#[derive(Clone, Deserialize)]
struct Vector {
    name: String,
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: String,
    region: String,
    /// What the signer hashed, where it told.
    canonical: Option<String>,
    presigned: bool,
}

impl Vector {
    fn parts(&self) -> Parts {
        let method = Method::from_bytes(self.method.as_bytes()).expect("a method");
        let mut request = Request::builder().method(method).uri(&self.target);
        for (name, value) in &self.headers {
            request = request.header(name, HeaderValue::from_str(value).expect("a value"));
        }
        request.body(()).expect("a request").into_parts().0
    }

    fn header(&mut self, name: &str) -> &mut String {
        let found = self.headers.iter_mut().find(|(found, _)| found.eq_ignore_ascii_case(name));
        &mut found.unwrap_or_else(|| panic!("no {name}")).1
    }

    fn drop_header(&mut self, name: &str) {
        self.headers.retain(|(found, _)| !found.eq_ignore_ascii_case(name));
    }
}

fn vectors() -> Vectors {
    serde_json::from_str(BOTOCORE).expect("vectors")
}

fn vector(name: &str) -> Vector {
    vectors().requests.into_iter().find(|vector| vector.name == name).expect("a vector of this name")
}

struct Bench {
    keyring: Keyring,
    options: SqsOptions,
    now_s: u64,
}

impl Bench {
    fn new() -> Self {
        let Vectors { access_key, secret, now_s, .. } = vectors();
        let options = SqsOptions { presigned: true, ..SqsOptions::default() };
        Bench { keyring: Keyring::of(&access_key, &secret, "capability"), options, now_s }
    }

    fn verify(&self, vector: &Vector) -> Result<Signer, SqsError> {
        verify(&self.keyring, &self.options, &vector.parts(), vector.body.as_bytes(), self.now_s)
    }

    fn refuse(&self, vector: &Vector) -> (&'static str, u16, String) {
        let error = self.verify(vector).expect_err(&vector.name);
        (error.code, error.status.as_u16(), error.message.into_owned())
    }
}

#[test]
fn what_botocore_signs_is_taken() {
    let bench = Bench::new();
    let vectors = vectors();
    assert!(vectors.requests.len() > 12);
    for vector in &vectors.requests {
        let signer = bench.verify(vector).unwrap_or_else(|error| panic!("{}: {error:?}", vector.name));
        assert_eq!((&signer.access_key, &signer.region), (&vectors.access_key, &vector.region), "{}", vector.name);
        assert_eq!(&*signer.token, "capability");
        assert!(!format!("{signer:?}").contains("capability"));
    }
}

#[test]
fn the_text_that_is_hashed_is_the_one_botocore_hashes() {
    for vector in vectors().requests {
        let Some(expected) = &vector.canonical else { continue };
        let parts = vector.parts();
        let signed_headers = expected.rsplit('\n').nth(1).expect("the last line but one");
        let payload = canonical::hash(vector.body.as_bytes());
        let text = canonical::request(&parts, &canonical::Query::of(&parts), signed_headers, &payload);
        assert_eq!(&String::from_utf8(text).expect("text"), expected, "{}", vector.name);
    }
}

#[test]
fn whatever_is_changed_on_a_signed_request_it_is_refused() {
    let bench = Bench::new();
    let mismatch = |vector: &Vector, what: &str| {
        let (code, status, message) = bench.refuse(vector);
        assert_eq!((code, status), ("SignatureDoesNotMatch", 403), "{}: {what}: {message}", vector.name);
    };
    for vector in vectors().requests {
        let changed = |change: &dyn Fn(&mut Vector)| {
            let mut vector = vector.clone();
            change(&mut vector);
            vector
        };
        mismatch(&changed(&|it| it.body.push(' ')), "body");
        mismatch(&changed(&|it| it.method = "PUT".into()), "method");
        mismatch(&changed(&|it| it.target.insert_str(1, "x/")), "path");
        mismatch(&changed(&|it| it.target.push_str(if it.target.contains('?') { "&x=1" } else { "?x=1" })), "query");
        mismatch(&changed(&|it| it.header("host").push('1')), "host");
        if !vector.presigned {
            let last = |text: &mut String| if text.pop() == Some('0') { text.push('1') } else { text.push('0') };
            mismatch(&changed(&|it| last(it.header("authorization"))), "signature");
            let region = format!("/{}/", vector.region);
            let other =
                |it: &mut Vector| *it.header("authorization") = it.header("authorization").replace(&region, "/x/");
            mismatch(&changed(&other), "region");
        }
    }
    let mut other_action = vector("json");
    *other_action.header("x-amz-target") = "AmazonSQS.DeleteQueue".into();
    mismatch(&other_action, "target");
    let wrong_secret = Bench { keyring: Keyring::of(&vectors().access_key, "wrong", "t"), ..Bench::new() };
    assert_eq!(wrong_secret.refuse(&vector("json")).0, "SignatureDoesNotMatch");
}

#[test]
fn a_signature_is_good_for_a_quarter_of_an_hour_either_way() {
    let at = |offset_s: i64| {
        let bench = Bench::new();
        let now_s = bench.now_s.checked_add_signed(offset_s).expect("after 1970");
        Bench { now_s, ..bench }
    };
    for offset_s in [-900, 0, 900] {
        at(offset_s).verify(&vector("json")).expect("in time");
    }
    let late = "Signature expired: 20260102T030405Z is now earlier than 20260102T030406Z (20260102T031906Z - 15 min.)";
    assert_eq!(at(901).refuse(&vector("json")), ("SignatureDoesNotMatch", 403, late.into()));
    let early = "Signature not yet current: 20260102T030405Z is still later than 20260102T030404Z \
                 (20260102T024904Z + 15 min.)";
    assert_eq!(at(-901).refuse(&vector("json")), ("SignatureDoesNotMatch", 403, early.into()));
    assert_eq!(at(901).refuse(&vector("date header")).0, "SignatureDoesNotMatch");

    at(3600).verify(&vector("presigned")).expect("its own time");
    assert_eq!(at(3601).refuse(&vector("presigned")), ("RequestExpired", 400, "Request has expired.".into()));
    assert_eq!(at(-901).refuse(&vector("presigned")).0, "SignatureDoesNotMatch");
}

#[test]
fn requests_without_a_whole_signature_are_told_what_is_missing() {
    let bench = Bench::new();
    let authorization = |text: &str| {
        let mut vector = vector("json");
        *vector.header("authorization") = text.into();
        vector
    };
    let signed = vector("json").header("authorization").clone();
    let cases: &[(String, &str, u16, &str)] = &[
        (signed.replace("MNSQ", "AKIA"), "InvalidClientTokenId", 403, "security token"),
        (signed.replace("Credential=", "Kredential="), "IncompleteSignature", 400, "'Credential'"),
        (signed.replace("SignedHeaders=", "Signed="), "IncompleteSignature", 400, "'SignedHeaders'"),
        (signed.replace(", Signature=", ", S="), "IncompleteSignature", 400, "'Signature'"),
        (signed.replace("/sqs/", "/s3/"), "SignatureDoesNotMatch", 403, "'sqs', not 's3'"),
        (signed.replace("aws4_request", "aws5_request"), "SignatureDoesNotMatch", 403, "aws5_request"),
        (signed.replace("/20260102/", "/20260103/"), "SignatureDoesNotMatch", 403, "'20260103' != '20260102'"),
        (signed.replace("/us-east-1/", "/a\"b/"), "SignatureDoesNotMatch", 403, "valid region"),
        (signed.replace("/us-east-1/", "/"), "IncompleteSignature", 400, "5 slash-delimited"),
        (signed.replace("host;", ""), "SignatureDoesNotMatch", 403, "'host' must be"),
        (signed.replace("x-amz-date;", ""), "SignatureDoesNotMatch", 403, "'x-amz-date' must be"),
        (signed.replace("x-amz-target;", ""), "SignatureDoesNotMatch", 403, "'x-amz-target' must be"),
        (signed.replace("HMAC", "ECDSA"), "IncompleteSignature", 400, "AWS4-HMAC-SHA256"),
        ("Basic abc".into(), "IncompleteSignature", 400, "AWS4-HMAC-SHA256"),
        ("AWS4-HMAC-SHA256".into(), "IncompleteSignature", 400, "'Credential'"),
        (String::new(), "IncompleteSignature", 400, "AWS4-HMAC-SHA256"),
        (signed[..signed.len() - 1].to_owned(), "SignatureDoesNotMatch", 403, "does not match"),
    ];
    for (text, code, status, words) in cases {
        let (found, found_status, message) = bench.refuse(&authorization(text));
        assert_eq!((found, found_status), (*code, *status), "{text}: {message}");
        assert!(message.contains(words), "{text}: {message}");
    }
    let without = |name: &str| {
        let mut vector = vector("json");
        vector.drop_header(name);
        bench.refuse(&vector)
    };
    assert_eq!(without("authorization").0, "MissingAuthenticationToken");
    assert_eq!((without("x-amz-date").0, without("host").0), ("IncompleteSignature", "SignatureDoesNotMatch"));
    let mut dated = vector("json");
    *dated.header("x-amz-date") = "2026-01-02".into();
    assert!(bench.refuse(&dated).2.contains("ISO-8601"));
    let mut twice = vector("json");
    twice.headers.push(("authorization".into(), signed));
    assert_eq!(bench.refuse(&twice).0, "IncompleteSignature");
}

#[test]
fn a_signed_text_costs_no_more_than_the_head_of_its_request() {
    let bench = Bench::new();
    let signed = vector("json");
    let names = |names: &str| {
        let mut changed = signed.clone();
        let header = changed.header("authorization");
        let (before, rest) = header.split_once("SignedHeaders=").expect("named");
        let (_, after) = rest.split_once(',').expect("a signature follows");
        *header = format!("{before}SignedHeaders={names},{after}");
        bench.refuse(&changed)
    };
    let known = "content-type;host;x-amz-date;x-amz-target";
    assert!(!names(known).2.contains("alphabetical"));
    let many = format!("content-type;host;{}x-amz-date;x-amz-target", "user-agent;".repeat(1000));
    for wrong in [&many, "host;content-type;x-amz-date;x-amz-target", "content-type;host;host;x-amz-date;x-amz-target"]
    {
        let (code, status, message) = names(wrong);
        assert_eq!((code, status), ("SignatureDoesNotMatch", 403), "{message}");
        assert!(message.contains("alphabetical order, each once"), "{message}");
    }
}

#[test]
fn commas_may_stand_without_spaces() {
    let mut vector = vector("json");
    *vector.header("authorization") = vector.header("authorization").replace(", ", ",");
    Bench::new().verify(&vector).expect("as some clients write it");
}

#[test]
fn the_host_of_http_2_is_in_the_address() {
    let mut vector = vector("json");
    vector.drop_header("host");
    vector.target = "http://127.0.0.1:8080/".into();
    Bench::new().verify(&vector).expect("as HTTP/2 has it");
}

#[test]
fn the_body_cannot_be_left_out_of_the_signature() {
    let bench = Bench::new();
    let mut named = vector("hash of the payload named");
    *named.header("x-amz-content-sha256") = "UNSIGNED-PAYLOAD".into();
    let (code, status, _) = bench.refuse(&named);
    assert_eq!((code, status), ("InvalidSecurity", 403));
    *named.header("x-amz-content-sha256") = "0".repeat(64);
    let (code, _, message) = bench.refuse(&named);
    assert!(code == "SignatureDoesNotMatch" && message.contains("x-amz-content-sha256"), "{message}");
}

#[test]
fn signatures_in_the_query_are_refused_unless_the_operator_wants_them() {
    let bench = Bench { options: SqsOptions::default(), ..Bench::new() };
    let (code, status, message) = bench.refuse(&vector("presigned"));
    assert!(code == "InvalidSecurity" && status == 403 && message.contains("sqs.presigned"), "{message}");

    let bench = Bench::new();
    let replaced = |from: &str, to: &str| {
        let mut vector = vector("presigned");
        assert!(vector.target.contains(from), "{from}");
        vector.target = vector.target.replace(from, to);
        bench.refuse(&vector).0
    };
    assert_eq!(replaced("X-Amz-Expires=3600", "X-Amz-Expires=604801"), "IncompleteSignature");
    assert_eq!(replaced("X-Amz-Expires=3600", "X-Amz-Expires=3601"), "SignatureDoesNotMatch");
    assert_eq!(replaced("X-Amz-Algorithm", "X-Amz-Algo"), "IncompleteSignature");
    assert_eq!(replaced("SignedHeaders=host", "SignedHeaders="), "SignatureDoesNotMatch");
    assert_eq!(replaced("X-Amz-Signature", "X-Amz-Sign"), "MissingAuthenticationToken");
    let mut both = vector("presigned");
    both.headers.push(("authorization".into(), vector("json").header("authorization").clone()));
    assert_eq!(bench.refuse(&both).0, "IncompleteSignature");
}

#[test]
fn a_token_of_the_node_is_taken_instead() {
    let mut vector = vector("json");
    *vector.header("authorization") = "bearer  abc.def".into();
    let signer = Bench::new().verify(&vector).expect("a token");
    assert_eq!((&*signer.access_key, &*signer.token, &*signer.region), ("", "abc.def", "us-east-1"));
}

#[test]
fn signing_keys_are_remembered_for_good_signatures_alone() {
    let bench = Bench::new();
    let key = bench.keyring.find(&vectors().access_key).expect("there");
    let mut forged = vector("json");
    forged.body.push('x');
    assert!(bench.verify(&forged).is_err() && key.remembered("20260102", "us-east-1").is_none());
    for _ in 0..2 {
        bench.verify(&vector("json")).expect("good");
        assert!(key.remembered("20260102", "us-east-1").is_some());
        assert!(bench.verify(&forged).is_err());
    }
    assert!(bench.keyring.revoke(&key.id).expect("in memory"));
    assert_eq!(bench.verify(&vector("json")).map_err(|error| error.status), Err(StatusCode::FORBIDDEN));
}
