//! What can be wrong with a configuration, said so that an operator can put it right.

use std::fmt;
use std::path::PathBuf;

use crate::errors::{Code, Failure};

/// Where a value came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    #[default]
    Default,
    /// The file, with the line if it is known.
    File {
        /// Its path.
        path: PathBuf,
        /// Counted from 1.
        line: Option<usize>,
    },
    /// This environment variable.
    Env(String),
    /// This flag.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { path, line: Some(line) } => write!(f, "{}:{line}", path.display()),
            Origin::File { path, line: None } => write!(f, "{}", path.display()),
            Origin::Env(name) => write!(f, "env {name}"),
            Origin::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// A key with its value and origin, as it stands in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The path of the key.
    pub key: String,
    /// The value as TOML writes it.
    pub value: String,
    /// Where it came from.
    pub origin: Origin,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` = {} ({})", self.key, self.value, self.origin)
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The file is not there or cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// The file is not TOML.
    #[error("{place}: not valid TOML: {cause}")]
    Syntax {
        /// Where in the file.
        place: Origin,
        /// What the parser says.
        cause: String,
    },
    /// There is no such key.
    #[error("unknown {what} `{name}` ({origin}){}", hint(nearest))]
    Unknown {
        /// Key, section or variable.
        what: &'static str,
        /// As it was written.
        name: String,
        /// Where it was written.
        origin: Origin,
        /// What was probably meant.
        nearest: Option<String>,
    },
    /// The value is of the wrong kind.
    #[error("{setting} is not {noun}; allowed: {allowed}")]
    WrongType {
        /// What was set.
        setting: Setting,
        /// What it should be.
        noun: &'static str,
        /// What is allowed, in words.
        allowed: String,
    },
    /// The value is not one that is allowed.
    #[error("{setting} is not allowed; allowed: {allowed}{}", hint(nearest))]
    OutOfRange {
        /// What was set.
        setting: Setting,
        /// What is allowed, in words.
        allowed: String,
        /// What was probably meant.
        nearest: Option<String>,
    },
    /// Two values contradict each other.
    #[error("{setting} is above {other}; {rule}")]
    Contradiction {
        /// The one that is too large.
        setting: Setting,
        /// The one that bounds it.
        other: Setting,
        /// Why it must be so.
        rule: &'static str,
    },
    /// A certificate without its key, or the other way round.
    #[error("{setting} is set, but `{missing}` is not; set both or none")]
    TlsHalf {
        /// The one that is set.
        setting: Setting,
        /// The key of the other.
        missing: String,
    },
    /// The admin plane would be public and in the clear.
    #[error(
        "{setting} is not a loopback address and the admin plane has no TLS; \
         bind it to 127.0.0.1 or set `admin.tls_cert` and `admin.tls_key`"
    )]
    PublicAdmin {
        /// The address.
        setting: Setting,
    },
    /// Strangers could kill tasks.
    #[error("{setting} is not a loopback address, but {chaos} allows loopback only; bind it to 127.0.0.1")]
    PublicChaos {
        /// The address.
        setting: Setting,
        /// The switch.
        chaos: Setting,
    },
    /// A rule of a service does not hold.
    #[error("{setting} {relation} {other} {advice}")]
    OfService {
        /// The value that is wrong.
        setting: Setting,
        /// What is wrong with it.
        relation: &'static str,
        /// The value it does not go with.
        other: Setting,
        /// Why, and what to do.
        advice: &'static str,
        /// What to look up.
        code: Code,
    },
    /// Two listeners on one address.
    #[error("{setting} is the same address as {other}; give each its own port, or port 0 for a free one")]
    SharedAddress {
        /// One address.
        setting: Setting,
        /// The other.
        other: Setting,
    },
}

fn hint(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

impl ConfigError {
    /// What to look up.
    pub fn code(&self) -> Code {
        match self {
            ConfigError::Unreadable { .. } => Code::FileUnreadable,
            ConfigError::Syntax { .. } => Code::FileSyntax,
            ConfigError::Unknown { .. } => Code::UnknownKey,
            ConfigError::WrongType { .. } => Code::WrongType,
            ConfigError::OutOfRange { .. } => Code::OutOfRange,
            ConfigError::Contradiction { .. } => Code::Contradiction,
            ConfigError::TlsHalf { .. } => Code::TlsHalf,
            ConfigError::PublicAdmin { .. } => Code::PublicAdmin,
            ConfigError::PublicChaos { .. } => Code::PublicChaos,
            ConfigError::OfService { code, .. } => *code,
            ConfigError::SharedAddress { .. } => Code::SharedAddress,
        }
    }

    /// The keys it is about.
    pub fn keys(&self) -> Vec<&str> {
        match self {
            ConfigError::Unreadable { .. } | ConfigError::Syntax { .. } => Vec::new(),
            ConfigError::Unknown { name, .. } => vec![name],
            ConfigError::WrongType { setting, .. }
            | ConfigError::OutOfRange { setting, .. }
            | ConfigError::PublicAdmin { setting } => vec![&setting.key],
            ConfigError::TlsHalf { setting, missing } => vec![&setting.key, missing],
            ConfigError::Contradiction { setting, other, .. }
            | ConfigError::SharedAddress { setting, other }
            | ConfigError::OfService { setting, other, .. }
            | ConfigError::PublicChaos { setting, chaos: other } => vec![&setting.key, &other.key],
        }
    }
}

/// Everything that is wrong, a line for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(|error| format!("{} {error}", error.code())).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for ConfigErrors {}

impl From<ConfigErrors> for Failure {
    /// All of it as one failure, under the code of the first problem.
    fn from(errors: ConfigErrors) -> Self {
        let code = errors.0.first().map_or(Code::FileSyntax, ConfigError::code);
        let lines = errors.to_string();
        let message = lines.strip_prefix(&format!("{code} ")).unwrap_or(&lines).to_owned();
        Failure { code, message }
    }
}
