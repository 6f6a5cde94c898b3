//! What can be asked of `macronode token`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use ron_auth::{Asked, Capabilities, Right};

use super::grantable;
use crate::config::TimeSpan;
use crate::errors::{Code, Failure};

/// What to do with a token.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token; the first one makes the signing key as well.
    Mint(MintArgs),
    /// Make a token that allows less than another; needs no key and no node.
    Attenuate(AttenuateArgs),
    /// Say what a token allows, until when, and whether it is one of this node.
    Inspect(InspectArgs),
    /// Take a token back, with every token made from it; a running node follows within 30 s.
    Revoke(RevokeArgs),
}

/// What the new token allows.
#[derive(Args, Debug)]
#[command(after_long_help = grantable())]
pub struct MintArgs {
    /// For whom it is: letters, digits and any of -_.:@/
    #[arg(long, value_name = "NAME")]
    pub subject: String,
    /// A right as service:verb:resource, with '*' for every verb or at the end of the resource; may be repeated
    #[arg(long, value_name = "RIGHT", required_unless_present_any = ["ops", "topics"])]
    pub allow: Vec<String>,
    /// A limit as name=number; may be repeated
    #[arg(long = "limit", value_name = "NAME=N", value_parser = limit)]
    pub limits: Vec<(String, u64)>,
    /// Short form for topics: a verb, or all of them; may be repeated
    #[arg(long = "op", value_name = "OP", requires = "topics")]
    pub ops: Vec<String>,
    /// Short form for topics: a topic, or all that begin alike, as in 'jobs.*'; may be repeated
    #[arg(long = "topic", value_name = "TOPIC", requires = "ops")]
    pub topics: Vec<String>,
    /// How long it is good, as in 90s, 15m, 1h or 30d [default: until it is revoked]
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    pub expires: Option<TimeSpan>,
    /// Short form for topics: messages sent in a second
    #[arg(long, value_name = "N")]
    pub sends_per_second: Option<u64>,
    /// Short form for topics: bytes of the largest message sent: payload and attributes
    #[arg(long, value_name = "BYTES")]
    pub payload_bytes_max: Option<u64>,
    /// Which node.
    #[command(flatten)]
    pub node: NodeArgs,
}

/// What is left of the token.
#[derive(Args, Debug)]
#[command(after_long_help = grantable())]
pub struct AttenuateArgs {
    /// The token to begin with.
    #[command(flatten)]
    pub given: GivenToken,
    /// Of what it allows only this, as service:verb:resource; may be repeated
    #[arg(long, value_name = "RIGHT")]
    pub allow: Vec<String>,
    /// Short form for topics: only this verb, or all of them; may be repeated
    #[arg(long = "op", value_name = "OP")]
    pub ops: Vec<String>,
    /// Short form for topics: only this topic, or those that begin alike, as in 'jobs.*'; may be repeated
    #[arg(long = "topic", value_name = "TOPIC")]
    pub topics: Vec<String>,
    /// How much longer it is good at most, as in 90s, 15m, 1h or 30d
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    pub expires: Option<TimeSpan>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Which token to read.
#[derive(Args, Debug)]
pub struct InspectArgs {
    /// The token.
    #[command(flatten)]
    pub given: GivenToken,
    /// Which node.
    #[command(flatten)]
    pub node: NodeArgs,
}

/// Which token to take back.
#[derive(Args, Debug)]
pub struct RevokeArgs {
    /// The token.
    #[command(flatten)]
    pub given: GivenToken,
    /// A revocation id, as `macronode token inspect` shows it
    #[arg(long, value_name = "HEX", conflicts_with = "token")]
    pub id: Option<String>,
    /// Which node.
    #[command(flatten)]
    pub node: NodeArgs,
}

/// A token somebody has.
#[derive(Args, Debug)]
pub struct GivenToken {
    /// The token [default: read from standard input, where no list of processes shows it]
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
}

/// The node a token is for.
#[derive(Args, Debug)]
pub struct NodeArgs {
    /// The data directory of the node [default: ./macronode-data]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Rights and limits as they were asked for, checked against what services declare.
#[derive(Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Rights in their full form, without repetitions.
    pub rights: Vec<Right>,
    /// Limits by their full names.
    pub limits: BTreeMap<String, u64>,
}

/// Reads the words of a command line; a mistake is told with the flag it stands after.
pub fn allowed(asked: &Asked<'_>, known: &[&'static Capabilities]) -> Result<Allowed, Failure> {
    let refused = |refused: ron_auth::AskedError| {
        let flag = match refused.field {
            "rights" => "allow".to_owned(),
            "limits" => "limit".to_owned(),
            "ops" => "op".to_owned(),
            "topics" => "topic".to_owned(),
            short_limit => short_limit.replace('_', "-"),
        };
        Failure::new(Code::CapabilityUnusable, format!("--{flag}: {}", refused.error))
    };
    Ok(Allowed { rights: asked.rights(known).map_err(refused)?, limits: asked.limits(known).map_err(refused)? })
}

/// Parses the value of `--limit`: `name=number`.
pub fn limit(text: &str) -> Result<(String, u64), String> {
    let malformed = || "expected a name and a number, as in name=100".to_owned();
    let (name, value) = text.split_once('=').ok_or_else(malformed)?;
    Ok((name.to_owned(), value.parse().map_err(|_| malformed())?))
}

/// A time as in the configuration, or in days.
pub fn lifetime(text: &str) -> Result<TimeSpan, String> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u64>().ok()?.checked_mul(24 * 3_600_000));
    let malformed = "expected a time such as \"90s\", \"15m\", \"1h\" or \"30d\"";
    match days.map_or_else(|| text.parse().map_err(|_| malformed), |days| Ok(TimeSpan(days)))? {
        TimeSpan(0) => Err("a token must be good for some time".to_owned()),
        time => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_read_as_people_write_them() {
        let hour = 3_600_000;
        for (text, expected) in
            [("1h", Some(hour)), ("30d", Some(720 * hour)), ("5ms", Some(5)), ("0s", None), ("0d", None)]
        {
            assert_eq!(lifetime(text).ok(), expected.map(TimeSpan), "{text}");
        }
        for text in ["", "d", "1", "soon", "-1h", "99999999999999999999d", "18446744073709551615d"] {
            assert!(lifetime(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn limits_are_a_name_and_a_number() {
        assert_eq!(limit("a.b=7"), Ok(("a.b".to_owned(), 7)));
        assert_eq!(limit("a.b=0"), Ok(("a.b".to_owned(), 0)), "none of it");
        for text in ["", "a.b", "a.b=", "a.b=-1", "a.b=x"] {
            assert!(limit(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_mistake_is_told_with_its_flag() {
        let (words, limits) = (vec!["write".to_owned()], BTreeMap::from([("sends".to_owned(), 1)]));
        let known = super::super::known();
        for (asked, flag) in [
            (Asked { rights: &words, ..Asked::default() }, "--allow: "),
            (Asked { ops: &words, ..Asked::default() }, "--op: "),
            (Asked { topics: &["a b".to_owned()], ..Asked::default() }, "--topic: "),
            (Asked { limits: Some(&limits), ..Asked::default() }, "--limit: "),
        ] {
            let said = allowed(&asked, &known).expect_err("refused").to_string();
            assert!(said.contains(flag), "{said}");
        }
    }
}
