//! Capabilities from mint to verdict: every refusal, the memory of verdicts, and what later blocks cannot do.

use std::sync::atomic::{AtomicU64, Ordering};

use biscuit_auth::builder::BlockBuilder;
use biscuit_auth::{Algorithm, AuthorizerLimits, KeyPair, UnverifiedBiscuit};
use proptest::prelude::*;

use super::*;
use crate::{Narrowing, TopicScope, attenuate, inspect};

const NOW_MS: u64 = 1_800_000_000_000;
const OPERATOR: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

struct Desk {
    authority: Authority,
    clock: Arc<AtomicU64>,
}

impl Desk {
    fn new() -> Self {
        Desk::with(BOUNDS, Examiner::new)
    }

    fn with(bounds: Bounds, examiner: impl FnOnce(PublicKey) -> Examiner) -> Self {
        let root = RootKey::from_hex(&"0123456789abcdef".repeat(4)).expect("valid");
        let examiner = examiner(root.public());
        let clock = Arc::new(AtomicU64::new(NOW_MS));
        let read = Arc::clone(&clock);
        let read = Box::new(move || read.load(Ordering::Relaxed));
        Desk { authority: Authority::assemble(root, Some(OPERATOR), read, examiner, bounds), clock }
    }

    fn ask(&self, token: &str, op: Op, topic: &str) -> Result<Arc<Subject>, Kind> {
        self.authority.authorize(Some(token), op, topic, None).map_err(|error| error.kind)
    }

    fn allows(&self, token: &str, op: Op, topic: &str) -> bool {
        self.ask(token, op, topic).is_ok()
    }

    fn set_clock(&self, now_ms: u64) {
        self.clock.store(now_ms, Ordering::Relaxed);
    }

    fn mint(&self, ops: &[Op], topics: &[&str], expires_ms: Option<u64>) -> String {
        self.authority.mint(&grant(ops, topics, expires_ms)).expect("minted")
    }
}

fn scopes(topics: &[&str]) -> Vec<TopicScope> {
    topics.iter().map(|topic| topic.parse().expect("valid")).collect()
}

fn grant(ops: &[Op], topics: &[&str], expires_ms: Option<u64>) -> Grant {
    Grant { subject: "ann".into(), ops: ops.to_vec(), topics: scopes(topics), expires_ms, ..Grant::default() }
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
fn a_token_allows_its_operations_on_its_topics_and_nothing_else() {
    let desk = Desk::new();
    let token = desk.mint(&[Op::Send, Op::Ack], &["orders", "jobs.*"], None);
    for (op, topic, expected) in [
        (Op::Send, "orders", true),
        (Op::Ack, "orders", true),
        (Op::Recv, "orders", false),
        (Op::Admin, "orders", false),
        (Op::Send, "orders2", false),
        (Op::Send, "order", false),
        (Op::Send, "jobs.a", true),
        (Op::Send, "jobs.a.b", true),
        (Op::Send, "jobs", false),
        (Op::Send, "jobsx", false),
        (Op::Send, "", false),
        (Op::Nack, "jobs.a", false),
    ] {
        for round in ["first", "remembered"] {
            let verdict = desk.ask(&token, op, topic).map(|subject| subject.name.to_string());
            let expected = if expected { Ok("ann".to_owned()) } else { Err(Kind::Forbidden) };
            assert_eq!(verdict, expected, "{op} {topic:?} {round}");
        }
    }
}

#[test]
fn a_right_on_every_topic_covers_the_node_as_a_whole() {
    let desk = Desk::new();
    let token = desk.mint(&[Op::Admin], &["*"], None);
    assert!(desk.allows(&token, Op::Admin, "") && desk.allows(&token, Op::Admin, "x"));
}

#[test]
fn quotas_and_expiry_reach_the_subject() {
    let desk = Desk::new();
    let plain = grant(&[Op::Send], &["t"], Some(NOW_MS + 5));
    let token = desk
        .authority
        .mint(&Grant { sends_per_second: Some(7), payload_bytes_max: Some(u32::MAX), ..plain })
        .expect("ok");
    let expected = Subject {
        name: "ann".into(),
        sends_per_second: Some(7),
        payload_bytes_max: Some(u32::MAX),
        expires_ms: Some(NOW_MS + 5),
        is_operator: false,
    };
    assert_eq!(desk.ask(&token, Op::Send, "t").as_deref(), Ok(&expected));
    let narrowed = attenuate(&token, &until(NOW_MS + 3)).expect("narrowed");
    assert_eq!(desk.ask(&narrowed, Op::Send, "t").expect("good").expires_ms, Some(NOW_MS + 3));
    let later = attenuate(&token, &until(NOW_MS + 9)).expect("narrowed");
    assert_eq!(desk.ask(&later, Op::Send, "t").expect("good").expires_ms, Some(NOW_MS + 5));
}

#[test]
fn without_a_good_token_there_is_no_subject() {
    let desk = Desk::new();
    let strange = Authority::new(RootKey::generate(), None, || NOW_MS).mint(&grant(&[Op::Send], &["t"], None));
    let (strange, long) = (strange.expect("minted"), "A".repeat(limits::CAPABILITY_BYTES_MAX + 1));
    let nearly = OPERATOR.replace('f', "e");
    for bearer in [None, Some(""), Some("token"), Some("ü"), Some(&*strange), Some(&*long), Some(&*nearly)] {
        let error = desk.authority.authorize(bearer, Op::Send, "t", None).expect_err("refused");
        assert_eq!(error.kind, Kind::Unauthenticated, "{bearer:?}");
        assert!(bearer.is_none_or(|bearer| bearer.len() < 9 || !error.detail.contains(bearer)), "{error}");
    }
    assert_eq!(desk.authority.cached(), 0);
}

#[test]
fn the_operator_may_do_everything() {
    let desk = Desk::new();
    for op in Op::ALL {
        assert!(desk.ask(OPERATOR, op, "any").is_ok_and(|subject| subject.is_operator), "{op}");
    }
    let nobody = Authority::new(RootKey::generate(), None, || NOW_MS);
    for bearer in [OPERATOR, ""] {
        assert!(nobody.authorize(Some(bearer), Op::Send, "t", None).is_err(), "{bearer:?}");
    }
}

#[test]
fn a_token_with_any_byte_changed_does_not_verify() {
    let desk = Desk::new();
    let minted = desk.mint(&[Op::Send], &["t"], Some(NOW_MS + 1000));
    let token = attenuate(&minted, &until(NOW_MS + 500)).expect("narrowed");
    assert!(desk.allows(&token, Op::Send, "t"));
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    for position in 0..token.len() {
        let byte = token.as_bytes()[position];
        let place = ALPHABET.iter().position(|letter| *letter == byte).unwrap_or(0);
        let others = [ALPHABET[place ^ (1 << (position % 6))], b'=', b'\n'];
        for other in others.into_iter().filter(|other| *other != byte) {
            let mut tampered = token.clone().into_bytes();
            tampered[position] = other;
            let tampered = String::from_utf8(tampered).expect("ASCII");
            let verdict = desk.ask(&tampered, Op::Send, "t");
            assert_eq!(verdict, Err(Kind::Unauthenticated), "{} at {position}", other as char);
            let _ = inspect(&tampered);
        }
        assert_eq!(desk.ask(&token[..position], Op::Send, "t"), Err(Kind::Unauthenticated), "cut at {position}");
    }
}

#[test]
fn expiry_is_exact_whether_remembered_or_not() {
    let desk = Desk::new();
    let minted = desk.mint(&[Op::Send], &["t"], Some(NOW_MS + 1500));
    let narrowed = attenuate(&desk.mint(&[Op::Send], &["t"], None), &until(NOW_MS + 1500)).expect("narrowed");
    for token in [minted, narrowed] {
        desk.set_clock(NOW_MS);
        assert!(desk.allows(&token, Op::Send, "t"));
        for _ in ["remembered", "afresh"] {
            desk.set_clock(NOW_MS + 1499);
            assert!(desk.allows(&token, Op::Send, "t"));
            desk.set_clock(NOW_MS + 1500);
            assert_eq!(desk.ask(&token, Op::Send, "t"), Err(Kind::Unauthenticated));
            desk.authority.trim();
            assert_eq!(desk.authority.cached(), 0);
        }
    }
}

#[test]
fn what_was_begun_before_expiry_can_be_ended_after_it() {
    let desk = Desk::new();
    let token = desk.mint(&[Op::Ack], &["t"], Some(NOW_MS + 10));
    let ack = |at_ms| desk.authority.authorize(Some(&token), Op::Ack, "t", at_ms).map(drop).map_err(|error| error.kind);
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

#[test]
fn later_blocks_cannot_widen() {
    let desk = Desk::new();
    let token = desk.mint(&[Op::Send], &["t"], Some(NOW_MS + 10));
    for code in [
        r#"right("send", "secret"); right("recv", "t"); right_prefix("send", "");"#,
        r#"right("send", $topic) <- topic($topic);"#,
        r#"operation("send"); topic("t"); time_ms(0); subject("operator");"#,
        r#"right_prefix($op, "") <- operation($op); quota("sends_per_second", 1000000);"#,
    ] {
        let widened = append(&token, code);
        assert_eq!(desk.ask(&widened, Op::Send, "secret"), Err(Kind::Forbidden), "{code}");
        assert_eq!(desk.ask(&widened, Op::Recv, "t"), Err(Kind::Forbidden), "{code}");
        let subject = desk.ask(&widened, Op::Send, "t").expect("still good");
        assert_eq!((&*subject.name, subject.sends_per_second), ("ann", None), "{code}");
        desk.set_clock(NOW_MS + 10);
        assert_eq!(desk.ask(&widened, Op::Send, "t"), Err(Kind::Unauthenticated), "{code}");
        desk.set_clock(NOW_MS);
    }
}

const TOPICS: [&str; 6] = ["a", "a.b", "a.b.c", "ab", "b", ""];

fn any_scopes() -> impl Strategy<Value = Vec<TopicScope>> {
    let one = proptest::sample::select(vec!["a", "a*", "a.*", "a.b.*", "ab", "b*", "*"]);
    proptest::collection::vec(one.prop_map(|text| text.parse().expect("valid")), 1..3)
}

fn any_ops() -> impl Strategy<Value = Vec<Op>> {
    proptest::sample::subsequence(Op::ALL.to_vec(), 1..=5)
}

fn any_narrowing() -> impl Strategy<Value = Narrowing> {
    (any_ops(), any_scopes(), NOW_MS - 1..NOW_MS + 3).prop_map(|(ops, topics, at_ms)| Narrowing {
        ops,
        topics,
        expires_ms: Some(at_ms),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// The token allows exactly what the grant and every narrowing allow, in whatever order they are asked.
    #[test]
    fn a_narrowed_token_allows_what_all_its_blocks_allow(
        ops in any_ops(),
        topics in any_scopes(),
        narrowings in proptest::collection::vec(any_narrowing(), 0..4),
        op in proptest::sample::select(Op::ALL.to_vec()),
    ) {
        let desk = Desk::new();
        let grant = Grant { subject: "ann".into(), ops, topics, ..Grant::default() };
        let mut token = desk.authority.mint(&grant).expect("minted");
        for narrowing in &narrowings {
            token = attenuate(&token, narrowing).expect("narrowed");
        }
        for topic in TOPICS {
            let covers = |ops: &[Op], topics: &[TopicScope]| {
                ops.contains(&op) && topics.iter().any(|scope| scope.covers(topic))
            };
            let expected = covers(&grant.ops, &grant.topics)
                && narrowings.iter().all(|n| covers(&n.ops, &n.topics) && n.expires_ms.is_none_or(|at| NOW_MS < at));
            prop_assert_eq!(desk.allows(&token, op, topic), expected, "{} {:?}", op, topic);
        }
    }
}

#[test]
fn a_revocation_kills_a_token_and_its_children_at_once() {
    let desk = Desk::new();
    let parent = desk.mint(&[Op::Send], &["t"], None);
    let child = attenuate(&parent, &until(NOW_MS + 9)).expect("narrowed");
    let grandchild = attenuate(&child, &until(NOW_MS + 8)).expect("narrowed");
    let stranger = desk.mint(&[Op::Send], &["t"], None);
    let tokens = [&parent, &child, &grandchild, &stranger];
    let ids: Vec<String> =
        inspect(&grandchild).expect("read").blocks.into_iter().map(|block| block.revocation_id).collect();
    let allowed = || tokens.map(|token| desk.allows(token, Op::Send, "t"));
    assert_eq!(allowed(), [true; 4], "all are remembered now");
    desk.authority.set_revoked([ids[1].to_uppercase()]);
    assert_eq!(desk.authority.cached(), 2, "only what it concerns is forgotten");
    assert_eq!(allowed(), [true, false, false, true]);
    desk.authority.set_revoked([ids[0].clone()]);
    assert_eq!(allowed(), [false, false, false, true]);
    assert_eq!(desk.ask(&child, Op::Send, "t"), Err(Kind::Unauthenticated));
    desk.authority.set_revoked([]);
    assert_eq!(allowed(), [true; 4], "the list is replaced as a whole");
}

#[test]
fn a_verdict_is_remembered_for_its_time_and_no_longer() {
    let desk = Desk::new();
    let token = desk.mint(&[Op::Send], &["t"], None);
    let first = desk.ask(&token, Op::Send, "t").expect("good");
    assert_eq!(desk.ask(&token, Op::Send, "u"), Err(Kind::Forbidden));
    assert_eq!(desk.authority.cached(), 2, "a refusal is remembered as well");
    desk.set_clock(NOW_MS + BOUNDS.ttl_ms - 1);
    assert!(Arc::ptr_eq(&first, &desk.ask(&token, Op::Send, "t").expect("good")), "remembered");
    desk.authority.trim();
    assert_eq!(desk.authority.cached(), 2);
    desk.set_clock(NOW_MS + BOUNDS.ttl_ms);
    assert!(!Arc::ptr_eq(&first, &desk.ask(&token, Op::Send, "t").expect("good")), "verified again");
    assert_eq!(desk.authority.cached(), 1);
    desk.set_clock(NOW_MS + 2 * BOUNDS.ttl_ms);
    desk.authority.trim();
    assert_eq!(desk.authority.cached(), 0);
}

#[test]
fn one_token_cannot_push_out_another() {
    let desk = Desk::with(Bounds { topics_per_token_max: 4, ..BOUNDS }, Examiner::new);
    let (quiet, noisy) = (desk.mint(&[Op::Send], &["*"], None), desk.mint(&[Op::Send], &["*"], None));
    let first = desk.ask(&quiet, Op::Send, "t").expect("good");
    for number in 0..10 {
        assert!(desk.allows(&noisy, Op::Send, &format!("t{number}")));
    }
    assert_eq!(desk.authority.cached(), 5);
    assert!(Arc::ptr_eq(&first, &desk.ask(&quiet, Op::Send, "t").expect("good")));
}

#[test]
fn a_check_on_time_that_others_wrote_is_asked_every_time() {
    let desk = Desk::new();
    let minted = desk.mint(&[Op::Send], &["t"], None);
    // 2027-01-15T08:00:10Z is ten seconds from NOW_MS.
    let token = append(&minted, "check if time($now), $now < 2027-01-15T08:00:10Z;");
    assert!(desk.allows(&token, Op::Send, "t"));
    assert_eq!(desk.authority.cached(), 0);
    desk.set_clock(NOW_MS + 10_000);
    assert_eq!(desk.ask(&token, Op::Send, "t"), Err(Kind::Unauthenticated));
    let either = append(&minted, &format!("check if time_ms($now), $now < {NOW_MS} or operation(\"send\");"));
    assert!(desk.allows(&either, Op::Send, "t"));
    assert_eq!(desk.authority.cached(), 0);
}

#[test]
fn rules_beyond_the_limits_are_a_refusal_with_its_reason() {
    let desk = Desk::new();
    let minted = desk.mint(&[Op::Send], &["t"], None);
    let facts: String = (0..40).map(|number| format!("n({number}); ")).collect();
    let rounds = "n(0); n($next) <- n($last), $next == $last + 1;";
    let looped = append(&minted, r#"n(0, 0); n($b, $a) <- n($a, $b); check if operation("send");"#);
    assert!(desk.allows(&looped, Op::Send, "t"), "rules that come to an end are allowed");
    let crowded = append(&minted, &format!("{facts} pair($a, $b) <- n($a), n($b);"));
    let error = desk.authority.authorize(Some(&crowded), Op::Send, "t", None).expect_err("refused");
    assert_eq!(error.kind, Kind::Forbidden);
    assert!(error.detail.contains("too many facts"), "{error}");
    assert!(BlockBuilder::new().code(rounds).is_err(), "a rule cannot count: {rounds}");
    let overflowing = append(&minted, "check if 9223372036854775807 + 1 > 0;");
    assert_eq!(desk.ask(&overflowing, Op::Send, "t"), Err(Kind::Forbidden));

    let chain = (0..9).map(|step| format!("s{}($x) <- s{step}($x); ", step + 1)).collect::<String>();
    let chained = append(&minted, &format!("s0(1); {chain} check if s9(1);"));
    assert!(desk.allows(&chained, Op::Send, "t"));
    let limits = AuthorizerLimits { max_facts: 1000, max_iterations: 5, max_time: limits::CAPABILITY_RULES_TIME_MAX };
    let hasty = Desk::with(BOUNDS, |key| Examiner::with_limits(key, limits));
    let error = hasty.authority.authorize(Some(&chained), Op::Send, "t", None).expect_err("refused");
    assert!(error.detail.contains("too many rounds"), "{error}");
    assert_eq!(hasty.authority.cached(), 0);
    assert!(hasty.allows(&minted, Op::Send, "t"));
}

#[test]
fn a_block_whose_id_could_be_rewritten_is_refused() {
    let desk = Desk::new();
    let minted = UnverifiedBiscuit::from_base64(desk.mint(&[Op::Send], &["t"], None)).expect("read");
    let other = KeyPair::new_with_algorithm(Algorithm::Secp256r1);
    let token = minted.append_with_keypair(&other, BlockBuilder::new()).and_then(|token| token.to_base64());
    assert_eq!(desk.ask(&token.expect("appended"), Op::Send, "t"), Err(Kind::Unauthenticated));
}
