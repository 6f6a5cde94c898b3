//! How what only the mailbox has is shown to people; the rest is common to all commands.

pub use crate::commands::text::*;

/// Attributes as they are written on the command line.
pub fn attributes(attrs: &serde_json::Map<String, serde_json::Value>) -> String {
    let one = |(name, value): (&String, &serde_json::Value)| {
        format!("{}={}", one_line(name), one_line(value.as_str().unwrap_or("")))
    };
    attrs.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// Sentence for a topic whose dead letter topic is gone: failing messages are tried without end.
pub fn missing_dlq(dlq: &str) -> String {
    format!("{} is gone: messages that fail are tried without end until another is named", one_line(dlq))
}
