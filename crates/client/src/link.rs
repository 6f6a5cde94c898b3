//! One kept connection: a request, its answer, and a new connection when the old one has ended.

use std::pin::{Pin, pin};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use ron_types::limits::mailbox as limits;

use crate::endpoint::Endpoint;
use crate::error::LinkError;

/// A receive of the largest size is well below, and so is the largest message if every byte of its attributes is
/// escaped.
const ANSWER_BYTES_MAX: usize = 2 * limits::ANSWER_BYTES_MAX;

const _: () = assert!(limits::PAYLOAD_BYTES_MAX * 2 + limits::ENVELOPE_ATTRIBUTE_BYTES_MAX * 6 < ANSWER_BYTES_MAX);

/// A connection, open or not yet.
#[derive(Default)]
pub struct Link {
    open: Option<Open>,
}

/// Open connection; its future is polled only while a request is under way.
struct Open {
    sender: SendRequest<Full<Bytes>>,
    connection: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// Fate of a request.
enum Outcome {
    Answered(Response<Bytes>),
    /// The connection had ended before anything went out.
    Unsent(Box<Request<Full<Bytes>>>),
}

impl Link {
    /// With its connection open, so that a wrong address is known early.
    pub async fn opened(endpoint: &Endpoint) -> Result<Link, LinkError> {
        Ok(Link { open: Some(Open::new(endpoint).await?) })
    }

    /// Sends a request over the connection that is open, or over a new one if the node has closed it. Whoever gives up
    /// waiting closes the connection by that.
    pub async fn exchange(
        &mut self,
        endpoint: &Endpoint,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Bytes>, LinkError> {
        let mut request = request;
        if let Some(open) = self.open.take() {
            match self.exchange_over(open, request).await? {
                Outcome::Answered(response) => return Ok(response),
                Outcome::Unsent(unsent) => request = *unsent,
            }
        }
        let open = Open::new(endpoint).await?;
        match self.exchange_over(open, request).await? {
            Outcome::Answered(response) => Ok(response),
            Outcome::Unsent(_) => Err(LinkError::Closed("it closed the connection at once".to_owned())),
        }
    }

    async fn exchange_over(&mut self, open: Open, request: Request<Full<Bytes>>) -> Result<Outcome, LinkError> {
        let Open { mut sender, mut connection } = open;
        let (outcome, is_alive) = {
            let mut work = pin!(async {
                match sender.try_send_request(request).await {
                    Ok(response) => read(response).await.map(Outcome::Answered),
                    Err(mut error) => match error.take_message() {
                        Some(unsent) => Ok(Outcome::Unsent(Box::new(unsent))),
                        None => Err(LinkError::Lost(error.error().to_string())),
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
        if is_alive && matches!(outcome, Outcome::Answered(_)) {
            self.open = Some(Open { sender, connection });
        }
        Ok(outcome)
    }
}

impl Open {
    async fn new(endpoint: &Endpoint) -> Result<Open, LinkError> {
        let stream = TokioIo::new(endpoint.connect().await?);
        let shaken = http1::handshake(stream).await;
        let (sender, connection) = shaken.map_err(|error| LinkError::Closed(error.to_string()))?;
        let connection = Box::pin(async {
            // What went wrong is told to whoever waits for the answer.
            let _ = connection.await;
        });
        Ok(Open { sender, connection })
    }
}

async fn read(response: Response<Incoming>) -> Result<Response<Bytes>, LinkError> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| LinkError::Lost(error.to_string()))?;
    Ok(Response::from_parts(head, body.to_bytes()))
}
