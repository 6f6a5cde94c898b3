//! One kept connection: a request, its answer, and a new connection when the old one has ended.

use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use ron_types::limits::mailbox::RECV_BYTES_MAX;

use crate::door::Door;
use crate::error::Error;

/// A receive of the largest size, in base64 and with envelopes, is well below.
const ANSWER_BYTES_MAX: usize = 4 * RECV_BYTES_MAX;
/// What a request may take on its way, beyond the node's own time.
const TRAVEL: Duration = Duration::from_secs(2);

/// A connection, open or not yet.
#[derive(Default)]
pub struct Link {
    open: Option<Open>,
}

/// It moves only while a request does.
struct Open {
    sender: SendRequest<Full<Bytes>>,
    connection: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// What became of a request.
enum Outcome {
    Answered(StatusCode, Bytes),
    /// The connection had ended before anything went out.
    Unsent(Box<Request<Full<Bytes>>>),
}

impl Link {
    /// Opens the connection, so that a wrong address is known early.
    pub async fn opened(door: &Door, patience: Duration) -> Result<Link, Error> {
        let open = within(patience, Open::new(door)).await;
        Ok(Link { open: Some(open.unwrap_or_else(|| Err(door.unreachable(&"it is silent")))?) })
    }

    /// The body of a good answer. The node is given `patience`; the rest is travel.
    pub async fn post(&mut self, door: &Door, path: &str, body: Vec<u8>, patience: Duration) -> Result<Bytes, Error> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(HOST, &door.address)
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(AUTHORIZATION, door.bearer.clone())
            .header("x-request-deadline-ms", HeaderValue::from(patience.as_millis() as u64))
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| Error::Options(error.to_string()))?;
        let exchanged = within(patience + TRAVEL, self.exchange(door, request)).await;
        let silent = || Err(Error::Unknown(format!("{} was silent for {:?}", door.address, patience + TRAVEL)));
        match exchanged.unwrap_or_else(silent)? {
            (status, body) if status.is_success() => Ok(body),
            (status, body) => Err(Error::refused(status, &body)),
        }
    }

    /// Over the connection that is open, or over a new one if the node has closed it.
    async fn exchange(&mut self, door: &Door, mut request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), Error> {
        if let Some(open) = self.open.take() {
            match self.exchange_over(open, request).await? {
                Outcome::Answered(status, body) => return Ok((status, body)),
                Outcome::Unsent(unsent) => request = *unsent,
            }
        }
        let open = Open::new(door).await?;
        match self.exchange_over(open, request).await? {
            Outcome::Answered(status, body) => Ok((status, body)),
            Outcome::Unsent(_) => Err(door.unreachable(&"it closed the connection at once")),
        }
    }

    async fn exchange_over(&mut self, open: Open, request: Request<Full<Bytes>>) -> Result<Outcome, Error> {
        let Open { mut sender, mut connection } = open;
        let (outcome, is_alive) = {
            let mut work = pin!(async {
                match sender.try_send_request(request).await {
                    Ok(response) => {
                        let status = response.status();
                        read(response.into_body()).await.map(|body| Outcome::Answered(status, body))
                    }
                    Err(mut error) => match error.take_message() {
                        Some(unsent) => Ok(Outcome::Unsent(Box::new(unsent))),
                        None => Err(Error::Unknown(error.error().to_string())),
                    },
                }
            });
            tokio::select! {
                biased;
                outcome = &mut work => (outcome, true),
                // The connection may be over before its last bytes have been taken.
                () = &mut connection => (work.await, false),
            }
        };
        let outcome = outcome?;
        if is_alive && matches!(outcome, Outcome::Answered(..)) {
            self.open = Some(Open { sender, connection });
        }
        Ok(outcome)
    }
}

impl Open {
    async fn new(door: &Door) -> Result<Open, Error> {
        let stream = door.connect().await?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| door.unreachable(&error))?;
        let connection = Box::pin(async {
            // What went wrong is told to whoever waits for the answer.
            let _ = connection.await;
        });
        Ok(Open { sender, connection })
    }
}

async fn read(body: Incoming) -> Result<Bytes, Error> {
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    Ok(body.map_err(|error| Error::Unknown(error.to_string()))?.to_bytes())
}

#[expect(clippy::disallowed_methods, reason = "whoever uses a client has no kernel that names waits")]
async fn within<T>(time: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(time, work).await.ok()
}
