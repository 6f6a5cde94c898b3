//! FIFO queues: order, groups that block only themselves, duplicates.

use anyhow::{Result, ensure};
use aws_sdk_sqs::types::QueueAttributeName;

use crate::words::{Words, bodies};

/// Five sends into two groups, one of them a duplicate.
pub async fn order_groups_and_duplicates(words: &Words) -> Result<()> {
    let by_content = (QueueAttributeName::ContentBasedDeduplication, "true");
    let url = words.queue(&[(QueueAttributeName::FifoQueue, "true"), by_content]).await?;
    let mut numbers = Vec::new();
    for body in ["a1", "b1", "a2", "a1", "a3"] {
        let send = words.sqs.send_message().queue_url(&url).message_body(body).message_group_id(&body[..1]);
        numbers.push(send.send().await?.sequence_number);
    }
    ensure!(numbers[3] == numbers[0] && numbers[0] < numbers[1] && numbers[1] < numbers[2], "{numbers:?}");
    let first = words.take(&url, 2, 0, None).await?;
    ensure!(bodies(&first) == ["a1", "a2"], "{first:?}");
    let other = words.take(&url, 10, 0, None).await?;
    ensure!(bodies(&other) == ["b1"], "{other:?}");
    for message in &first {
        words.delete(&url, message).await?;
    }
    ensure!(bodies(&words.take(&url, 10, 2, None).await?) == ["a3"]);
    Ok(())
}
