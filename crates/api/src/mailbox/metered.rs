//! What the mailbox did for whom, as both of its surfaces tell the node's usage meter.
//!
//! It is told here and not in the engine, because only a surface knows whose token or key a request came with: leases
//! and receipts do not say who ends them.

use ron_auth::Subject;
use ron_kernel::Meter;
use ron_types::Error;
use svc_mailbox::{Delivery, Receipted};

/// Messages put in, without those that were there already.
const MESSAGES_SENT: &str = "mailbox.messages_sent";
/// Bytes of their payloads and attributes.
const BYTES_SENT: &str = "mailbox.bytes_sent";
/// Messages handed out.
const MESSAGES_RECEIVED: &str = "mailbox.messages_received";
/// Bytes of their payloads and attributes.
const BYTES_RECEIVED: &str = "mailbox.bytes_received";
/// Messages that their receivers were done with.
const MESSAGES_ACKNOWLEDGED: &str = "mailbox.messages_acknowledged";

/// Tells the meter what was done for a subject.
#[derive(Clone)]
pub(crate) struct Metered(Meter);

impl Metered {
    pub(crate) fn new(meter: &Meter) -> Self {
        Metered(meter.clone())
    }

    /// One message of so many bytes was put in, unless it was refused or there already.
    pub(crate) fn sent(&self, by: &Subject, bytes: usize, outcome: &Result<Receipted, Error>) {
        if outcome.as_ref().is_ok_and(|receipted| !receipted.duplicate) {
            self.0.count(&by.name, MESSAGES_SENT, 1);
            self.0.count(&by.name, BYTES_SENT, bytes as u64);
        }
    }

    /// The outcomes of a batch, in the order of its messages, whose bytes are given.
    pub(crate) fn sent_batch(&self, by: &Subject, bytes: &[usize], outcomes: &[Result<Receipted, Error>]) {
        bytes.iter().zip(outcomes).for_each(|(bytes, outcome)| self.sent(by, *bytes, outcome));
    }

    /// These messages were handed out.
    pub(crate) fn received(&self, by: &str, deliveries: &[Delivery]) {
        let bytes: usize = deliveries.iter().map(Delivery::bytes).sum();
        self.0.count(by, MESSAGES_RECEIVED, deliveries.len() as u64);
        self.0.count(by, BYTES_RECEIVED, bytes as u64);
    }

    /// These receipts were acknowledged, as far as they were good.
    pub(crate) fn acknowledged(&self, by: &Subject, outcomes: &[Result<(), Error>]) {
        let messages = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        self.0.count(&by.name, MESSAGES_ACKNOWLEDGED, messages as u64);
    }
}
