//! The short words in which the checks are written: a client, a queue, taking, patience.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, ensure};
use aws_config::BehaviorVersion;
use aws_config::retry::RetryConfig;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName, QueueAttributeName};

const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Attributes of a queue.
pub type Attributes = HashMap<QueueAttributeName, String>;

/// The client and what is asked of it again and again.
pub struct Words {
    /// The SDK's client.
    pub sqs: Client,
    stem: String,
    used: AtomicU32,
}

impl Words {
    /// A client of the endpoint, keys and region of the environment.
    pub async fn from_environment() -> Self {
        let loader = aws_config::defaults(BehaviorVersion::latest()).retry_config(RetryConfig::disabled());
        let config = loader.load().await;
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let stem = format!("rust-{}", since_epoch.as_micros());
        Words { sqs: Client::new(&config), stem, used: AtomicU32::new(0) }
    }

    /// A queue name nobody has used.
    pub fn fresh(&self) -> String {
        format!("{}-{}", self.stem, self.used.fetch_add(1, Ordering::Relaxed))
    }

    /// A new queue; its URL.
    pub async fn queue(&self, attributes: &[(QueueAttributeName, &str)]) -> Result<String> {
        let attributes: Attributes = attributes.iter().map(|(name, value)| (name.clone(), (*value).into())).collect();
        let suffix = if attributes.contains_key(&QueueAttributeName::FifoQueue) { ".fifo" } else { "" };
        let name = self.fresh() + suffix;
        let made = self.sqs.create_queue().queue_name(name).set_attributes(Some(attributes)).send().await?;
        made.queue_url.context("no queue URL")
    }

    /// One attribute of a queue.
    pub async fn attribute(&self, url: &str, name: QueueAttributeName) -> Result<String> {
        let answer = self.sqs.get_queue_attributes().queue_url(url).attribute_names(name.clone()).send().await?;
        let found = answer.attributes.and_then(|mut attributes| attributes.remove(&name));
        found.with_context(|| format!("no attribute {name}"))
    }

    /// The queue's ARN.
    pub async fn arn(&self, url: &str) -> Result<String> {
        self.attribute(url, QueueAttributeName::QueueArn).await
    }

    /// One receive with every attribute.
    pub async fn take(&self, url: &str, count: i32, wait_s: i32, visibility_s: Option<i32>) -> Result<Vec<Message>> {
        let receive = self.sqs.receive_message().queue_url(url).max_number_of_messages(count);
        let receive = receive.wait_time_seconds(wait_s).set_visibility_timeout(visibility_s);
        let receive = receive.message_attribute_names("All");
        let answer = receive.message_system_attribute_names(MessageSystemAttributeName::All).send().await?;
        Ok(answer.messages.unwrap_or_default())
    }

    /// One message, waited for.
    pub async fn take_one(&self, url: &str) -> Result<Message> {
        self.take(url, 1, 10, None).await?.pop().context("no message came")
    }

    /// Deletes a received message.
    pub async fn delete(&self, url: &str, message: &Message) -> Result<()> {
        let delete = self.sqs.delete_message().queue_url(url).set_receipt_handle(message.receipt_handle.clone());
        delete.send().await?;
        Ok(())
    }
}

/// The bodies, in order.
pub fn bodies(messages: &[Message]) -> Vec<&str> {
    messages.iter().filter_map(Message::body).collect()
}

/// How often the message was received, as it says itself.
pub fn receive_count(message: &Message) -> Option<&str> {
    let attributes = message.attributes()?;
    attributes.get(&MessageSystemAttributeName::ApproximateReceiveCount).map(String::as_str)
}

/// Looks again and again until something is found.
pub async fn eventually<T, F>(what: &str, mut look: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
{
    let started = Instant::now();
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        ensure!(started.elapsed() < PATIENCE, "not in time: {what}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
