//! Errors told apart by the SDK's own kinds, not by their words.

use std::fmt::Debug;

use anyhow::{Context as _, Result, bail};
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::types::{QueueAttributeName, SendMessageBatchRequestEntry};

use crate::words::Words;

fn refused<T, E, R>(answer: Result<T, SdkError<E, R>>, is_expected: impl Fn(&E) -> bool, what: &str) -> Result<()>
where
    E: ProvideErrorMetadata + Debug,
    R: Debug,
{
    match answer {
        Err(SdkError::ServiceError(refusal)) if is_expected(refusal.err()) => Ok(()),
        Err(other) => bail!("{what}: {other:?}"),
        Ok(_) => bail!("{what}: not refused"),
    }
}

/// One call for each kind a program is likely to look for.
pub async fn errors_are_told_apart_by_kind(words: &Words) -> Result<()> {
    let sqs = &words.sqs;
    let url = words.queue(&[]).await?;
    let gone = format!("{url}-gone");
    let answer = sqs.send_message().queue_url(&gone).message_body("x").send().await;
    refused(answer, |e| e.is_queue_does_not_exist(), "send to no queue")?;
    let name = url.rsplit('/').next().context("no name in the URL")?;
    let create = sqs.create_queue().queue_name(name).attributes(QueueAttributeName::DelaySeconds, "5");
    refused(create.send().await, |e| e.is_queue_name_exists(), "create differently")?;
    let answer = sqs.delete_message().queue_url(&url).receipt_handle("garbage").send().await;
    refused(answer, |e| e.is_receipt_handle_is_invalid(), "delete by garbage")?;
    let answer = sqs.send_message().queue_url(&url).message_body("zero \u{fffe}").send().await;
    refused(answer, |e| e.is_invalid_message_contents(), "send what no text may hold")?;
    sqs.purge_queue().queue_url(&url).send().await?;
    let answer = sqs.purge_queue().queue_url(&url).send().await;
    refused(answer, |e| e.is_purge_queue_in_progress(), "purge twice")?;
    let entry = |n: usize| SendMessageBatchRequestEntry::builder().id(n.to_string()).message_body("x").build();
    let eleven = (0..11).map(entry).collect::<Result<Vec<_>, _>>()?;
    let answer = sqs.send_message_batch().queue_url(&url).set_entries(Some(eleven)).send().await;
    refused(answer, |e| e.is_too_many_entries_in_batch_request(), "eleven entries")?;
    let answer = sqs.send_message_batch().queue_url(&url).entries(entry(1)?).entries(entry(1)?).send().await;
    refused(answer, |e| e.is_batch_entry_ids_not_distinct(), "an id twice")?;
    let answer = sqs.start_message_move_task().source_arn(words.arn(&url).await? + "-gone").send().await;
    refused(answer, |e| e.is_resource_not_found_exception(), "move from nowhere")?;
    let answer = sqs.receive_message().queue_url(&url).max_number_of_messages(11).send().await;
    let is_value = |e: &_| ProvideErrorMetadata::code(e).is_some_and(|code| code.starts_with("InvalidParameterValue"));
    refused(answer, is_value, "receive eleven")
}
