//! Making tokens: a grant becomes the first block, a narrowing becomes one block of checks after the last.

use biscuit_auth::builder::{
    Binary, BiscuitBuilder, BlockBuilder, Check, CheckKind, Expression, Fact, Op as Step, Predicate, Rule, Term, fact,
    int, pred, string, var,
};
use biscuit_auth::{Biscuit, UnverifiedBiscuit, error};
use ron_types::limits::{CAPABILITY_BLOCKS_MAX, CAPABILITY_BYTES_MAX};

use crate::envelope::Envelope;
use crate::key::RootKey;
use crate::right::{ResourceScope, Right};
use crate::types::{AuthError, Grant, Narrowing};

/// Names of facts and checks in tokens.
pub(crate) mod name {
    pub const SUBJECT: &str = "subject";
    pub const RIGHT: &str = "right";
    pub const RIGHT_PREFIX: &str = "right_prefix";
    pub const QUOTA: &str = "quota";
    pub const OPERATION: &str = "operation";
    pub const RESOURCE: &str = "resource";
    /// Head of every alternative of a check, which says nothing.
    pub const QUERY: &str = "query";
    /// Milliseconds since 1970, so that an expiry is exact.
    pub const TIME_MS: &str = "time_ms";
}

/// A new token.
pub(crate) fn mint(key: &RootKey, grant: &Grant) -> Result<String, AuthError> {
    grant.validate()?;
    let mut builder: BiscuitBuilder = Biscuit::builder();
    for fact in facts(grant) {
        builder = builder.fact(fact).map_err(refused)?;
    }
    if let Some(expires_ms) = grant.expires_ms {
        builder = builder.check(until(expires_ms)?).map_err(refused)?;
    }
    let token = builder.build(key.pair()).and_then(|token| token.to_base64()).map_err(refused)?;
    if token.len() > CAPABILITY_BYTES_MAX {
        return Err(AuthError::TooLarge("the token for so many rights"));
    }
    Ok(token)
}

/// A token that allows what the given one allows, as far as the narrowing allows it too. Needs no key.
pub fn attenuate(token: &str, narrower: &Narrowing) -> Result<String, AuthError> {
    narrower.validate()?;
    let mut block = BlockBuilder::new();
    for check in checks(narrower)? {
        block = block.check(check).map_err(refused)?;
    }
    // A node would refuse what comes of a token it refuses; better told here than there.
    if Envelope::open(token)?.contents()?.narrowings.len() + 2 > CAPABILITY_BLOCKS_MAX {
        return Err(AuthError::TooMany { what: "blocks", max: CAPABILITY_BLOCKS_MAX });
    }
    let parent = UnverifiedBiscuit::from_base64(token).map_err(refused)?;
    let narrowed = parent.append(block).and_then(|token| token.to_base64()).map_err(refused)?;
    if narrowed.len() > CAPABILITY_BYTES_MAX {
        return Err(AuthError::TooLarge("a token narrowed so often"));
    }
    Ok(narrowed)
}

fn facts(grant: &Grant) -> Vec<Fact> {
    let limit = |(name, value): (&String, &u64)| {
        fact(name::QUOTA, &[string(name), int(i64::try_from(*value).unwrap_or(i64::MAX))])
    };
    let subject = fact(name::SUBJECT, &[string(&grant.subject)]);
    let rights = grant.rights.iter().map(right);
    std::iter::once(subject).chain(rights).chain(grant.limits.iter().map(limit)).collect()
}

fn right(right: &Right) -> Fact {
    let (name, resource) = match &right.scope {
        ResourceScope::Exact(resource) => (name::RIGHT, resource.as_str()),
        ResourceScope::Prefix(start) => (name::RIGHT_PREFIX, start.as_str()),
        ResourceScope::Any => (name::RIGHT_PREFIX, ""),
    };
    fact(name, &[string(&right.action), string(resource)])
}

/// One check whose alternatives are pairs of operation and resource, and one for the expiry. Two checks, one for the
/// operations and one for the resources, would allow every operation of the list on every resource of it.
fn checks(narrower: &Narrowing) -> Result<Vec<Check>, AuthError> {
    let within = (!narrower.rights.is_empty()).then(|| any_of(narrower.rights.iter().map(within).collect()));
    let until = narrower.expires_ms.map(until).transpose()?;
    Ok(within.into_iter().chain(until).collect())
}

fn within(right: &Right) -> Rule {
    let operation = pred(name::OPERATION, &[string(&right.action)]);
    match &right.scope {
        ResourceScope::Exact(name) => query(vec![operation, pred(name::RESOURCE, &[string(name)])], vec![]),
        ResourceScope::Prefix(start) => {
            let resource = pred(name::RESOURCE, &[var("resource")]);
            let starts_with = compare(var("resource"), string(start), Binary::Prefix);
            query(vec![operation, resource], vec![starts_with])
        }
        ResourceScope::Any => query(vec![operation], vec![]),
    }
}

/// The one form of expiry there is.
fn until(expires_ms: u64) -> Result<Check, AuthError> {
    let expires_ms = i64::try_from(expires_ms).map_err(|_| AuthError::TooLarge("the expiry"))?;
    let is_before = compare(var("now"), int(expires_ms), Binary::LessThan);
    Ok(any_of(vec![query(vec![pred(name::TIME_MS, &[var("now")])], vec![is_before])]))
}

fn compare(left: Term, right: Term, by: Binary) -> Expression {
    Expression { ops: vec![Step::Value(left), Step::Value(right), Step::Binary(by)] }
}

fn query(predicates: Vec<Predicate>, expressions: Vec<Expression>) -> Rule {
    let nothing: &[Term] = &[];
    Rule::new(pred(name::QUERY, nothing), predicates, expressions, vec![])
}

fn any_of(queries: Vec<Rule>) -> Check {
    Check { queries, kind: CheckKind::One }
}

pub(crate) fn refused(error: error::Token) -> AuthError {
    match error {
        error::Token::AppendOnSealed => AuthError::Sealed,
        error::Token::Format(format) => AuthError::Malformed(format.to_string()),
        error => AuthError::Malformed(error.to_string()),
    }
}
