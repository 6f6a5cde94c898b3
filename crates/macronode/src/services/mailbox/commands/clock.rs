//! `macronode mailbox clock`: what a jump of the clock holds back, and the operator's word that it is right.

use serde::Deserialize;
use serde_json::json;

use super::args::{ClockArgs, ClockCommand};
use super::types::{relative, span};
use crate::client::ApiClient;
use crate::commands::Report;
use crate::errors::Failure;

const SHOW: &str = "/v1/clock";
const CONFIRM: &str = "/v1/clock/confirm";

/// The mailbox's clock, as the node reports it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Clock {
    wall_ahead_ms: u64,
    held: Option<Held>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Held {
    jump_ms: u64,
    until_ms: u64,
}

/// Shows the clock, or confirms it.
pub async fn clock(args: &ClockArgs) -> Result<Report, Failure> {
    let (node, path) = match &args.command {
        None => (&args.node, SHOW),
        Some(ClockCommand::Confirm { node }) => (node, CONFIRM),
    };
    let mut client = ApiClient::find(node)?;
    let answer = match path {
        SHOW => client.get(path).await?,
        _ => client.post(path, &json!({})).await?,
    };
    let clock: Clock = answer.read(path)?;
    Ok(Report::clean(if node.json { answer.text() + "\n" } else { clock.in_words() }))
}

impl Clock {
    fn in_words(&self) -> String {
        let mut text = match &self.held {
            None => "the clock holds nothing back\n".to_owned(),
            Some(held) => format!(
                "the wall clock was {} ahead of the newest record at the start\nwhat it would make too old is kept; it is \
                 believed {}\nif the clock is right: macronode mailbox clock confirm\n",
                span(held.jump_ms),
                relative(held.until_ms)
            ),
        };
        // Less is what two clocks differ by anyway.
        if self.wall_ahead_ms > 1000 {
            text += &format!("the wall clock is {} ahead of the mailbox's own\n", span(self.wall_ahead_ms));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_is_told_with_what_ends_it() {
        let quiet = Clock::default().in_words();
        assert_eq!(quiet, "the clock holds nothing back\n");
        let until_ms = ron_kernel::clock::unix_millis() + 3_600_000;
        let held = Clock { wall_ahead_ms: 7_200_000, held: Some(Held { jump_ms: 18_000_000, until_ms }) }.in_words();
        for part in ["5 h", "clock confirm", "2 h"] {
            assert!(held.contains(part), "{part:?} is missing in {held}");
        }
    }
}
