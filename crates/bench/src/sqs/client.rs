//! The client of the hot loop: SQS in JSON over one connection for each task, every request signed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::sign::{Repeated, Signer};
use crate::mailbox::cell::Payload;
use crate::mailbox::drive::Client;
use crate::mailbox::http::{Connection, find, text_field};

/// Entries of a batch; the service takes no more.
pub const BATCH: u64 = 10;
/// Visibility timeout in seconds, the same as the native client of the bench uses.
const VISIBILITY_S: u64 = 120;
const FILLERS: u64 = 16;

/// A queue on a server.
#[derive(Clone, Debug)]
pub struct Queue {
    /// Signer of the requests to the queue.
    pub signer: Arc<Signer>,
    /// URL of the queue, as the server gave it.
    pub url: String,
}

/// One task with a connection of its own.
pub struct SqsClient {
    connection: Connection,
    queue: Queue,
    send: Repeated,
    send_ten: Repeated,
    receive: Repeated,
}

/// Sends one action and reads its answer.
pub async fn call(
    connection: &mut Connection,
    signer: &Signer,
    action: &'static str,
    body: &Value,
) -> anyhow::Result<Value> {
    let answer = connection.ask(&signer.request(action, &body.to_string())).await.context(action)?;
    if answer.is_empty() { Ok(Value::Null) } else { Ok(serde_json::from_slice(answer)?) }
}

impl Queue {
    /// Makes a queue with this name.
    pub async fn create(signer: Arc<Signer>, name: &str) -> anyhow::Result<Queue> {
        let mut connection = Connection::open(signer.address).await?;
        let answer = call(&mut connection, &signer, "CreateQueue", &json!({ "QueueName": name })).await?;
        let url = answer["QueueUrl"].as_str().with_context(|| format!("no QueueUrl: {answer}"))?.to_owned();
        Ok(Queue { signer, url })
    }

    /// Asks for something about this queue once.
    pub async fn ask(&self, action: &'static str, mut body: Value) -> anyhow::Result<Value> {
        body["QueueUrl"] = self.url.as_str().into();
        call(&mut Connection::open(self.signer.address).await?, &self.signer, action, &body).await
    }

    /// That many clients, each with its connection.
    pub async fn clients(&self, count: usize, payload: &Payload) -> anyhow::Result<Vec<SqsClient>> {
        let mut clients = Vec::with_capacity(count);
        for _ in 0..count {
            let connection = Connection::open(self.signer.address).await?;
            let (send, send_ten) = (self.send(payload), self.send_ten(payload));
            clients.push(SqsClient { connection, queue: self.clone(), send, send_ten, receive: self.receive() });
        }
        Ok(clients)
    }

    /// Sends that many messages, ten at once.
    pub async fn fill(&self, payload: &Payload, count: u64) -> anyhow::Result<()> {
        let left = Arc::new(AtomicU64::new(count.div_ceil(BATCH)));
        let mut tasks = JoinSet::new();
        for mut client in self.clients(FILLERS as usize, payload).await? {
            let left = Arc::clone(&left);
            tasks.spawn(async move {
                while take_one(&left) {
                    client.send_ten().await?;
                }
                Ok(())
            });
        }
        tasks.join_all().await.into_iter().collect()
    }

    fn send(&self, payload: &Payload) -> Repeated {
        let body = json!({ "QueueUrl": self.url, "MessageBody": text_of(payload) });
        Repeated::new("SendMessage", body.to_string())
    }

    fn send_ten(&self, payload: &Payload) -> Repeated {
        let entry = |id| json!({ "Id": format!("{id}"), "MessageBody": text_of(payload) });
        let entries: Vec<Value> = (0..BATCH).map(entry).collect();
        let body = json!({ "QueueUrl": self.url, "Entries": entries });
        Repeated::new("SendMessageBatch", body.to_string())
    }

    fn receive(&self) -> Repeated {
        let body = json!({
            "QueueUrl": self.url, "MaxNumberOfMessages": 1, "VisibilityTimeout": VISIBILITY_S, "WaitTimeSeconds": 1,
        });
        Repeated::new("ReceiveMessage", body.to_string())
    }
}

/// Whether there was one left to take.
pub fn take_one(left: &AtomicU64) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

/// A body is text: as many letters as the payload has bytes.
fn text_of(payload: &Payload) -> &str {
    &payload.base64[..payload.bytes.len()]
}

impl Client for SqsClient {
    async fn send(&mut self) -> anyhow::Result<()> {
        let body = self.connection.ask(self.send.bytes(&self.queue.signer)).await?;
        anyhow::ensure!(find(body, b"\"MessageId\"").is_some(), "no MessageId: {}", String::from_utf8_lossy(body));
        Ok(())
    }

    async fn settle(&mut self) -> anyhow::Result<()> {
        let delete = loop {
            let body = self.connection.ask(self.receive.bytes(&self.queue.signer)).await?;
            if let Some(handle) = text_field(body, "\"ReceiptHandle\"") {
                let json = format!(r#"{{"QueueUrl":"{}","ReceiptHandle":"{handle}"}}"#, self.queue.url);
                break self.queue.signer.request("DeleteMessage", &json);
            }
        };
        self.connection.ask(&delete).await?;
        Ok(())
    }

    async fn send_ten(&mut self) -> anyhow::Result<()> {
        let body = self.connection.ask(self.send_ten.bytes(&self.queue.signer)).await?;
        let is_whole = find(body, b"\"Successful\"").is_some() && find(body, b"\"SenderFault\"").is_none();
        anyhow::ensure!(is_whole, "not all were taken: {}", String::from_utf8_lossy(body));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn body_of(mut repeated: Repeated, signer: &Signer) -> Value {
        let text = String::from_utf8(repeated.bytes(signer).to_vec()).expect("text");
        serde_json::from_str(text.split_once("\r\n\r\n").expect("a head").1).expect("JSON")
    }

    #[test]
    fn bodies_are_text_of_the_length_of_the_payload() {
        let signer = Arc::new(Signer::new(SocketAddr::from(([127, 0, 0, 1], 80)), "key", "secret"));
        let queue = Queue { signer: Arc::clone(&signer), url: "http://127.0.0.1:80/1/bench".to_owned() };
        let payload = Payload::new(256);
        let send = body_of(queue.send(&payload), &signer);
        assert_eq!(send["MessageBody"].as_str().map(str::len), Some(256));
        assert_eq!(send["QueueUrl"], queue.url);
        let batch = body_of(queue.send_ten(&payload), &signer);
        let entries = batch["Entries"].as_array().expect("a list");
        assert_eq!(entries.len() as u64, BATCH);
        assert_eq!(entries[3]["Id"], "3");
        assert_eq!(entries[9]["MessageBody"], send["MessageBody"]);
        assert_eq!(body_of(queue.receive(), &signer)["MaxNumberOfMessages"], 1);
    }

    #[test]
    fn nothing_is_taken_twice() {
        let left = AtomicU64::new(2);
        assert_eq!([(); 4].map(|()| take_one(&left)), [true, true, false, false]);
    }
}
