//! The protocol `/macronode/index/1` on a stream: a length, then a message, once each way.
//!
//! It runs in the task of a connection, so that reading and refusing what a peer sends never holds up the others.

use std::io;
use std::sync::Arc;

use libp2p::StreamProtocol;
use libp2p::futures::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use libp2p::request_response::Codec;
use ron_cells::Budget;
use ron_store::wire::{self, Answer, Request};
use ron_types::limits::dht as limits;
use tokio::sync::oneshot;

use crate::metrics::Counts;

/// The protocol.
pub(crate) const PROTOCOL: StreamProtocol = StreamProtocol::new(wire::PROTOCOL);

/// Bytes of the length before a message.
const LENGTH_BYTES: usize = 4;

/// A request on its way out, or one that came in.
#[derive(Debug)]
pub(crate) struct Asking {
    pub request: Request,
    /// Resolves when whoever asks no longer waits; none for a request that came in.
    pub cancelled: Option<oneshot::Receiver<()>>,
    /// Bytes that a request took which came in.
    pub bytes: usize,
}

/// Reads and writes messages. libp2p clones the first one for each connection, and that one for each of its streams.
pub(crate) struct IndexCodec {
    counts: Arc<Counts>,
    /// Bytes of requests that are being read from this connection; none before there is a connection.
    memory: Option<Arc<Budget>>,
    /// As that of [`Asking`], of the request that this stream carries.
    cancelled: Option<oneshot::Receiver<()>>,
}

impl IndexCodec {
    pub fn new(counts: Arc<Counts>) -> Self {
        IndexCodec { counts, memory: None, cancelled: None }
    }

    async fn read_length<T: AsyncRead + Unpin + Send>(&self, io: &mut T, bytes_max: usize) -> io::Result<usize> {
        let mut length = [0; LENGTH_BYTES];
        io.read_exact(&mut length).await?;
        let length = u32::from_be_bytes(length) as usize;
        if length > bytes_max {
            self.counts.refused.oversized.inc();
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message longer than the protocol has it"));
        }
        Ok(length)
    }

    /// The bytes of a request, while the connection has room for them.
    async fn read_bounded<T: AsyncRead + Unpin + Send>(&self, io: &mut T) -> io::Result<Vec<u8>> {
        let length = self.read_length(io, wire::REQUEST_BYTES_MAX).await?;
        let share = self.memory.as_ref().map(|memory| memory.try_take(length));
        if matches!(share, Some(None)) {
            self.counts.refused.memory.inc();
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, "too many requests are being read"));
        }
        read_all(io, length).await
    }

    /// The bytes of an answer; their number is bounded by that of the questions.
    async fn read_answer<T: AsyncRead + Unpin + Send>(&self, io: &mut T) -> io::Result<Vec<u8>> {
        let length = self.read_length(io, wire::ANSWER_BYTES_MAX).await?;
        read_all(io, length).await
    }

    fn garbage(&self, error: wire::WireError) -> io::Error {
        self.counts.refused.garbage.inc();
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}

/// As many bytes as announced. Memory is taken as they arrive: announcing costs a peer nothing.
async fn read_all<T: AsyncRead + Unpin + Send>(io: &mut T, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io.take(length as u64).read_to_end(&mut bytes).await?;
    if bytes.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

/// Ends as the work does, or as soon as nobody waits for it. The stream is then dropped. QUIC tells the other side;
/// yamux does not, because libp2p closes its half after the request: there the answer is thrown away when it comes.
async fn unless_cancelled<O>(
    cancelled: &mut Option<oneshot::Receiver<()>>,
    work: impl Future<Output = io::Result<O>>,
) -> io::Result<O> {
    let Some(cancelled) = cancelled else { return work.await };
    tokio::select! {
        biased;
        _ = cancelled => Err(io::Error::new(io::ErrorKind::Interrupted, "nobody waits for the answer")),
        output = work => output,
    }
}

async fn write<T: AsyncWrite + Unpin + Send>(io: &mut T, message: &[u8], bytes_max: usize) -> io::Result<()> {
    let length = u32::try_from(message.len()).ok().filter(|_| message.len() <= bytes_max);
    let length = length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a message too long to send"))?;
    io.write_all(&length.to_be_bytes()).await?;
    io.write_all(message).await?;
    io.flush().await
}

impl Clone for IndexCodec {
    fn clone(&self) -> Self {
        let of_connection = || Arc::new(Budget::new(limits::READING_BYTES_PER_CONNECTION_MAX));
        let memory = self.memory.clone().unwrap_or_else(of_connection);
        IndexCodec { counts: Arc::clone(&self.counts), memory: Some(memory), cancelled: None }
    }
}

impl Codec for IndexCodec {
    type Protocol = StreamProtocol;
    type Request = Asking;
    type Response = Answer;

    async fn read_request<T>(&mut self, _: &StreamProtocol, io: &mut T) -> io::Result<Asking>
    where
        T: AsyncRead + Unpin + Send,
    {
        let bytes = self.read_bounded(io).await?;
        let request = Request::decode(&bytes).map_err(|error| self.garbage(error))?;
        Ok(Asking { request, cancelled: None, bytes: bytes.len() })
    }

    async fn read_response<T>(&mut self, _: &StreamProtocol, io: &mut T) -> io::Result<Answer>
    where
        T: AsyncRead + Unpin + Send,
    {
        let mut cancelled = self.cancelled.take();
        let bytes = unless_cancelled(&mut cancelled, self.read_answer(io)).await?;
        Answer::decode(&bytes).map_err(|error| self.garbage(error))
    }

    async fn write_request<T>(&mut self, _: &StreamProtocol, io: &mut T, asking: Asking) -> io::Result<()>
    where
        T: AsyncWrite + Unpin + Send,
    {
        self.cancelled = asking.cancelled;
        let message = asking.request.encode().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        unless_cancelled(&mut self.cancelled, write(io, &message, wire::REQUEST_BYTES_MAX)).await
    }

    async fn write_response<T>(&mut self, _: &StreamProtocol, io: &mut T, answer: Answer) -> io::Result<()>
    where
        T: AsyncWrite + Unpin + Send,
    {
        write(io, &answer.encode(), wire::ANSWER_BYTES_MAX).await
    }
}
