//! HELLO: what a side can do, and what both agree on.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::status::{self, Status};
use crate::{FRAME_BYTES_MAX, FRAME_BYTES_MIN, VERSION};

/// Bytes of the JSON of a HELLO.
pub const HELLO_BYTES_MAX: usize = 16 * 1024;
/// Requests in flight that any agreement allows.
pub const INFLIGHT_MAX: u32 = 65_536;
/// Feature: payloads may be compressed by zstd (flag COMP).
pub const FEATURE_ZSTD: &str = "zstd";

const VERSIONS_MAX: usize = 16;
const FEATURES_MAX: usize = 32;
const FEATURE_BYTES_MAX: usize = 64;
const AGENT_BYTES_MAX: usize = 128;
const NODE_ID_HEX: usize = 64;

/// The first frame of each side.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Versions of the protocol this side speaks.
    pub versions: Vec<u16>,
    /// Bytes of the largest frame this side takes.
    pub max_frame: u32,
    /// Requests and streams of the other side that this side holds at once.
    pub max_inflight: u32,
    /// Names of what else it can do.
    #[serde(default)]
    pub features: Vec<String>,
    /// Node id (64 lower-case hex digits) of a node; a client has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// Capability token for the requests of this session that carry none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap: Option<String>,
    /// Name and version of the program, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// What holds for a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreed {
    /// Version of the protocol.
    pub version: u16,
    /// Bytes of the largest frame, in both directions.
    pub max_frame: usize,
    /// Requests and streams at once, in each direction.
    pub max_inflight: usize,
    /// Features both sides have.
    pub features: Vec<String>,
}

/// Why a HELLO is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// Longer than a HELLO may be.
    #[error("a HELLO of {len} bytes is larger than {HELLO_BYTES_MAX}")]
    TooLarge {
        /// Bytes of the JSON.
        len: usize,
    },
    /// No JSON object with the fields of a HELLO.
    #[error("not a HELLO: {0}")]
    Malformed(String),
    /// A field outside its bounds.
    #[error("HELLO: `{field}` {rule}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// What it should have been.
        rule: &'static str,
    },
    /// No version that both speak.
    #[error("no version in common")]
    Version,
}

impl HelloError {
    /// Code of the GOAWAY.
    pub const fn code(&self) -> Status {
        match self {
            HelloError::TooLarge { .. } => status::TOO_LARGE,
            HelloError::Version => status::VERSION_UNKNOWN,
            _ => status::BAD_REQUEST,
        }
    }
}

impl Hello {
    /// A HELLO with these bounds, for version 1, without features, identity or token.
    pub fn new(max_frame: u32, max_inflight: u32) -> Hello {
        let versions = vec![VERSION];
        Hello { versions, max_frame, max_inflight, features: Vec::new(), node_id: None, cap: None, agent: None }
    }

    /// Reads a HELLO and holds each field to its bounds. Unknown fields are left for later versions.
    pub fn parse(json: &[u8]) -> Result<Hello, HelloError> {
        if json.len() > HELLO_BYTES_MAX {
            return Err(HelloError::TooLarge { len: json.len() });
        }
        let hello: Hello = serde_json::from_slice(json).map_err(|error| HelloError::Malformed(error.to_string()))?;
        hello.check()?;
        Ok(hello)
    }

    /// The JSON of it.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings, numbers and lists of them are JSON")
    }

    fn check(&self) -> Result<(), HelloError> {
        let rule = |holds: bool, field, rule| if holds { Ok(()) } else { Err(HelloError::Field { field, rule }) };
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_node_id = |id: &String| id.len() == NODE_ID_HEX && id.bytes().all(is_hex);
        let is_token = |cap: &String| !cap.is_empty() && cap.bytes().all(|byte| byte.is_ascii_graphic());
        let is_feature = |name: &String| (1..=FEATURE_BYTES_MAX).contains(&name.len());
        rule((1..=VERSIONS_MAX).contains(&self.versions.len()), "versions", "needs 1 to 16 numbers")?;
        rule(self.max_frame as usize >= FRAME_BYTES_MIN, "max_frame", "must be 1024 or more")?;
        rule(self.max_inflight >= 1, "max_inflight", "must be 1 or more")?;
        rule(self.features.len() <= FEATURES_MAX, "features", "has more than 32 names")?;
        rule(self.features.iter().all(is_feature), "features", "has a name that is not 1 to 64 bytes long")?;
        rule(self.node_id.as_ref().is_none_or(is_node_id), "node_id", "must be 64 lower-case hex digits")?;
        rule(self.cap.as_ref().is_none_or(is_token), "cap", "must be a token of visible ASCII")?;
        rule(
            self.agent.as_ref().is_none_or(|agent| agent.len() <= AGENT_BYTES_MAX),
            "agent",
            "is longer than 128 bytes",
        )
    }
}

/// What two HELLOs agree on: the highest version in common, and of each bound the smaller one. Both sides compute it
/// for themselves and come to the same result, whoever is `ours`.
pub fn negotiate(ours: &Hello, theirs: &Hello) -> Result<Agreed, HelloError> {
    let in_common = ours.versions.iter().filter(|version| theirs.versions.contains(version));
    let version = in_common.copied().max().ok_or(HelloError::Version)?;
    let mut features: Vec<String> =
        ours.features.iter().filter(|feature| theirs.features.contains(feature)).cloned().collect();
    features.sort_unstable();
    features.dedup();
    Ok(Agreed {
        version,
        max_frame: (ours.max_frame.min(theirs.max_frame) as usize).min(FRAME_BYTES_MAX),
        max_inflight: ours.max_inflight.min(theirs.max_inflight).min(INFLIGHT_MAX) as usize,
        features,
    })
}

impl Agreed {
    /// True if both sides have the feature.
    pub fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|name| name == feature)
    }
}

impl fmt::Debug for Hello {
    /// Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hello { versions, max_frame, max_inflight, features, node_id, cap, agent } = self;
        f.debug_struct("Hello")
            .field("versions", versions)
            .field("max_frame", max_frame)
            .field("max_inflight", max_inflight)
            .field("features", features)
            .field("node_id", node_id)
            .field("has_cap", &cap.is_some())
            .field("agent", agent)
            .finish()
    }
}
