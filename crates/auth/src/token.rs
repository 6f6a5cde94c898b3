//! Making tokens: a grant becomes the first block, a narrowing becomes one block of checks after the last.

use biscuit_auth::builder::{
    BiscuitBuilder, BlockBuilder, Check, CheckKind, Expression, Fact, Op as Step, Predicate, Rule, Term, fact, int,
    pred, string, var,
};
use biscuit_auth::{Biscuit, UnverifiedBiscuit, error};
use ron_types::limits::CAPABILITY_BYTES_MAX;

use crate::key::RootKey;
use crate::types::{AuthError, Grant, Narrowing, Op, TopicScope};

/// Names of facts and checks in tokens.
pub(crate) mod name {
    pub const SUBJECT: &str = "subject";
    pub const RIGHT: &str = "right";
    pub const RIGHT_PREFIX: &str = "right_prefix";
    pub const QUOTA: &str = "quota";
    pub const SENDS_PER_SECOND: &str = "sends_per_second";
    pub const PAYLOAD_BYTES_MAX: &str = "payload_bytes_max";
    pub const OPERATION: &str = "operation";
    pub const TOPIC: &str = "topic";
    /// Whole seconds, as the tools of others write it.
    pub const TIME: &str = "time";
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
        return Err(AuthError::TooLarge("the token for so many operations and topics"));
    }
    Ok(token)
}

/// A token that allows what the given one allows, as far as the narrowing allows it too. Needs no key.
pub fn attenuate(token: &str, narrower: &Narrowing) -> Result<String, AuthError> {
    narrower.topics.iter().try_for_each(TopicScope::validate)?;
    let checks = checks(narrower)?;
    if checks.is_empty() {
        return Err(AuthError::Empty("say what to narrow the token to: operations, topics or an expiry"));
    }
    let mut block = BlockBuilder::new();
    for check in checks {
        block = block.check(check).map_err(refused)?;
    }
    let narrowed = parse(token)?.append(block).and_then(|token| token.to_base64()).map_err(refused)?;
    if narrowed.len() > CAPABILITY_BYTES_MAX {
        return Err(AuthError::TooLarge("a token narrowed so often"));
    }
    Ok(narrowed)
}

/// Reads a token without verifying it.
pub(crate) fn parse(token: &str) -> Result<UnverifiedBiscuit, AuthError> {
    if token.len() > CAPABILITY_BYTES_MAX {
        return Err(AuthError::Malformed(format!("it is longer than {CAPABILITY_BYTES_MAX} bytes")));
    }
    UnverifiedBiscuit::from_base64(token).map_err(refused)
}

fn facts(grant: &Grant) -> Vec<Fact> {
    let mut facts = vec![fact(name::SUBJECT, &[string(&grant.subject)])];
    for topic in &grant.topics {
        facts.extend(grant.ops.iter().map(|op| right(*op, topic)));
    }
    let quotas = [(name::SENDS_PER_SECOND, grant.sends_per_second), (name::PAYLOAD_BYTES_MAX, grant.payload_bytes_max)];
    let quotas = quotas.into_iter().filter_map(|(quota, value)| Some((quota, value?)));
    facts.extend(quotas.map(|(quota, value)| fact(name::QUOTA, &[string(quota), int(value.into())])));
    facts
}

fn right(op: Op, topic: &TopicScope) -> Fact {
    let (name, topic) = match topic {
        TopicScope::Exact(topic) => (name::RIGHT, topic.as_str()),
        TopicScope::Prefix(start) => (name::RIGHT_PREFIX, start.as_str()),
        TopicScope::Any => (name::RIGHT_PREFIX, ""),
    };
    fact(name, &[string(op.as_str()), string(topic)])
}

fn checks(narrower: &Narrowing) -> Result<Vec<Check>, AuthError> {
    let mut checks = Vec::new();
    if !narrower.ops.is_empty() {
        let operation = |op: &Op| query(pred(name::OPERATION, &[string(op.as_str())]), vec![]);
        checks.push(any_of(narrower.ops.iter().map(operation).collect()));
    }
    // Where any topic is allowed there is nothing to check.
    if !narrower.topics.is_empty() && !narrower.topics.contains(&TopicScope::Any) {
        checks.push(any_of(narrower.topics.iter().map(within).collect()));
    }
    if let Some(expires_ms) = narrower.expires_ms {
        checks.push(until(expires_ms)?);
    }
    Ok(checks)
}

fn within(scope: &TopicScope) -> Rule {
    match scope {
        TopicScope::Exact(topic) => query(pred(name::TOPIC, &[string(topic)]), vec![]),
        TopicScope::Prefix(start) => starts_with(start),
        TopicScope::Any => starts_with(""),
    }
}

fn starts_with(start: &str) -> Rule {
    let ops = vec![
        Step::Value(var("topic")),
        Step::Value(string(start)),
        Step::Binary(biscuit_auth::builder::Binary::Prefix),
    ];
    query(pred(name::TOPIC, &[var("topic")]), vec![Expression { ops }])
}

/// The one form of expiry that this crate writes; [`expiry_in`] reads it back.
fn until(expires_ms: u64) -> Result<Check, AuthError> {
    let expires_ms = i64::try_from(expires_ms).map_err(|_| AuthError::TooLarge("the expiry"))?;
    let ops = vec![
        Step::Value(var("now")),
        Step::Value(int(expires_ms)),
        Step::Binary(biscuit_auth::builder::Binary::LessThan),
    ];
    Ok(any_of(vec![query(pred(name::TIME_MS, &[var("now")]), vec![Expression { ops }])]))
}

/// The expiry that a line of a block states, if it is one.
pub(crate) fn expiry_in(line: &str) -> Option<u64> {
    line.strip_prefix("check if time_ms($now), $now < ")?.strip_suffix(';')?.parse().ok()
}

fn query(predicate: Predicate, expressions: Vec<Expression>) -> Rule {
    let nothing: &[Term] = &[];
    Rule::new(pred("query", nothing), vec![predicate], expressions, vec![])
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
