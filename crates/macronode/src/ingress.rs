//! The framed plane: length-prefixed frames from TCP connections into the work queue, replies back.
//!
//! A frame is a 4-byte big-endian length and that many bytes. Every request frame gets one reply frame, whose first
//! byte says what follows: [`REPLY_OK`] the payload, [`REPLY_PROBLEM`] a JSON problem with the code of the error
//! taxonomy.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ron_kernel::connection_limiter::{ConnectionLimiter, Slot};
use ron_kernel::scope::Children;
use ron_kernel::{Deadline, Metrics, Snapshot, TaskContext, TaskError, TaskResult};
use ron_types::{Error, Kind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::config::Config;
use crate::work::{Task, WorkPort};

/// First byte of a reply that carries a payload.
pub const REPLY_OK: u8 = 0;
/// First byte of a reply that carries a problem.
pub const REPLY_PROBLEM: u8 = 1;

/// After a failed accept the listener rests this long: the usual cause is a lack of file descriptors.
const ACCEPT_REST: Duration = Duration::from_millis(50);
/// What is read, and for how long, of a peer that has been refused but still sends.
const LINGER_TIME: Duration = Duration::from_secs(1);
const LINGER_CHUNK: usize = 16 * 1024;
const LINGER_CHUNKS_MAX: usize = 256;
/// Pause between two rounds in which the listener forgets quiet addresses and beats.
const TIDY_EVERY: Duration = Duration::from_millis(500);

/// The task: accepts connections and reads their frames until it is told to stop.
pub async fn transport_ingress(
    context: TaskContext,
    listener: std::net::TcpListener,
    config: Snapshot<Config>,
    work: WorkPort,
) -> TaskResult {
    let listener = TcpListener::from_std(listener).map_err(|error| TaskError::Failed(error.to_string()))?;
    let metrics = Arc::clone(context.kernel().metrics());
    let mut limiter = ConnectionLimiter::new("oap", &metrics, config.get().value.connection_limits());
    // The limiter bounds connections by limits that may change; this only catches what the limiter cannot.
    let mut connections = Children::new("oap_connection", usize::MAX, &metrics);
    let mut tidy = tokio::time::interval(TIDY_EVERY);
    context.ready().await;
    loop {
        let accepted = tokio::select! {
            biased;
            () = context.stopping() => break,
            _ = tidy.tick() => {
                context.beat();
                limiter.tidy();
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let Some(slot) = limiter.admit(peer.ip(), config.get().value.connection_limits()) else {
                    // One try: a refusal must not wait until the refused peer reads.
                    let _ = stream.try_write(&reply_frame(Err(Error::busy("the listener, or your address's share,"))));
                    continue;
                };
                let connection = Connection {
                    stream,
                    peer,
                    context: context.clone(),
                    config: config.clone(),
                    work: work.clone(),
                    metrics: Arc::clone(&metrics),
                    _slot: slot,
                };
                connections.spawn(connection.serve());
            }
            Err(error) => {
                metrics.io_errors.at("accept").inc();
                tracing::warn!(%error, "cannot accept");
                tokio::time::sleep(ACCEPT_REST).await;
            }
        }
    }
    drop(listener);
    connections.finish(context.stop_deadline()).await;
    Ok(())
}

/// One peer. It owns its stream; nobody else reads or writes it.
struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    context: TaskContext,
    config: Snapshot<Config>,
    work: WorkPort,
    metrics: Arc<Metrics>,
    /// Slot of the connection at the listener, given back when the connection ends.
    _slot: Slot,
}

/// Reason why no frame was read.
enum NoFrame {
    /// The peer closed between two frames, or the node is stopping.
    Done,
    /// The peer broke a rule and is told so before the connection closes.
    Refused(Error),
    /// The stream failed.
    Broken(io::Error),
}

impl Connection {
    async fn serve(mut self) {
        let _ = self.stream.set_nodelay(true);
        let mut patience = self.config.get().value.tls.handshake_timeout.duration();
        loop {
            match self.next_frame(patience).await {
                Ok(frame) => {
                    let deadline = Deadline::after(self.config.get().value.http.request_deadline.duration());
                    let reply = self.work.ask(Task::Frame(frame), deadline).await;
                    if let Err(error) = self.write_reply(reply).await {
                        tracing::debug!(peer = %self.peer, %error, "the peer went away during a write");
                        self.metrics.io_errors.at("write").inc();
                        return;
                    }
                }
                Err(NoFrame::Done) => break,
                Err(NoFrame::Refused(error)) => {
                    self.count_refusal(&error);
                    let _ = self.write_reply(Err(error)).await;
                    return self.close_with_input_left().await;
                }
                Err(NoFrame::Broken(error)) => {
                    self.metrics.io_errors.at("read").inc();
                    tracing::debug!(peer = %self.peer, %error, "the connection broke");
                    return;
                }
            }
            patience = self.config.get().value.io.idle_timeout.duration();
        }
        let _ = self.stream.shutdown().await;
    }

    /// Closing a socket with unread input resets it, and the reset may overtake the reply: some of it is read first.
    async fn close_with_input_left(mut self) {
        let _ = self.stream.shutdown().await;
        let mut waste = vec![0; LINGER_CHUNK];
        let until = Deadline::after(LINGER_TIME);
        for _ in 0..LINGER_CHUNKS_MAX {
            match until.run("linger", self.stream.read(&mut waste)).await {
                Ok(Ok(read)) if read > 0 => {}
                _ => return,
            }
        }
    }

    fn count_refusal(&self, error: &Error) {
        match error.kind {
            Kind::FrameTooLarge => self.metrics.frame_rejects.at("too_large").inc(),
            Kind::Timeout => self.metrics.io_timeouts.at("read").inc(),
            _ => self.metrics.frame_rejects.at("malformed").inc(),
        };
    }

    /// Waits up to `patience` for a frame to begin; once begun, it must be complete within the read timeout.
    async fn next_frame(&mut self, patience: Duration) -> Result<Bytes, NoFrame> {
        let mut header = [0_u8; 4];
        let begin = tokio::select! {
            biased;
            begin = Deadline::after(patience).run("frame", self.stream.read(&mut header[..1])) => begin,
            () = self.context.stopping() => return Err(NoFrame::Done),
        };
        match begin.map_err(NoFrame::Refused)? {
            Ok(0) => return Err(NoFrame::Done),
            Ok(_) => {}
            Err(error) => return Err(NoFrame::Broken(error)),
        }
        let config = self.config.get();
        let read_by = Deadline::after(config.value.io.read_timeout.duration());
        let (frame_bytes_max, chunk) = (config.value.oap.max_frame_bytes.bytes(), config.value.io.chunk_bytes.bytes());
        read_by.run("frame", self.finish_frame(header, frame_bytes_max, chunk)).await.map_err(NoFrame::Refused)?
    }

    async fn finish_frame(
        &mut self,
        mut header: [u8; 4],
        frame_bytes_max: usize,
        chunk: usize,
    ) -> Result<Bytes, NoFrame> {
        self.stream.read_exact(&mut header[1..]).await.map_err(NoFrame::Broken)?;
        let length = u32::from_be_bytes(header) as usize;
        if length > frame_bytes_max {
            let detail = format!("a frame of {length} bytes; at most {frame_bytes_max} are taken");
            return Err(NoFrame::Refused(Error::new(Kind::FrameTooLarge, detail)));
        }
        // Memory grows with what has arrived, not with what was announced.
        let mut frame = BytesMut::with_capacity(length.min(chunk));
        while frame.len() < length {
            let rest = length - frame.len();
            frame.reserve(rest.min(chunk));
            let read = (&mut self.stream).take(rest as u64).read_buf(&mut frame).await.map_err(NoFrame::Broken)?;
            if read == 0 {
                return Err(NoFrame::Broken(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        Ok(frame.freeze())
    }

    async fn write_reply(&mut self, reply: Result<Bytes, Error>) -> io::Result<()> {
        let frame = reply_frame(reply);
        let write_by = Deadline::after(self.config.get().value.io.write_timeout.duration());
        write_by.run("write", self.stream.write_all(&frame)).await.map_err(|_| {
            self.metrics.io_timeouts.at("write").inc();
            io::Error::from(io::ErrorKind::TimedOut)
        })?
    }
}

fn reply_frame(reply: Result<Bytes, Error>) -> BytesMut {
    let (mark, payload) = match reply {
        Ok(payload) => (REPLY_OK, payload),
        Err(error) => (REPLY_PROBLEM, problem(&error)),
    };
    let mut frame = BytesMut::with_capacity(5 + payload.len());
    frame.extend_from_slice(&(payload.len() as u32 + 1).to_be_bytes());
    frame.extend_from_slice(&[mark]);
    frame.extend_from_slice(&payload);
    frame
}

fn problem(error: &Error) -> Bytes {
    let body = serde_json::json!({
        "code": error.kind.code(),
        "title": error.kind.title(),
        "detail": error.detail,
        "retry_after_ms": error.retry_after.map(|wait| wait.as_millis() as u64),
    });
    Bytes::from(body.to_string())
}
