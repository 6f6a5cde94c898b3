//! How an Options type says what each of its keys may hold and what a change of it takes.
//!
//! A key is stated once, at its field: the name and type are Rust's, the meaning is the doc comment, the rest is one
//! attribute: `#[schemars(extend("x-setting" = live(whole(1, 100))))]`. It travels inside the JSON schema, from which
//! the binary makes its table of keys, the documentation and the checks.

use serde::{Deserialize, Serialize};

/// The property of a field's schema that holds its [`Setting`].
pub const SCHEMA_PROPERTY: &str = "x-setting";

/// What is known of a key beside its name, type and meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The values it takes.
    pub kind: ValueKind,
    /// What a change of it takes.
    pub reload: Reload,
    /// The flag of `macronode run` that sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flag: Option<String>,
}

/// What it takes for a changed value to have effect.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reload {
    /// Nothing: a reload applies it at once.
    Live,
    /// A reload restarts just this service.
    Restart(String),
    /// A restart of the process; a reload says so and keeps the old value.
    Process,
}

/// The values a key takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueKind {
    /// True or false.
    Switch,
    /// A whole number.
    Whole {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// A whole number from 1, or 0 for a number chosen by the node.
    WholeOrAuto {
        /// Largest.
        max: u64,
        /// The number the node chooses, in words.
        auto: String,
    },
    /// A number of bytes.
    Size {
        /// Smallest, in bytes.
        min: usize,
        /// Largest, in bytes.
        max: usize,
    },
    /// A duration.
    Time {
        /// Shortest, in milliseconds.
        min_ms: u64,
        /// Longest, in milliseconds.
        max_ms: u64,
    },
    /// An IP address and a port.
    Address,
    /// The path of a file or directory.
    Path,
    /// One of these words.
    Choice(Vec<String>),
    /// Some of these names, each once.
    Names(Vec<String>),
    /// Permits of a gate.
    Permits,
    /// Two whole numbers of milliseconds, the lower first.
    Window {
        /// Largest of either, in milliseconds.
        max_ms: u64,
    },
    /// A filter of the log.
    Filter,
    /// Text of exactly so many digits.
    Digits {
        /// Number of digits.
        count: usize,
    },
    /// Where clients reach a plane: scheme, host and port.
    Origin,
    /// Other nodes, each as `NODEID@HOST:PORT`.
    Nodes {
        /// Maximum number of nodes.
        count_max: usize,
    },
    /// A word for each of some lanes, as `LANE=WORD`; each lane once.
    LaneWords {
        /// The words.
        words: Vec<String>,
        /// Maximum number of lanes.
        count_max: usize,
    },
    /// A word of lower-case letters, digits and hyphens, or nothing.
    Word {
        /// Maximum bytes.
        bytes_max: usize,
    },
    /// Texts that a service reads itself.
    Texts {
        /// Maximum number of texts.
        count_max: usize,
        /// Maximum bytes of one.
        bytes_max: usize,
    },
}

/// A key whose changes have effect at once.
pub fn live(kind: ValueKind) -> Setting {
    Setting { kind, reload: Reload::Live, flag: None }
}

/// A key whose changes restart a service.
pub fn restarts(service: &str, kind: ValueKind) -> Setting {
    Setting { kind, reload: Reload::Restart(service.to_owned()), flag: None }
}

/// A key whose changes wait for the next start of the process.
pub fn process(kind: ValueKind) -> Setting {
    Setting { kind, reload: Reload::Process, flag: None }
}

/// A whole number between these, both included.
pub fn whole(min: u64, max: u64) -> ValueKind {
    ValueKind::Whole { min, max }
}

/// A whole number up to the largest, or 0 for what `auto` says.
pub fn whole_or_auto(max: u64, auto: &str) -> ValueKind {
    ValueKind::WholeOrAuto { max, auto: auto.to_owned() }
}

/// A number of bytes between these, both included.
pub fn size(min: usize, max: usize) -> ValueKind {
    ValueKind::Size { min, max }
}

/// A duration between these, both included.
pub fn time(min_ms: u64, max_ms: u64) -> ValueKind {
    ValueKind::Time { min_ms, max_ms }
}

/// A list of up to so many nodes.
pub fn nodes(count_max: usize) -> ValueKind {
    ValueKind::Nodes { count_max }
}

/// One of these words for each of up to so many lanes.
pub fn lane_words(words: &[&str], count_max: usize) -> ValueKind {
    ValueKind::LaneWords { words: words.iter().map(|word| (*word).to_owned()).collect(), count_max }
}

/// A list of up to so many texts, each of up to so many bytes.
pub fn texts(count_max: usize, bytes_max: usize) -> ValueKind {
    ValueKind::Texts { count_max, bytes_max }
}

/// A word of up to so many bytes, or nothing.
pub fn word(bytes_max: usize) -> ValueKind {
    ValueKind::Word { bytes_max }
}

/// One of these words.
pub fn choice(words: &[&str]) -> ValueKind {
    ValueKind::Choice(words.iter().map(|word| (*word).to_owned()).collect())
}

impl Setting {
    /// The same key, also set by a flag of `macronode run`.
    pub fn flag(self, flag: &str) -> Setting {
        Setting { flag: Some(flag.to_owned()), ..self }
    }
}

impl Reload {
    /// In words, as the schema and the documentation show it.
    pub fn words(&self) -> String {
        match self {
            Reload::Live => "live".to_owned(),
            Reload::Restart(service) => format!("restarts {service}"),
            Reload::Process => "needs a process restart".to_owned(),
        }
    }
}

/// Milliseconds of a second, for bounds.
pub const SECOND_MS: u64 = 1_000;
/// Milliseconds of a minute, for bounds.
pub const MINUTE_MS: u64 = 60 * SECOND_MS;
/// Milliseconds of an hour, for bounds.
pub const HOUR_MS: u64 = 60 * MINUTE_MS;
/// Milliseconds of a day, for bounds.
pub const DAY_MS: u64 = 24 * HOUR_MS;
/// Bytes of a kibibyte, for bounds.
pub const KIB: usize = 1 << 10;
/// Bytes of a mebibyte, for bounds.
pub const MIB: usize = 1 << 20;
/// Bytes of a gibibyte, for bounds.
pub const GIB: usize = 1 << 30;
