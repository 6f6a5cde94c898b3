//! One token whose signatures hold: what it says about its bearer, and what its rules say about a request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use biscuit_auth::builder::{AuthorizerBuilder, Term, fact, int, string};
use biscuit_auth::format::schema::public_key::Algorithm;
use biscuit_auth::{Authorizer, AuthorizerLimits, Biscuit, error};
use ron_types::{Error, Kind, limits};

use crate::capabilities::Action;
use crate::key::PublicKey;
use crate::token::{expiry_in, name};
use crate::types::Subject;

/// Who may do what: only the first block and the node itself can state a right, whatever later blocks say.
const POLICIES: [&str; 3] = [
    "allow if operation($action), resource($resource), right($action, $resource)",
    "allow if operation($action), resource($resource), right_prefix($action, $start), $resource.starts_with($start)",
    "deny if true",
];

/// The questions put to every token, ready to be filled in.
pub struct Examiner {
    template: AuthorizerBuilder,
    key: PublicKey,
}

/// A token whose signatures were verified.
pub struct Verified {
    token: Biscuit,
    /// Who bears it; its expiry is the earliest of all blocks.
    pub subject: Arc<Subject>,
    /// Revocation ids of all blocks in small hex digits, the minted one first.
    pub ids: Vec<String>,
    /// True if time matters to it only through the expiry of its subject, so that a verdict holds until then.
    pub is_steady: bool,
}

/// What the rules of a token say about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// It is allowed or not, and always will be as long as the token is good.
    Firm(bool),
    /// Not now, for this reason; asking again may give another answer.
    Refused(Error),
}

impl Examiner {
    /// Examines tokens signed by this key, within the limits of the node.
    pub fn new(key: PublicKey) -> Self {
        Examiner::with_limits(
            key,
            AuthorizerLimits {
                max_facts: limits::CAPABILITY_RULES_FACTS_MAX,
                max_iterations: limits::CAPABILITY_RULES_ROUNDS_MAX,
                max_time: limits::CAPABILITY_RULES_TIME_MAX,
            },
        )
    }

    /// Examines tokens signed by this key within other limits.
    pub fn with_limits(key: PublicKey, limits: AuthorizerLimits) -> Self {
        let add = |template: AuthorizerBuilder, policy: &str| template.policy(policy).expect("the policies are valid");
        let template = POLICIES.into_iter().fold(AuthorizerBuilder::new().set_limits(limits), add);
        Examiner { template, key }
    }

    /// Verifies the signatures of a token and reads what it says about its bearer.
    pub fn verify(&self, text: &str) -> Result<Verified, Error> {
        let token = signed_by(self.key, text)?;
        let invalid = |_| unauthenticated(INVALID);
        let ids = token.revocation_identifiers().iter().map(|id| hex(id)).collect();
        let (expires_ms, is_steady) = expiry(&token).map_err(invalid)?;
        let mut authorizer = self.template.clone().build(&token).map_err(invalid)?;
        let subject = Arc::new(bearer(&mut authorizer, expires_ms).map_err(refusal)?);
        Ok(Verified { token, subject, ids, is_steady })
    }

    /// Lets the rules of a token decide about a request at this time.
    pub fn rule(&self, verified: &Verified, action: Action, resource: &str, at_ms: u64) -> Ruling {
        match self.decide(verified, action, resource, at_ms) {
            Ok(_) => Ruling::Firm(true),
            Err(error::Token::FailedLogic(logic)) if depends_on_time(&logic) => {
                Ruling::Refused(unauthenticated("the token is not good at this time"))
            }
            Err(error::Token::FailedLogic(_)) => Ruling::Firm(false),
            Err(error) => Ruling::Refused(refusal(error)),
        }
    }

    fn decide(&self, verified: &Verified, action: Action, resource: &str, at_ms: u64) -> Result<usize, error::Token> {
        let now_ms = i64::try_from(at_ms).unwrap_or(i64::MAX);
        let facts = [
            fact(name::OPERATION, &[string(action.as_str())]),
            fact(name::RESOURCE, &[string(resource)]),
            fact(name::TIME, &[Term::Date(Duration::from_millis(at_ms).as_secs())]),
            fact(name::TIME_MS, &[int(now_ms)]),
        ];
        let builder = facts.into_iter().try_fold(self.template.clone(), AuthorizerBuilder::fact)?;
        builder.build(&verified.token)?.authorize()
    }
}

const INVALID: &str = "the token is not one of this node, or it is damaged";

/// Reads a token whose signatures hold under this key.
pub(crate) fn signed_by(key: PublicKey, text: &str) -> Result<Biscuit, Error> {
    let token = Biscuit::from_base64(text, key.0).map_err(|_| unauthenticated(INVALID))?;
    // The wrapping of the blocks can be written in more ways than one; a token is good in one way only.
    if token.to_base64().map_err(|_| unauthenticated(INVALID))? != text {
        return Err(unauthenticated("the token is not written as this node writes it"));
    }
    if !has_only_unforgeable_ids(&token) {
        return Err(unauthenticated("the token has a block signed with other than Ed25519"));
    }
    Ok(token)
}

/// Who bears the token, as its first block says.
fn bearer(authorizer: &mut Authorizer, expires_ms: Option<u64>) -> Result<Subject, error::Token> {
    let subjects: Vec<(String,)> = authorizer.query("data($name) <- subject($name)")?;
    let quotas: Vec<(String, i64)> = authorizer.query("data($name, $value) <- quota($name, $value)")?;
    let mut limits = BTreeMap::new();
    for (name, value) in quotas {
        // Of a limit stated twice the smaller holds; a negative one, which no node writes, lets nothing through.
        let value = u64::try_from(value).unwrap_or(0);
        limits.entry(name).and_modify(|other: &mut u64| *other = value.min(*other)).or_insert(value);
    }
    let (name,) = subjects.into_iter().min().unwrap_or_default();
    Ok(Subject { limits, expires_ms, ..Subject::named(&name) })
}

/// The earliest expiry of all blocks, and whether that is all that the token says about time.
fn expiry(token: &Biscuit) -> Result<(Option<u64>, bool), error::Token> {
    let (mut expires_ms, mut is_steady) = (None, true);
    for index in 0..token.block_count() {
        let source = token.print_block_source(index)?;
        let stated: Vec<u64> = source.lines().filter_map(expiry_in).collect();
        is_steady &= mentions_of_time(&source) == stated.len();
        expires_ms = stated.into_iter().chain(expires_ms).min();
    }
    Ok((expires_ms, is_steady))
}

/// How often a text of rules may ask for the time; a string that only looks like it counts too, which costs no more
/// than a verdict that is not remembered.
fn mentions_of_time(source: &str) -> usize {
    [name::TIME, name::TIME_MS].into_iter().map(|name| source.matches(&format!("{name}(")).count()).sum()
}

/// Signatures of other kinds can be rewritten by anybody into others that hold as well, and with them the revocation
/// id; Ed25519, verified strictly, has one signature for each signing.
fn has_only_unforgeable_ids(token: &Biscuit) -> bool {
    let proto = token.container().to_proto();
    let is_ed25519 = |algorithm: i32| algorithm == Algorithm::Ed25519 as i32;
    std::iter::once(&proto.authority).chain(&proto.blocks).all(|block| is_ed25519(block.next_key.algorithm))
}

fn depends_on_time(logic: &error::Logic) -> bool {
    let (error::Logic::Unauthorized { checks, .. } | error::Logic::NoMatchingPolicy { checks }) = logic else {
        return false;
    };
    checks.iter().any(|check| mentions_of_time(&check.to_string()) > 0)
}

fn refusal(error: error::Token) -> Error {
    let why = match error {
        error::Token::RunLimit(error::RunLimit::Timeout) => "they take too long".to_owned(),
        error::Token::RunLimit(error::RunLimit::TooManyFacts) => "they make too many facts".to_owned(),
        error::Token::RunLimit(error::RunLimit::TooManyIterations) => "they take too many rounds".to_owned(),
        error::Token::Execution(cause) => cause.to_string(),
        error => error.to_string(),
    };
    Error::new(Kind::Forbidden, format!("the rules of the token cannot be evaluated: {why}"))
}

pub(crate) fn unauthenticated(detail: &'static str) -> Error {
    Error::new(Kind::Unauthenticated, detail)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = |byte: &u8| [DIGITS[usize::from(byte >> 4)] as char, DIGITS[usize::from(byte & 15)] as char];
    bytes.iter().flat_map(digits).collect()
}
