//! What tokens allow, beside the verdicts of the engine that their language comes with.

use std::time::Duration;

use biscuit_auth::builder::{AuthorizerBuilder, fact, int, string};
use biscuit_auth::{AuthorizerLimits, Biscuit};
use proptest::prelude::*;

use super::*;
use crate::ResourceScope;

const RESOURCES: [&str; 6] = ["a", "a.b", "a.b.c", "ab", "b", ""];

fn any_rights() -> impl Strategy<Value = Vec<Right>> {
    let scope = proptest::sample::select(vec!["a", "a*", "a.*", "a.b.*", "ab", "b*", "*"]);
    let scope = scope.prop_map(|text| text.parse::<ResourceScope>().expect("valid"));
    let right = (proptest::sample::select(ALL.to_vec()), scope).prop_map(|(action, scope)| Right::new(action, scope));
    proptest::collection::vec(right, 1..6)
}

/// No rights means that only the expiry is narrowed.
fn any_narrowing() -> impl Strategy<Value = Narrowing> {
    let rights = prop_oneof![1 => Just(vec![]), 4 => any_rights()];
    (rights, NOW_MS - 1..NOW_MS + 3).prop_map(|(rights, at_ms)| Narrowing { rights, expires_ms: Some(at_ms) })
}

/// What the language of biscuits, run by its own engine, makes of a token of ours and a request.
fn engine_allows(desk: &Desk, token: &str, action: Action, resource: &str) -> bool {
    let facts = [
        fact("operation", &[string(action.as_str())]),
        fact("resource", &[string(resource)]),
        fact("time_ms", &[int(NOW_MS as i64)]),
    ];
    let policies = [
        "allow if operation($action), resource($resource), right($action, $resource)",
        "allow if operation($action), resource($resource), right_prefix($action, $start), $resource.starts_with($start)",
        "deny if true",
    ];
    let asked = facts.into_iter().try_fold(AuthorizerBuilder::new(), AuthorizerBuilder::fact).expect("facts");
    let asked = policies.into_iter().try_fold(asked, AuthorizerBuilder::policy).expect("policies");
    // It refuses what takes a millisecond, which on a busy machine says nothing of the token.
    let asked = asked.set_limits(AuthorizerLimits { max_time: Duration::from_secs(60), ..AuthorizerLimits::default() });
    let token = Biscuit::from_base64(token, desk.authority.public_key().0).expect("signed");
    match asked.build(&token).and_then(|mut authorizer| authorizer.authorize()) {
        Ok(_) => true,
        Err(biscuit_auth::error::Token::FailedLogic(_)) => false,
        Err(error) => panic!("no verdict: {error}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// The token allows exactly what the grant and every narrowing allow, in whatever order they are asked.
    #[test]
    fn a_narrowed_token_allows_what_all_its_blocks_allow(
        rights in any_rights(),
        narrowings in proptest::collection::vec(any_narrowing(), 0..4),
        action in proptest::sample::select(ALL.to_vec()),
        resource in proptest::sample::select(RESOURCES.to_vec()),
    ) {
        let desk = Desk::new();
        let grant = Grant { subject: "ann".into(), rights, ..Grant::default() };
        let mut token = desk.authority.mint(&grant).expect("minted");
        let (mut allowed, mut allowed_before) = (Vec::new(), RESOURCES.map(|_| true));
        for narrowing in std::iter::once(None).chain(narrowings.iter().map(Some)) {
            if let Some(narrowing) = narrowing {
                token = attenuate(&token, narrowing).expect("narrowed");
                allowed.push(narrowing);
            }
            for (resource, before) in RESOURCES.into_iter().zip(&mut allowed_before) {
                let covers = |rights: &[Right]| rights.iter().any(|right| right.covers(action, resource));
                let leaves = |narrowing: &&Narrowing| {
                    (narrowing.rights.is_empty() || covers(&narrowing.rights))
                        && narrowing.expires_ms.is_none_or(|at_ms| NOW_MS < at_ms)
                };
                let verdict = desk.allows(&token, action, resource);
                let expected = covers(&grant.rights) && allowed.iter().all(leaves);
                prop_assert_eq!(verdict, expected, "{} {:?}", action, resource);
                prop_assert!(*before || !verdict, "narrowing never widens: {} {:?}", action, resource);
                *before = verdict;
            }
        }
        // The engine is slow: one resource of the whole chain stands for all.
        let engine = engine_allows(&desk, &token, action, resource);
        prop_assert_eq!(desk.allows(&token, action, resource), engine, "{} {:?}", action, resource);
    }
}
