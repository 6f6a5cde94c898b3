//! An answer without an end: its bytes as they come, over a connection of its own.

use std::pin::Pin;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

use crate::endpoint::Endpoint;
use crate::error::LinkError;

/// The answer to one request, read while it is being written. Dropping it closes the connection.
pub struct StreamingAnswer {
    status: StatusCode,
    headers: HeaderMap,
    body: Incoming,
    /// It moves only while somebody waits for bytes; none once it has ended.
    connection: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl StreamingAnswer {
    /// Asks over a new connection and waits for the beginning of the answer.
    pub async fn open(endpoint: &Endpoint, request: Request<Full<Bytes>>) -> Result<StreamingAnswer, LinkError> {
        let stream = TokioIo::new(endpoint.connect().await?);
        let shaken = http1::handshake(stream).await;
        let (mut sender, connection) = shaken.map_err(|error| LinkError::Closed(error.to_string()))?;
        let mut connection: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async {
            // What went wrong is told to whoever waits for bytes.
            let _ = connection.await;
        });
        let mut asking = Box::pin(sender.send_request(request));
        let (response, is_alive) = tokio::select! {
            biased;
            response = &mut asking => (response, true),
            () = &mut connection => (asking.await, false),
        };
        let response = response.map_err(|error| LinkError::Lost(error.to_string()))?;
        let (head, body) = response.into_parts();
        let connection = is_alive.then_some(connection);
        Ok(StreamingAnswer { status: head.status, headers: head.headers, body, connection })
    }

    /// The status of HTTP.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The headers of the answer.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The next bytes; none at the end. Cancel-safe.
    pub async fn next(&mut self) -> Option<Result<Bytes, LinkError>> {
        loop {
            let frame = match &mut self.connection {
                None => self.body.frame().await,
                Some(connection) => tokio::select! {
                    biased;
                    frame = self.body.frame() => frame,
                    () = connection => {
                        // Its last bytes may still wait to be taken.
                        self.connection = None;
                        continue;
                    }
                },
            };
            match frame?.map(hyper::body::Frame::into_data) {
                Ok(Ok(bytes)) => return Some(Ok(bytes)),
                Ok(Err(_trailers)) => {}
                Err(error) => return Some(Err(LinkError::Lost(error.to_string()))),
            }
        }
    }
}
