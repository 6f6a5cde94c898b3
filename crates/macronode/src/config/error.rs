//! What can be wrong with a configuration, said so that an operator can put it right.

use std::fmt;
use std::path::PathBuf;

use crate::errors::{Code, Failure};

/// Source of a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// The built-in default.
    #[default]
    Default,
    /// The file, with the line if it is known.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Line in the file, counted from 1.
        line: Option<usize>,
    },
    /// The environment variable with this name.
    Env(String),
    /// The command line flag with this name.
    Flag(String),
    /// The running process, which takes up another value only when it is started anew.
    InForce,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { path, line: Some(line) } => write!(f, "{}:{line}", path.display()),
            Origin::File { path, line: None } => write!(f, "{}", path.display()),
            Origin::Env(name) => write!(f, "env {name}"),
            Origin::Flag(name) => write!(f, "flag {name}"),
            Origin::InForce => f.write_str("in force until the process is started anew"),
        }
    }
}

/// A key with its value and origin, as it stands in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Path of the key.
    pub key: String,
    /// Value as TOML writes it.
    pub value: String,
    /// Source of the value.
    pub origin: Origin,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` = {} ({})", self.key, self.value, self.origin)
    }
}

/// One mistake in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The file is not there or cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        cause: String,
    },
    /// The file is not TOML.
    #[error("{place}: not valid TOML: {cause}")]
    Syntax {
        /// File and line.
        place: Origin,
        /// Message of the parser.
        cause: String,
    },
    /// There is no such key.
    #[error("unknown {what} `{name}` ({origin}){}", hint(nearest))]
    Unknown {
        /// Kind of the unknown thing: key, section or variable.
        what: &'static str,
        /// Name as it was written.
        name: String,
        /// Source it was found in.
        origin: Origin,
        /// Known name that is most alike.
        nearest: Option<String>,
    },
    /// The value is of the wrong kind.
    #[error("{setting} is not {noun}; allowed: {allowed}")]
    WrongType {
        /// Key and value at fault.
        setting: Setting,
        /// Kind of value that is expected, with its article.
        noun: &'static str,
        /// Allowed values, in words.
        allowed: String,
    },
    /// The value is not one that is allowed.
    #[error("{setting} is not allowed; allowed: {allowed}{}", hint(nearest))]
    OutOfRange {
        /// Key and value at fault.
        setting: Setting,
        /// Allowed values, in words.
        allowed: String,
        /// Allowed value that is most alike.
        nearest: Option<String>,
    },
    /// Two values contradict each other.
    #[error("{setting} is above {other}; {rule}")]
    Contradiction {
        /// The value that is too large.
        setting: Setting,
        /// The value that bounds it.
        other: Setting,
        /// Reason for the bound.
        rule: &'static str,
    },
    /// A certificate without its key, or the other way round.
    #[error("{setting} is set, but `{missing}` is not; set both or none")]
    TlsHalf {
        /// The one of the two keys that is set.
        setting: Setting,
        /// Path of the key that is missing.
        missing: String,
    },
    /// The admin plane would be public and in the clear.
    #[error(
        "{setting} is not a loopback address and the admin plane has no TLS; \
         bind it to 127.0.0.1 or set `admin.tls_cert` and `admin.tls_key`"
    )]
    PublicAdmin {
        /// Address of the admin plane.
        setting: Setting,
    },
    /// Strangers could kill tasks.
    #[error("{setting} is not a loopback address, but {chaos} allows loopback only; bind it to 127.0.0.1")]
    PublicChaos {
        /// Address of the admin plane.
        setting: Setting,
        /// Setting that switches chaos on.
        chaos: Setting,
    },
    /// A rule of a service does not hold.
    #[error("{setting} {relation} {other} {advice}")]
    OfService {
        /// Key and value at fault.
        setting: Setting,
        /// Forbidden relation to the other value, in words.
        relation: &'static str,
        /// Key and value it contradicts.
        other: Setting,
        /// Reason and remedy.
        advice: &'static str,
        /// Error code of the rule.
        code: Code,
    },
    /// Two listeners on one address.
    #[error("{setting} is the same address as {other}; give each its own port, or port 0 for a free one")]
    SharedAddress {
        /// First of the two addresses.
        setting: Setting,
        /// Second of the two addresses.
        other: Setting,
    },
}

fn hint(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

impl ConfigError {
    /// Error code that an operator can look up.
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

    /// Paths of the keys at fault.
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
