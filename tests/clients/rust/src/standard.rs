//! Standard queues: their life, messages, batches, long polls, visibility, dead letters.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::{
    DeleteMessageBatchRequestEntry, MessageAttributeValue, MessageSystemAttributeName, QueueAttributeName,
    SendMessageBatchRequestEntry,
};

use crate::words::{Words, bodies, eventually, receive_count};

/// Created, found, listed, tagged, changed, deleted.
pub async fn queues_and_tags(words: &Words) -> Result<()> {
    let sqs = &words.sqs;
    let name = words.fresh();
    let made = sqs.create_queue().queue_name(&name).tags("team", "blue").send().await?;
    let url = made.queue_url().context("no queue URL")?;
    ensure!(sqs.get_queue_url().queue_name(&name).send().await?.queue_url() == Some(url));
    ensure!(sqs.list_queues().queue_name_prefix(&name).send().await?.queue_urls() == [url.to_owned()]);
    sqs.tag_queue().queue_url(url).tags("stage", "live").send().await?;
    sqs.untag_queue().queue_url(url).tag_keys("team").send().await?;
    let tags = sqs.list_queue_tags().queue_url(url).send().await?.tags.unwrap_or_default();
    ensure!(tags.len() == 1 && tags["stage"] == "live", "{tags:?}");
    let set = sqs.set_queue_attributes().queue_url(url).attributes(QueueAttributeName::VisibilityTimeout, "9");
    set.send().await?;
    ensure!(words.attribute(url, QueueAttributeName::VisibilityTimeout).await? == "9");
    sqs.delete_queue().queue_url(url).send().await?;
    Ok(())
}

/// Body and attributes, text and bytes.
pub async fn a_message_arrives_as_it_was_sent(words: &Words) -> Result<()> {
    let url = words.queue(&[]).await?;
    let text = MessageAttributeValue::builder().data_type("String").string_value("grün").build()?;
    let blob = MessageAttributeValue::builder().data_type("Binary").binary_value(Blob::new([0, 1, 255])).build()?;
    let send = words.sqs.send_message().queue_url(&url).message_body("hällo 🦀");
    let sent = send.message_attributes("Text", text.clone()).message_attributes("Blob", blob.clone()).send().await?;
    let got = words.take_one(&url).await?;
    ensure!((got.body(), got.message_id()) == (Some("hällo 🦀"), sent.message_id()), "{got:?}");
    ensure!(got.md5_of_body() == sent.md5_of_message_body());
    ensure!(got.md5_of_message_attributes() == sent.md5_of_message_attributes());
    let attributes = got.message_attributes().context("no attributes")?;
    ensure!(attributes["Text"] == text && attributes["Blob"] == blob, "{attributes:?}");
    words.delete(&url, &got).await
}

/// Ten sent, received and deleted at once; a bad entry fails alone.
pub async fn batches(words: &Words) -> Result<()> {
    let url = words.queue(&[]).await?;
    let entry = |n: usize| SendMessageBatchRequestEntry::builder().id(format!("e{n}")).message_body(format!("m{n}"));
    let entries = (0..10).map(|n| entry(n).build()).collect::<Result<Vec<_>, _>>()?;
    let sent = words.sqs.send_message_batch().queue_url(&url).set_entries(Some(entries)).send().await?;
    ensure!((sent.successful().len(), sent.failed().len()) == (10, 0), "{sent:?}");
    let mut received = Vec::new();
    while received.len() < 10 {
        let more = words.take(&url, 10, 5, None).await?;
        ensure!(!more.is_empty(), "only {} came", received.len());
        received.extend(more);
    }
    let mut delete = words.sqs.delete_message_batch().queue_url(&url);
    for (n, message) in received.iter().skip(1).enumerate() {
        let handle = message.receipt_handle().context("no handle")?;
        let entry = DeleteMessageBatchRequestEntry::builder().id(n.to_string()).receipt_handle(handle);
        delete = delete.entries(entry.build()?);
    }
    let bad = DeleteMessageBatchRequestEntry::builder().id("bad").receipt_handle("garbage").build()?;
    let gone = delete.entries(bad).send().await?;
    ensure!(gone.successful().len() == 9 && gone.failed().len() == 1, "{gone:?}");
    ensure!((gone.failed()[0].id(), gone.failed()[0].code()) == ("bad", "ReceiptHandleIsInvalid"), "{gone:?}");
    Ok(())
}

/// An empty poll takes its time; a send ends a poll at once.
pub async fn a_long_poll_waits_and_is_woken(words: &Words) -> Result<()> {
    let url = words.queue(&[]).await?;
    let started = Instant::now();
    ensure!(words.take(&url, 1, 1, None).await?.is_empty());
    ensure!(started.elapsed() >= Duration::from_millis(950), "{:?}", started.elapsed());
    let started = Instant::now();
    let send = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        words.sqs.send_message().queue_url(&url).message_body("wake").send().await
    };
    let (got, sent) = tokio::join!(words.take(&url, 1, 20, None), send);
    sent?;
    ensure!(bodies(&got?) == ["wake"]);
    ensure!(started.elapsed() < Duration::from_secs(4), "woken after {:?}", started.elapsed());
    Ok(())
}

/// Hidden, extended, released.
pub async fn visibility(words: &Words) -> Result<()> {
    let url = words.queue(&[(QueueAttributeName::VisibilityTimeout, "2")]).await?;
    words.sqs.send_message().queue_url(&url).message_body("work").send().await?;
    let first = words.take_one(&url).await?;
    let change = words.sqs.change_message_visibility().queue_url(&url);
    let change = change.set_receipt_handle(first.receipt_handle.clone());
    change.clone().visibility_timeout(5).send().await?;
    ensure!(words.take(&url, 1, 3, None).await?.is_empty(), "the extension was forgotten");
    change.visibility_timeout(0).send().await?;
    let second = words.take_one(&url).await?;
    ensure!(receive_count(&second) == Some("2"), "{second:?}");
    let third = words.take_one(&url).await?;
    ensure!(receive_count(&third) == Some("3"), "{third:?}");
    words.delete(&url, &third).await
}

/// Received too often, found among the dead letters, moved home.
pub async fn dead_letters_and_their_move_home(words: &Words) -> Result<()> {
    let sqs = &words.sqs;
    let dead = words.queue(&[]).await?;
    let dead_arn = words.arn(&dead).await?;
    let policy = format!("{{\"deadLetterTargetArn\":\"{dead_arn}\",\"maxReceiveCount\":1}}");
    let url = words.queue(&[(QueueAttributeName::RedrivePolicy, policy.as_str())]).await?;
    let sent = sqs.send_message().queue_url(&url).message_body("poison").send().await?;
    ensure!(words.take(&url, 1, 5, Some(0)).await?.len() == 1);
    ensure!(words.take(&url, 1, 0, Some(0)).await?.is_empty());
    let got = words.take(&dead, 1, 10, Some(0)).await?.pop().context("no dead letter")?;
    ensure!(got.message_id() == sent.message_id());
    let attributes = got.attributes().context("no attributes")?;
    let source = attributes.get(&MessageSystemAttributeName::DeadLetterQueueSourceArn);
    ensure!(source == Some(&words.arn(&url).await?), "{source:?}");
    let sources = sqs.list_dead_letter_source_queues().queue_url(&dead).send().await?;
    ensure!(sources.queue_urls() == [url.clone()], "{sources:?}");
    sqs.start_message_move_task().source_arn(&dead_arn).send().await?;
    eventually("the move completes", async || {
        let tasks = sqs.list_message_move_tasks().source_arn(&dead_arn).send().await?;
        Ok(tasks.results().iter().any(|task| task.status() == Some("COMPLETED")).then_some(()))
    })
    .await?;
    ensure!(words.take_one(&url).await?.body() == Some("poison"));
    Ok(())
}
