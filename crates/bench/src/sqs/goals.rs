//! What the SQS surface should reach, held against what was measured.

use super::{BATCH_64, SEND_64, SETTLE_64};
use crate::mailbox::cell::Cell;
use crate::mailbox::results::Results;
use crate::mailbox::target::Id;
use crate::report::{Row, Target};

/// A row for every target about speed; one whose system did not run is missed, not left out.
pub fn rows(results: &Results) -> Vec<Row> {
    vec![
        row(
            results,
            "durable SendMessage, 64 connections",
            (Id::Sqs, SEND_64),
            (Id::Durable, SEND_64, "/v1/send"),
            0.7,
            "Messages of 256 B a second over JSON 1.0 with signatures checked, against the native surface of the same \
             node; both are answered when the message is on the disk.",
        ),
        row(
            results,
            "ReceiveMessage and DeleteMessage, 64 connections",
            (Id::Sqs, SETTLE_64),
            (Id::Durable, SETTLE_64, "/v1/recv and /v1/ack"),
            0.7,
            "Messages a second from a queue filled before, one at a time; the client signs each delete on the cores it \
             shares with the node, which native clients need not.",
        ),
        row(
            results,
            "SendMessageBatch of 10, 64 connections",
            (Id::Sqs, BATCH_64),
            (Id::Sqs, SEND_64, "SendMessage"),
            4.0,
            "Messages a second, ten in a request against one in a request.",
        ),
    ]
}

fn row(
    results: &Results,
    name: &str,
    ours: (Id, Cell),
    (peer, peer_cell, words): (Id, Cell, &str),
    least: f64,
    meaning: &str,
) -> Row {
    let rate = |(id, cell)| results.rate(id, cell).map(|rate| format!("{:.0}/s", rate.median));
    let unmeasured = || "not measured".to_owned();
    Row {
        name: name.to_owned(),
        ours: rate(ours).unwrap_or_else(unmeasured),
        value: None,
        peer: rate((peer, peer_cell)).map_or_else(unmeasured, |rate| format!("{rate} ({words})")),
        ratio: results.ratio_between(ours, (peer, peer_cell)),
        target: Target::RatioAtLeast(least),
        meaning: meaning.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox::results::tests::sample;

    #[test]
    fn what_did_not_run_is_missed() {
        let rows = rows(&Results::default());
        assert!(rows.iter().all(|row| row.is_met() == Some(false) && row.ours == "not measured"), "{rows:?}");
    }

    #[test]
    fn each_target_is_held_against_its_own_peer() {
        let mut results = Results::default();
        for (id, cell, operations) in [
            (Id::Durable, SEND_64, 100),
            (Id::Sqs, SEND_64, 70),
            (Id::Durable, SETTLE_64, 100),
            (Id::Sqs, SETTLE_64, 69),
            (Id::Sqs, BATCH_64, 280),
        ] {
            results.record(id, cell, 0, sample(operations));
        }
        let rows = rows(&results);
        let met: Vec<_> = rows.iter().map(Row::is_met).collect();
        assert_eq!(met, [Some(true), Some(false), Some(true)], "{rows:?}");
        assert_eq!(rows[2].peer, "70/s (SendMessage)");
    }
}
