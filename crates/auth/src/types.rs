//! The words of capabilities: operations, topics, grants, and what can be wrong with them.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use serde::Serialize;

/// Longest name of a subject or a topic in a grant.
const NAME_BYTES_MAX: usize = 128;

/// What can be done on a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Put messages in.
    Send,
    /// Take messages out under a lease.
    Recv,
    /// Say that a message is done with, or hold it for longer.
    Ack,
    /// Give a message back.
    Nack,
    /// Make, change and remove topics; look into them.
    Admin,
}

/// The topics a right covers: written as a name, as a beginning with `*` after it, or as `*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TopicScope {
    /// This topic alone.
    Exact(String),
    /// Every topic whose name begins like this.
    Prefix(String),
    /// Every topic, and what concerns no single topic.
    Any,
}

/// Whoever holds a token, as far as the node knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The name given when the token was minted.
    pub name: Arc<str>,
    /// Messages it may send in a second.
    pub sends_per_second: Option<u32>,
    /// Largest payload it may send.
    pub payload_bytes_max: Option<u32>,
    /// First millisecond since 1970 at which the token is no longer good.
    pub expires_ms: Option<u64>,
    /// True for the operator of the node, who may do everything.
    pub is_operator: bool,
}

/// What a new token allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// For whom: letters, digits and `-_.:@/`.
    pub subject: String,
    /// Each of these operations…
    pub ops: Vec<Op>,
    /// …on each of these topics.
    pub topics: Vec<TopicScope>,
    /// Messages it may send in a second.
    pub sends_per_second: Option<u32>,
    /// Largest payload it may send.
    pub payload_bytes_max: Option<u32>,
    /// First millisecond since 1970 at which it is no longer good.
    pub expires_ms: Option<u64>,
}

/// What an existing token is narrowed to; what is left empty stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Narrowing {
    /// Only these of its operations.
    pub ops: Vec<Op>,
    /// Only these of its topics.
    pub topics: Vec<TopicScope>,
    /// Until then at most: milliseconds since 1970.
    pub expires_ms: Option<u64>,
}

/// Why a token, a key or a list of revocations could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// The text is no token.
    #[error("this is not a capability token: {0}")]
    Malformed(String),
    /// A name is not written as it must be.
    #[error("{what} {text:?} is not allowed: {rule}")]
    BadName {
        /// What was named.
        what: &'static str,
        /// How.
        text: String,
        /// How it must be written.
        rule: &'static str,
    },
    /// A grant allows nothing, or a narrowing narrows nothing.
    #[error("{0}")]
    Empty(&'static str),
    /// A number does not fit a token.
    #[error("{0} is too large")]
    TooLarge(&'static str),
    /// The token was closed to further narrowing.
    #[error("this token was sealed: it cannot be narrowed")]
    Sealed,
    /// The text is no signing key.
    #[error("this is not an Ed25519 signing key: {0}")]
    BadKey(String),
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// The text names no operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no operation is called {0:?}; allowed: send, recv, ack, nack, admin")]
pub struct UnknownOp(String);

impl Op {
    /// Every operation.
    pub const ALL: [Op; 5] = [Op::Send, Op::Recv, Op::Ack, Op::Nack, Op::Admin];

    /// The word in tokens and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Op::Send => "send",
            Op::Recv => "recv",
            Op::Ack => "ack",
            Op::Nack => "nack",
            Op::Admin => "admin",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Op {
    type Err = UnknownOp;

    fn from_str(text: &str) -> Result<Self, UnknownOp> {
        Op::ALL.into_iter().find(|op| op.as_str() == text).ok_or_else(|| UnknownOp(text.to_owned()))
    }
}

impl TopicScope {
    /// True if the topic is one of these.
    pub fn covers(&self, topic: &str) -> bool {
        match self {
            TopicScope::Exact(name) => name == topic,
            TopicScope::Prefix(start) => topic.starts_with(start.as_str()),
            TopicScope::Any => true,
        }
    }

    pub(crate) fn validate(&self) -> Result<(), AuthError> {
        match self {
            TopicScope::Exact(text) | TopicScope::Prefix(text) => check_name("the topic", text, TOPIC_RULE, "-_."),
            TopicScope::Any => Ok(()),
        }
    }
}

const TOPIC_RULE: &str = "1 to 128 letters, digits, '-', '_' or '.'; a '*' may stand at the end";
const SUBJECT_RULE: &str = "1 to 128 letters, digits or any of -_.:@/";

impl FromStr for TopicScope {
    type Err = AuthError;

    fn from_str(text: &str) -> Result<Self, AuthError> {
        let scope = match text.strip_suffix('*') {
            Some("") => TopicScope::Any,
            Some(start) => TopicScope::Prefix(start.to_owned()),
            None => TopicScope::Exact(text.to_owned()),
        };
        scope.validate().map(|()| scope)
    }
}

impl fmt::Display for TopicScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TopicScope::Exact(name) => f.write_str(name),
            TopicScope::Prefix(start) => write!(f, "{start}*"),
            TopicScope::Any => f.write_str("*"),
        }
    }
}

impl Grant {
    pub(crate) fn validate(&self) -> Result<(), AuthError> {
        check_name("the subject", &self.subject, SUBJECT_RULE, "-_.:@/")?;
        if self.ops.is_empty() {
            return Err(AuthError::Empty("a token must allow at least one operation"));
        }
        if self.topics.is_empty() {
            return Err(AuthError::Empty("a token must cover at least one topic"));
        }
        self.topics.iter().try_for_each(TopicScope::validate)
    }
}

/// Names are plain, because the text form of a token does not escape them.
fn check_name(what: &'static str, text: &str, rule: &'static str, marks: &str) -> Result<(), AuthError> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || marks.contains(c);
    let is_name = (1..=NAME_BYTES_MAX).contains(&text.len()) && text.chars().all(is_allowed);
    is_name.then_some(()).ok_or_else(|| AuthError::BadName { what, text: text.to_owned(), rule })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_read_as_they_are_written() {
        for op in Op::ALL {
            assert_eq!(op.as_str().parse(), Ok(op));
        }
        let error = "Send".parse::<Op>().expect_err("unknown").to_string();
        assert!(Op::ALL.iter().all(|op| error.contains(op.as_str())), "{error}");
    }

    #[test]
    fn topics_are_read_as_they_are_written() {
        let cases = [
            ("orders", Some(TopicScope::Exact("orders".into()))),
            ("jobs.*", Some(TopicScope::Prefix("jobs.".into()))),
            ("jobs*", Some(TopicScope::Prefix("jobs".into()))),
            ("*", Some(TopicScope::Any)),
            ("", None),
            ("a*b", None),
            ("**", None),
            ("a\"b", None),
            ("a b", None),
            (&"x".repeat(129), None),
        ];
        for (text, expected) in cases {
            let read = text.parse::<TopicScope>().ok();
            assert_eq!(read, expected, "{text:?}");
            assert_eq!(read.map(|scope| scope.to_string()), expected.map(|_| text.to_owned()));
        }
    }

    #[test]
    fn a_prefix_covers_what_begins_with_it() {
        for (scope, topic, expected) in [
            ("jobs.*", "jobs.a", true),
            ("jobs.*", "jobs", false),
            ("jobs.*", "jobsx", false),
            ("jobs", "jobs", true),
            ("jobs", "jobs.a", false),
            ("*", "", true),
        ] {
            assert_eq!(scope.parse::<TopicScope>().expect("valid").covers(topic), expected, "{scope} {topic}");
        }
    }

    #[test]
    fn a_grant_names_somebody_something_and_somewhere() {
        let good =
            Grant { subject: "a@b/c".into(), ops: vec![Op::Send], topics: vec![TopicScope::Any], ..Grant::default() };
        good.validate().expect("valid");
        for bad in [
            Grant { subject: String::new(), ..good.clone() },
            Grant { subject: "a\")".into(), ..good.clone() },
            Grant { ops: vec![], ..good.clone() },
            Grant { topics: vec![], ..good.clone() },
            Grant { topics: vec![TopicScope::Prefix(String::new())], ..good },
        ] {
            assert!(bad.validate().is_err(), "{bad:?}");
        }
    }
}
