//! Capabilities from mint to verdict: every refusal, the memory of verdicts, and what blocks may carry.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use biscuit_auth::builder::BlockBuilder;
use biscuit_auth::format::schema;
use biscuit_auth::{Algorithm, Biscuit, KeyPair, UnverifiedBiscuit};
use prost::Message as _;

use super::*;
use crate::testing::{ALL, GET, PUT, READ, WRITE};
use crate::{Narrowing, Right, attenuate, inspect};

mod engine;

const NOW_MS: u64 = 1_800_000_000_000;
const OPERATOR: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

struct Desk {
    authority: Authority,
    clock: Arc<AtomicU64>,
}

impl Desk {
    fn new() -> Self {
        Desk::with(BOUNDS)
    }

    fn with(bounds: Bounds) -> Self {
        let root = RootKey::from_hex(&"0123456789abcdef".repeat(4)).expect("valid");
        let clock = Arc::new(AtomicU64::new(NOW_MS));
        let read = Arc::clone(&clock);
        let read = Box::new(move || read.load(Ordering::Relaxed));
        Desk { authority: Authority::assemble(root, Some(OPERATOR), read, bounds), clock }
    }

    fn ask(&self, token: &str, action: Action, resource: &str) -> Result<Arc<Subject>, Kind> {
        self.authority.authorize(Some(token), action, resource, None).map_err(|error| error.kind)
    }

    fn allows(&self, token: &str, action: Action, resource: &str) -> bool {
        self.ask(token, action, resource).is_ok()
    }

    fn set_clock(&self, now_ms: u64) {
        self.clock.store(now_ms, Ordering::Relaxed);
    }

    fn mint(&self, rights: &[&str], expires_ms: Option<u64>) -> String {
        self.authority.mint(&grant(rights, expires_ms)).expect("minted")
    }
}

fn grant(rights: &[&str], expires_ms: Option<u64>) -> Grant {
    let rights = rights.iter().map(|right| right.parse().expect("valid")).collect();
    Grant { subject: "ann".into(), rights, expires_ms, ..Grant::default() }
}

fn until(expires_ms: u64) -> Narrowing {
    Narrowing { expires_ms: Some(expires_ms), ..Narrowing::default() }
}

/// The token with a block of rules that this crate would not write.
fn append(token: &str, code: &str) -> String {
    let block = BlockBuilder::new().code(code).expect("valid rules");
    UnverifiedBiscuit::from_base64(token).and_then(|token| token.append(block)?.to_base64()).expect("appended")
}

#[test]
fn a_token_allows_its_actions_on_its_resources_and_nothing_else() {
    let desk = Desk::new();
    let token = desk.mint(&["store:put:orders", "store:get:orders", "store:put:jobs.*", "mail:read:*"], None);
    for (action, resource, expected) in [
        (PUT, "orders", true),
        (GET, "orders", true),
        (PUT, "orders2", false),
        (PUT, "order", false),
        (PUT, "jobs.a", true),
        (PUT, "jobs.a.b", true),
        (GET, "jobs.a", false),
        (PUT, "jobs", false),
        (PUT, "jobsx", false),
        (PUT, "", false),
        (READ, "orders", true),
        (READ, "", true),
        (WRITE, "orders", false),
        (WRITE, "jobs.a", false),
    ] {
        for round in ["first", "remembered"] {
            let verdict = desk.ask(&token, action, resource).map(|subject| subject.name.to_string());
            let expected = if expected { Ok("ann".to_owned()) } else { Err(Kind::Forbidden) };
            assert_eq!(verdict, expected, "{action} {resource:?} {round}");
        }
    }
}

#[test]
fn a_right_of_one_service_is_none_in_another() {
    let desk = Desk::new();
    // One action per service with the same verb, on resources of the same name.
    const HERE: Action = Action::new("here:read");
    const THERE: Action = Action::new("there:read");
    const LONGER: Action = Action::new("heretic:read");
    for scope in ["x", "x*", "*"] {
        let token = desk.mint(&[&format!("here:read:{scope}")], None);
        for _ in ["first", "remembered"] {
            assert!(desk.allows(&token, HERE, "x"), "{scope}");
            assert_eq!(desk.ask(&token, THERE, "x"), Err(Kind::Forbidden), "{scope}");
            assert_eq!(desk.ask(&token, LONGER, "x"), Err(Kind::Forbidden), "{scope}");
        }
    }
    let both = desk.mint(&["here:read:*", "there:read:*"], None);
    let narrowing = Narrowing { rights: vec!["here:read:x".parse().expect("valid")], expires_ms: None };
    let narrowed = attenuate(&both, &narrowing).expect("narrowed");
    assert!(desk.allows(&both, THERE, "x") && desk.allows(&narrowed, HERE, "x"));
    assert!(!desk.allows(&narrowed, THERE, "x") && !desk.allows(&narrowed, HERE, "y"));
}

#[test]
fn a_token_of_the_time_before_services_grants_nothing() {
    let desk = Desk::new();
    let builder = biscuit_auth::Biscuit::builder()
        .code(r#"subject("ann"); right("put", "t"); right_prefix("put", ""); quota("bytes_max", 7);"#)
        .expect("valid facts");
    let token = builder.build(desk.authority.0.root.pair()).and_then(|token| token.to_base64()).expect("built");
    assert_eq!(desk.ask(&token, PUT, "t"), Err(Kind::Forbidden));
    assert_eq!(inspect(&token).expect("read").rights, ["put:t", "put:*"]);
}

#[test]
fn nobody_bears_a_name_of_the_node_itself() {
    let desk = Desk::new();
    for subject in ["anonymous", "operator", "epoch/2026-11", "epoch/"] {
        let grant = Grant { subject: subject.into(), ..grant(&["store:put:t"], None) };
        assert!(desk.authority.mint(&grant).is_err(), "{subject}");
    }
    for subject in ["anonymous2", "my/epoch/1", "Operator"] {
        let grant = Grant { subject: subject.into(), ..grant(&["store:put:t"], None) };
        assert!(desk.authority.mint(&grant).is_ok(), "{subject}");
    }
    // As a node of before would have made it.
    let builder = Biscuit::builder().code(r#"subject("anonymous"); right("store:put", "t");"#).expect("valid facts");
    let token = builder.build(desk.authority.0.root.pair()).and_then(|token| token.to_base64()).expect("built");
    assert_eq!(desk.ask(&token, PUT, "t"), Err(Kind::Unauthenticated));
}

#[test]
fn limits_and_expiry_reach_the_subject() {
    let desk = Desk::new();
    let limits = [("store.bytes_max".to_owned(), 7), ("moon.phases".to_owned(), i64::MAX as u64)];
    let limits = BTreeMap::from(limits);
    let plain = grant(&["store:put:t"], Some(NOW_MS + 5));
    let token = desk.authority.mint(&Grant { limits: limits.clone(), ..plain }).expect("minted");
    let expected = Subject { limits, expires_ms: Some(NOW_MS + 5), ..Subject::named("ann") };
    let subject = desk.ask(&token, PUT, "t").expect("a limit that nobody knows is kept and stops nothing");
    assert_eq!(*subject, expected);
    assert_eq!((subject.limit("store.bytes_max"), subject.limit("bytes_max")), (Some(7), None));
    let narrowed = attenuate(&token, &until(NOW_MS + 3)).expect("narrowed");
    assert_eq!(desk.ask(&narrowed, PUT, "t").expect("good").expires_ms, Some(NOW_MS + 3));
    let later = attenuate(&token, &until(NOW_MS + 9)).expect("narrowed");
    assert_eq!(desk.ask(&later, PUT, "t").expect("good").expires_ms, Some(NOW_MS + 5));
}

#[test]
fn the_operator_is_told_from_other_bearers_of_good_tokens() {
    let desk = Desk::new();
    let token = desk.mint(&["store:put:*"], Some(NOW_MS + 10));
    let operator = |token: Option<&str>| desk.authority.authorize_operator(token).map(drop).map_err(|error| error.kind);
    let recognized = |token: Option<&str>| desk.authority.recognize(token).map_err(|error| error.kind);
    for _ in ["first", "remembered"] {
        assert_eq!((operator(Some(OPERATOR)), recognized(Some(OPERATOR))), (Ok(()), Ok(())));
        assert_eq!((operator(Some(&token)), recognized(Some(&token))), (Err(Kind::Forbidden), Ok(())));
        for bad in [None, Some("x")] {
            let refused = Err(Kind::Unauthenticated);
            assert_eq!((operator(bad), recognized(bad)), (refused, refused), "{bad:?}");
        }
    }
    desk.set_clock(NOW_MS + 10);
    assert_eq!((operator(Some(&token)), recognized(Some(&token))), (Err(Kind::Unauthenticated), Ok(())));
    desk.authority.set_revoked(inspect(&token).expect("read").blocks.into_iter().map(|block| block.revocation_id));
    assert_eq!(recognized(Some(&token)), Err(Kind::Unauthenticated));
}

#[test]
fn without_a_good_token_there_is_no_subject() {
    let desk = Desk::new();
    let strange = Authority::new(RootKey::generate(), None, || NOW_MS).mint(&grant(&["store:put:t"], None));
    let (strange, long) = (strange.expect("minted"), "A".repeat(limits::CAPABILITY_BYTES_MAX + 1));
    let nearly = OPERATOR.replace('f', "e");
    for bearer in [None, Some(""), Some("token"), Some("ü"), Some(&*strange), Some(&*long), Some(&*nearly)] {
        let error = desk.authority.authorize(bearer, PUT, "t", None).expect_err("refused");
        assert_eq!(error.kind, Kind::Unauthenticated, "{bearer:?}");
        assert!(bearer.is_none_or(|bearer| bearer.len() < 9 || !error.detail.contains(bearer)), "{error}");
    }
    assert_eq!(desk.authority.cached(), 0);
}

#[test]
fn the_operator_may_do_everything() {
    let desk = Desk::new();
    for action in ALL {
        assert!(desk.ask(OPERATOR, action, "any").is_ok_and(|subject| subject.is_operator), "{action}");
    }
    let nobody = Authority::new(RootKey::generate(), None, || NOW_MS);
    for bearer in [OPERATOR, ""] {
        assert!(nobody.authorize(Some(bearer), PUT, "t", None).is_err(), "{bearer:?}");
    }
}

#[test]
fn a_token_with_any_byte_changed_does_not_verify() {
    let desk = Desk::new();
    let minted = desk.mint(&["store:put:t"], Some(NOW_MS + 1000));
    let token = attenuate(&minted, &until(NOW_MS + 500)).expect("narrowed");
    assert!(desk.allows(&token, PUT, "t"));
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    for position in 0..token.len() {
        let byte = token.as_bytes()[position];
        let place = ALPHABET.iter().position(|letter| *letter == byte).unwrap_or(0);
        let others = [ALPHABET[place ^ (1 << (position % 6))], b'=', b'\n'];
        for other in others.into_iter().filter(|other| *other != byte) {
            let mut tampered = token.clone().into_bytes();
            tampered[position] = other;
            let tampered = String::from_utf8(tampered).expect("ASCII");
            let verdict = desk.ask(&tampered, PUT, "t");
            assert_eq!(verdict, Err(Kind::Unauthenticated), "{} at {position}", other as char);
            let _ = inspect(&tampered);
        }
        assert_eq!(desk.ask(&token[..position], PUT, "t"), Err(Kind::Unauthenticated), "cut at {position}");
    }
}

#[test]
fn expiry_is_exact_whether_remembered_or_not() {
    let desk = Desk::new();
    let minted = desk.mint(&["store:put:t"], Some(NOW_MS + 1500));
    let narrowed = attenuate(&desk.mint(&["store:put:t"], None), &until(NOW_MS + 1500)).expect("narrowed");
    for token in [minted, narrowed] {
        desk.set_clock(NOW_MS);
        assert!(desk.allows(&token, PUT, "t"));
        for _ in ["remembered", "afresh"] {
            desk.set_clock(NOW_MS + 1499);
            assert!(desk.allows(&token, PUT, "t"));
            desk.set_clock(NOW_MS + 1500);
            assert_eq!(desk.ask(&token, PUT, "t"), Err(Kind::Unauthenticated));
            desk.authority.trim();
            assert_eq!(desk.authority.cached(), 0);
        }
    }
}

#[test]
fn what_was_begun_before_expiry_can_be_ended_after_it() {
    let desk = Desk::new();
    let token = desk.mint(&["store:put:t"], Some(NOW_MS + 10));
    let ack = |at_ms| desk.authority.authorize(Some(&token), PUT, "t", at_ms).map(drop).map_err(|error| error.kind);
    assert_eq!(ack(Some(NOW_MS + 1_000)), Ok(()), "a time to come is now");
    desk.set_clock(NOW_MS + 20_000);
    for _ in ["remembered", "afresh"] {
        assert_eq!(ack(None), Err(Kind::Unauthenticated));
        assert_eq!(ack(Some(NOW_MS + 10)), Err(Kind::Unauthenticated));
        assert_eq!(ack(Some(NOW_MS + 9)), Ok(()));
        desk.authority.trim();
    }
    desk.authority.set_revoked(inspect(&token).expect("read").blocks.into_iter().map(|block| block.revocation_id));
    assert_eq!(ack(Some(NOW_MS + 9)), Err(Kind::Unauthenticated), "a revocation holds nevertheless");
}

/// Blocks that no client of this project appends, and what they are refused for.
const FOREIGN: [(&str, &str); 21] = [
    (r#"right("store:put", "secret"); right_prefix("store:put", "");"#, "facts"),
    (r#"operation("store:put"); resource("t"); time_ms(0); subject("operator");"#, "facts"),
    (r#"quota("store.bytes_max", 1000000);"#, "facts"),
    (r#"right("store:put", $resource) <- resource($resource);"#, "rules"),
    (r#"n(0, 0, 0); n($b, $c, $a) <- n($a, $b, $c);"#, "rules"),
    (r#"check if resource($r), $r.matches("(a*)*b");"#, "a check"),
    (r#"check if resource($r), $r.ends_with("t");"#, "a check"),
    (r#"check if operation("store:put"), resource($r), $r.starts_with("t") && $r.starts_with("t");"#, "a check"),
    (r#"check if operation("store:put"), resource($r), "t".starts_with($r);"#, "a check"),
    (r#"check if operation("store:put"), resource($r), $o.starts_with("t"), operation($o);"#, "a check"),
    (r#"check if resource("t");"#, "a check"),
    (r#"check if operation("store:put"), operation("store:put"), resource("t");"#, "a check"),
    (r#"check if operation("store:put") trusting authority;"#, "a check"),
    (r#"check if 9223372036854775807 + 1 > 0;"#, "a check"),
    ("check if time($now), $now < 2027-01-15T08:00:10Z;", "a check"),
    ("check if time_ms($now), $now <= 1800000000000;", "a check"),
    ("check if time_ms($now), $now < 1800000000000 or operation(\"store:put\");", "a check"),
    (r#"check all operation("store:put");"#, "a check"),
    (r#"reject if operation("store:get");"#, "a check"),
    (r#"check if operation("store:put"); check if operation("store:put");"#, "twice"),
    ("", "a check"),
];

#[test]
fn blocks_that_this_project_does_not_write_are_refused_with_what_they_carry() {
    let desk = Desk::new();
    let minted = desk.mint(&["store:put:t"], Some(NOW_MS + 10));
    for (code, said) in FOREIGN {
        let token = append(&minted, code);
        let error = desk.authority.authorize(Some(&token), PUT, "t", None).expect_err(code);
        assert!(error.kind == Kind::Unauthenticated && error.detail.contains("block 1"), "{code}: {error}");
        assert!(error.detail.contains(said), "{code}: {error}");
        assert!(attenuate(&token, &until(NOW_MS)).is_err() && inspect(&token).is_err(), "{code}");
    }
    assert_eq!(desk.authority.cached(), 0);
    assert!(desk.allows(&append(&minted, r#"check if operation("store:put"), resource("t");"#), PUT, "t"), "ours");
}

#[test]
fn minted_blocks_are_taken_as_this_node_writes_them_and_no_other_way() {
    let desk = Desk::new();
    let pair = RootKey::from_hex(&"0123456789abcdef".repeat(4)).expect("valid");
    let signed = |code: &str| {
        let builder = Biscuit::builder().code(code).expect("valid rules");
        builder.build(pair.pair()).and_then(|token| token.to_base64()).expect("built")
    };
    let good = r#"subject("ann"); right("store:put", "t");"#;
    assert!(desk.allows(&signed(good), PUT, "t"));
    for more in [
        r#"subject("bob");"#,
        r#"admin("ann");"#,
        r#"quota("store.bytes_max", -1);"#,
        r#"right("store:put", $r) <- resource($r);"#,
        r#"check if operation("store:put");"#,
        r#"check if time_ms($now), $now < 9000000000000; check if time_ms($now), $now < 9000000000000;"#,
    ] {
        let error = desk.authority.authorize(Some(&signed(&format!("{good} {more}"))), PUT, "t", None);
        assert!(error.expect_err(more).detail.contains("block 0"), "{more}");
    }
    assert_eq!(desk.ask(&signed(r#"right("store:put", "t");"#), PUT, "t"), Err(Kind::Unauthenticated), "nobody's");
}

#[test]
fn a_token_has_a_bounded_number_of_blocks() {
    let desk = Desk::new();
    let mut token = desk.mint(&["store:put:t"], None);
    for _ in 1..limits::CAPABILITY_BLOCKS_MAX {
        token = attenuate(&token, &until(NOW_MS + 9)).expect("narrowed");
        assert!(desk.allows(&token, PUT, "t"));
    }
    assert!(matches!(attenuate(&token, &until(NOW_MS + 8)), Err(AuthError::TooMany { what: "blocks", .. })));
    let longer = append(&token, &format!("check if time_ms($now), $now < {};", NOW_MS + 8));
    let error = desk.authority.authorize(Some(&longer), PUT, "t", None).expect_err("too many");
    assert!(error.detail.contains("at most 5 blocks"), "{error}");
}

#[test]
fn a_revoked_token_is_refused_before_anything_else_is_looked_at() {
    let desk = Desk::new();
    let minted = desk.mint(&["store:put:t"], Some(NOW_MS + 10));
    let id = inspect(&minted).expect("read").blocks[0].revocation_id.clone();
    let foreign = append(&minted, FOREIGN[3].0);
    desk.authority.set_revoked([id]);
    for token in [&minted, &foreign] {
        let error = desk.authority.authorize(Some(token), PUT, "t", None).expect_err("revoked");
        assert!(error.detail.contains("revoked"), "{error}");
    }
}

/// The longest token with the most blocks that a holder can make a node verify.
fn costly(desk: &Desk) -> String {
    let rights: Vec<Right> = (0..45).map(|number| format!("store:put:{number:02}").parse().expect("valid")).collect();
    let grant = Grant { subject: "ann".into(), rights: rights.clone(), ..Grant::default() };
    let mut token = desk.authority.mint(&grant).expect("minted");
    for _ in 1..limits::CAPABILITY_BLOCKS_MAX {
        token = attenuate(&token, &Narrowing { rights: rights[..7].to_vec(), expires_ms: None }).expect("narrowed");
    }
    token
}

#[test]
#[ignore = "a measurement for `Verified::new`: cargo test --release -p ron-auth costly -- --ignored --nocapture"]
fn what_the_most_costly_token_costs() {
    let desk = Desk::new();
    let (token, key) = (costly(&desk), desk.authority.public_key());
    let least = |work: &dyn Fn()| {
        let once = |_| {
            #[expect(clippy::disallowed_methods, reason = "it measures")]
            let began = std::time::Instant::now();
            work();
            began.elapsed()
        };
        (0..1000).map(once).min().expect("some")
    };
    let read = || Envelope::open(&token).expect("read");
    let whole = least(&|| assert!(Verified::new(&read(), key).is_ok_and(|verified| !verified.allows(PUT, "99"))));
    let unsigned = least(&|| assert!(read().contents().is_ok()));
    println!("{} bytes: {whole:?}, {unsigned:?} of it without signatures", token.len());
}

#[test]
fn a_revocation_kills_a_token_and_its_children_at_once() {
    let desk = Desk::new();
    let parent = desk.mint(&["store:put:t"], None);
    let child = attenuate(&parent, &until(NOW_MS + 9)).expect("narrowed");
    let grandchild = attenuate(&child, &until(NOW_MS + 8)).expect("narrowed");
    let stranger = desk.mint(&["store:put:t"], None);
    let tokens = [&parent, &child, &grandchild, &stranger];
    let ids: Vec<String> =
        inspect(&grandchild).expect("read").blocks.into_iter().map(|block| block.revocation_id).collect();
    let allowed = || tokens.map(|token| desk.allows(token, PUT, "t"));
    assert_eq!(allowed(), [true; 4], "all are remembered now");
    desk.authority.set_revoked([ids[1].to_uppercase()]);
    assert_eq!(desk.authority.cached(), 2, "only what it concerns is forgotten");
    assert_eq!(allowed(), [true, false, false, true]);
    desk.authority.set_revoked([ids[0].clone()]);
    assert_eq!(allowed(), [false, false, false, true]);
    assert_eq!(desk.ask(&child, PUT, "t"), Err(Kind::Unauthenticated));
    desk.authority.set_revoked([]);
    assert_eq!(allowed(), [true; 4], "the list is replaced as a whole");
}

#[test]
fn a_token_is_remembered_for_its_time_and_no_longer() {
    let desk = Desk::new();
    let token = desk.mint(&["store:put:t"], None);
    let first = desk.ask(&token, PUT, "t").expect("good");
    assert_eq!(desk.ask(&token, PUT, "u"), Err(Kind::Forbidden));
    assert_eq!(desk.authority.cached(), 1, "one token, whatever was asked about it");
    desk.set_clock(NOW_MS + BOUNDS.ttl_ms - 1);
    assert!(Arc::ptr_eq(&first, &desk.ask(&token, PUT, "t").expect("good")), "remembered");
    desk.authority.trim();
    assert_eq!(desk.authority.cached(), 1);
    desk.set_clock(NOW_MS + BOUNDS.ttl_ms);
    assert!(!Arc::ptr_eq(&first, &desk.ask(&token, PUT, "t").expect("good")), "verified again");
    assert_eq!(desk.authority.cached(), 1);
    desk.set_clock(NOW_MS + 2 * BOUNDS.ttl_ms);
    desk.authority.trim();
    assert_eq!(desk.authority.cached(), 0);
}

#[test]
fn a_list_that_vanishes_or_is_emptied_lets_nobody_in_again() {
    let desk = Desk::new();
    let tokens = ["a", "b"].map(|_| desk.mint(&["store:put:t"], None));
    let ids = tokens.each_ref().map(|token| inspect(token).expect("read").blocks[0].revocation_id.clone());
    let allowed = || tokens.each_ref().map(|token| desk.allows(token, PUT, "t"));
    let follow = |text: &str| desk.authority.follow(Ok(Revocations::parse(text)));
    assert_eq!((follow(""), follow("# none yet\n"), allowed()), (None, None, [true, true]), "nothing is in force yet");
    assert_eq!((follow(&ids.join("\n")), allowed()), (None, [false, false]));
    let lists =
        [Ok(Revocations::default()), Ok(Revocations::parse("\n")), Ok(Revocations::parse("# Revoked tokens\n"))];
    for list in lists.into_iter().chain([Err(io::Error::other("no"))]) {
        let problem = desk.authority.follow(list).expect("not believed");
        assert!(problem.contains("in force"), "{problem}");
        assert_eq!(allowed(), [false, false], "{problem}");
    }
    let cut = follow(&ids[0][1..]).expect("half a line");
    assert!(cut.contains("line 1") && allowed() == [false, false], "{cut}");
    assert_eq!((follow(&ids[0]), allowed()), (None, [false, true]), "one of several can be taken off the list");
    assert_eq!((follow(&ids.join("\n")), allowed()), (None, [false, false]));
}

#[test]
fn a_list_that_is_being_written_revokes_and_takes_nothing_back() {
    let desk = Desk::new();
    let tokens = ["a", "b"].map(|_| desk.mint(&["store:put:t"], None));
    let ids = tokens.each_ref().map(|token| inspect(token).expect("read").blocks[0].revocation_id.clone());
    let allowed = || tokens.each_ref().map(|token| desk.allows(token, PUT, "t"));
    let follow = |text: &str, may_be_unfinished| {
        desk.authority.follow(Ok(Revocations { may_be_unfinished, ..Revocations::parse(text) }))
    };
    assert_eq!((follow(&ids[0], true), allowed()), (None, [false, true]), "what it has is in force at once");
    assert_eq!((follow(&ids[1], true), allowed()), (None, [false, false]), "what it has not stays so");
    // Half of an id can be another one.
    assert_eq!((follow(&ids[0][..64], true), allowed()), (None, [false, false]));
    assert_eq!((follow(&ids[1], false), allowed()), (None, [true, false]), "until it is whole");
}

#[test]
fn live_tokens_are_verified_once_each_however_many_there_are() {
    let desk = Desk::new();
    let tokens: Vec<String> = (0..1100).map(|_| desk.mint(&["store:put:t"], None)).collect();
    let ask = || tokens.iter().map(|token| desk.ask(token, PUT, "t").expect("good")).collect::<Vec<_>>();
    let (first, second) = (ask(), ask());
    let again = first.iter().zip(&second).filter(|(first, second)| !Arc::ptr_eq(first, second)).count();
    assert_eq!((desk.authority.cached(), again), (1100, 0), "none is verified again");
}

#[test]
fn what_was_looked_up_before_a_revocation_or_an_expiry_is_refused_after_it() {
    let desk = Desk::new();
    let token = desk.mint(&["store:put:t"], Some(NOW_MS + 10));
    let identified = desk.authority.identify(Some(&token), false).expect("good");
    let allows = |at_ms| desk.authority.allows(&identified, PUT, "t", at_ms).map(drop).map_err(|error| error.kind);
    assert_eq!(allows(None), Ok(()));
    assert_eq!(desk.authority.allows(&identified, PUT, "u", None).expect_err("another").kind, Kind::Forbidden);
    desk.set_clock(NOW_MS + 10);
    assert_eq!((allows(None), allows(Some(NOW_MS))), (Err(Kind::Unauthenticated), Ok(())));
    desk.authority.set_revoked(["00".repeat(64)]);
    assert_eq!(allows(Some(NOW_MS)), Ok(()), "somebody else's revocation");
    desk.authority.set_revoked([inspect(&token).expect("read").blocks[0].revocation_id.clone()]);
    assert_eq!(allows(Some(NOW_MS)), Err(Kind::Unauthenticated));
}

#[test]
fn a_token_with_words_that_nobody_signed_is_refused() {
    let desk = Desk::new();
    let token = attenuate(&desk.mint(&["store:put:t"], None), &until(NOW_MS + 9)).expect("narrowed");
    let plain = schema::Biscuit::decode(&*URL_SAFE.decode(&token).expect("base64")).expect("a token");
    let written = |token: &schema::Biscuit| URL_SAFE.encode(token.encode_to_vec());
    assert!(written(&plain) == token && desk.allows(&token, PUT, "t"));
    let with_key_id = schema::Biscuit { root_key_id: Some(7), ..plain.clone() };
    let (mut with_version, mut with_block_version) = (plain.clone(), plain);
    with_version.authority.version = Some(0);
    with_block_version.blocks[0].version = Some(0);
    for other in [with_key_id, with_version, with_block_version] {
        assert_eq!(desk.ask(&written(&other), PUT, "t"), Err(Kind::Unauthenticated), "{other:?}");
    }
    assert_eq!(desk.authority.cached(), 1);
}

#[test]
fn a_block_whose_id_could_be_rewritten_is_refused() {
    let desk = Desk::new();
    let minted = UnverifiedBiscuit::from_base64(desk.mint(&["store:put:t"], None)).expect("read");
    let other = KeyPair::new_with_algorithm(Algorithm::Secp256r1);
    let token = minted.append_with_keypair(&other, BlockBuilder::new()).and_then(|token| token.to_base64());
    assert_eq!(desk.ask(&token.expect("appended"), PUT, "t"), Err(Kind::Unauthenticated));
}
