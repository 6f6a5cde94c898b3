//! The exit codes of the process and the operator codes, each with a page in docs/errors.

use std::fmt;
use std::process::ExitCode;

/// Exit status of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Everything asked for was done.
    Clean,
    /// The command line or the configuration is wrong.
    Usage,
    /// The node cannot start, a check failed, or no node answers.
    Failed,
    /// The node left, but tasks had to be aborted at the drain deadline.
    Aborted,
}

impl Exit {
    /// Number of the status, as the shell sees it.
    pub fn number(self) -> u8 {
        match self {
            Exit::Clean => 0,
            Exit::Usage => 64,
            Exit::Failed => 70,
            Exit::Aborted => 75,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.number())
    }
}

/// Error code with a page in docs/errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// MN0001
    FileUnreadable,
    /// MN0002
    FileSyntax,
    /// MN0003
    UnknownKey,
    /// MN0004
    WrongType,
    /// MN0005
    OutOfRange,
    /// MN0006
    Contradiction,
    /// MN0007
    TlsHalf,
    /// MN0008
    PublicAdmin,
    /// MN0009
    PublicChaos,
    /// MN0010
    SharedAddress,
    /// MN0011
    CannotBind,
    /// MN0012
    DataDirUnusable,
    /// MN0013
    TlsUnusable,
    /// MN0014
    CannotStart,
    /// MN0015
    DrainAborted,
    /// MN0016
    ReloadRefused,
    /// MN0017
    NoNode,
    /// MN0018
    TokenUnusable,
    /// MN0019
    NodeRefused,
    /// MN0020
    TopologyDiffers,
    /// MN0021
    DoctorFailed,
    /// MN0022
    CapabilityUnusable,
    /// MN0023
    SigningKeyUnusable,
    /// MN0024
    OpenPlane,
    /// MN0025
    PayoutsRefused,
    /// MN0026
    RunDamaged,
    /// MN0027
    ArgumentsUnusable,
}

impl Code {
    /// All of them, in the order of their numbers.
    #[cfg(test)]
    pub const ALL: [Code; 27] = [
        Code::FileUnreadable,
        Code::FileSyntax,
        Code::UnknownKey,
        Code::WrongType,
        Code::OutOfRange,
        Code::Contradiction,
        Code::TlsHalf,
        Code::PublicAdmin,
        Code::PublicChaos,
        Code::SharedAddress,
        Code::CannotBind,
        Code::DataDirUnusable,
        Code::TlsUnusable,
        Code::CannotStart,
        Code::DrainAborted,
        Code::ReloadRefused,
        Code::NoNode,
        Code::TokenUnusable,
        Code::NodeRefused,
        Code::TopologyDiffers,
        Code::DoctorFailed,
        Code::CapabilityUnusable,
        Code::SigningKeyUnusable,
        Code::OpenPlane,
        Code::PayoutsRefused,
        Code::RunDamaged,
        Code::ArgumentsUnusable,
    ];

    /// One line saying what happened.
    pub fn text(self) -> &'static str {
        match self {
            Code::FileUnreadable => "the configuration file cannot be read",
            Code::FileSyntax => "the configuration file is not valid TOML",
            Code::UnknownKey => "a configuration key is not known",
            Code::WrongType => "a configuration value is of the wrong kind",
            Code::OutOfRange => "a configuration value is not allowed",
            Code::Contradiction => "two configuration values contradict each other",
            Code::TlsHalf => "a TLS certificate and its key must be given together",
            Code::PublicAdmin => "the admin plane may not be public without TLS",
            Code::PublicChaos => "chaos is allowed on loopback addresses only",
            Code::SharedAddress => "two listeners want the same address",
            Code::CannotBind => "an address cannot be listened on",
            Code::DataDirUnusable => "the data directory cannot be used",
            Code::TlsUnusable => "a TLS certificate or key cannot be used",
            Code::CannotStart => "a service cannot start",
            Code::DrainAborted => "tasks were aborted at the drain deadline",
            Code::ReloadRefused => "the new configuration was refused and the old one stays",
            Code::NoNode => "no node answers",
            Code::TokenUnusable => "the operator token is missing or refused",
            Code::NodeRefused => "the node answered, but not with what was asked for",
            Code::TopologyDiffers => "what runs differs from what is declared",
            Code::DoctorFailed => "this machine is not fit to run the node as configured",
            Code::CapabilityUnusable => "a capability token cannot be made or read as asked",
            Code::SigningKeyUnusable => "a key of the node is missing or cannot be used",
            Code::OpenPlane => "requests may go unsigned on loopback addresses only",
            Code::PayoutsRefused => "payouts cannot be computed from what was given",
            Code::RunDamaged => "a run of payouts is not what it says it is, or cannot be written",
            Code::ArgumentsUnusable => "a command was given arguments that it cannot use",
        }
    }

    /// Exit status of a process that stops because of this.
    pub fn exit(self) -> Exit {
        match self {
            code if code <= Code::SharedAddress => Exit::Usage,
            Code::CapabilityUnusable | Code::OpenPlane | Code::ArgumentsUnusable => Exit::Usage,
            Code::DrainAborted => Exit::Aborted,
            _ => Exit::Failed,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MN{:04}", *self as u16 + 1)
    }
}

/// A command that ended badly: what to print and how to exit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code} {message}")]
pub struct Failure {
    /// Code to look up.
    pub code: Code,
    /// What happened, and what to do about it.
    pub message: String,
}

impl Failure {
    /// A failure in words.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Failure { code, message: message.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_page_and_every_page_a_code() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors");
        for code in Code::ALL {
            let page = std::fs::read_to_string(format!("{folder}/{code}.md")).expect("a page for every code");
            assert!(page.starts_with(&format!("# {code}: {}\n", code.text())), "first line of {code}.md");
            for part in ["What it means", "What to do", "Example"] {
                assert!(page.contains(&format!("\n## {part}\n")), "{code}.md says {part}");
            }
        }
        let pages = std::fs::read_dir(folder).expect("the folder").filter_map(Result::ok);
        let named = pages.filter(|page| page.file_name().to_string_lossy().starts_with("MN")).count();
        assert_eq!(named, Code::ALL.len());
    }

    #[test]
    fn codes_are_numbered_from_one_without_gaps() {
        for (index, code) in Code::ALL.iter().enumerate() {
            assert_eq!(code.to_string(), format!("MN{:04}", index + 1));
        }
    }

    #[test]
    fn a_bad_configuration_exits_with_usage() {
        for (code, number) in [
            (Code::UnknownKey, 64),
            (Code::SharedAddress, 64),
            (Code::CannotBind, 70),
            (Code::DrainAborted, 75),
            (Code::CapabilityUnusable, 64),
            (Code::OpenPlane, 64),
            (Code::ArgumentsUnusable, 64),
        ] {
            assert_eq!(code.exit().number(), number, "{code}");
        }
    }
}
