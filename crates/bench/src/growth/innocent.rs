//! A caller who asks for little, beside others who ask for much.

use std::time::Duration;

use hdrhistogram::Histogram;
use macronode_client::{Mailbox, Message, Receive};
use ron_kernel::clock;

use crate::load::new_histogram;

const EVERY: Duration = Duration::from_millis(10);
const TOPIC: &str = "innocent";
const TAKEN_MAX: usize = 10;
const HOLD: Duration = Duration::from_mins(2);

/// What that caller noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noticed {
    /// 99th percentile of a send, in microseconds.
    pub p99: u64,
    /// Longest send, in microseconds.
    pub longest: u64,
    /// Sends and receives that were refused.
    pub refused: u64,
}

/// Sends, receives and acknowledges a message now and then on a connection of its own until the others have ended.
pub async fn beside(mailbox: &Mailbox, message: &Message, have_ended: impl Fn() -> bool) -> anyhow::Result<Noticed> {
    let (mut micros, mut refused): (Histogram<u64>, u64) = (new_histogram()?, 0);
    while !have_ended() {
        let began = clock::now();
        match mailbox.send(TOPIC, message.clone()).await {
            Ok(_) => micros.saturating_record(began.elapsed().as_micros() as u64),
            Err(_) => refused += 1,
        }
        match mailbox.receive(TOPIC, Receive::up_to(TAKEN_MAX).holding(HOLD)).await {
            Ok(messages) => {
                for received in messages {
                    let _ = mailbox.ack(&received.receipt).await;
                }
            }
            Err(_) => refused += 1,
        }
        tokio::time::sleep(EVERY).await;
    }
    Ok(Noticed { p99: micros.value_at_quantile(0.99), longest: micros.max(), refused })
}
