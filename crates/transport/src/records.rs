//! The record layer that both halves of a session share: bytes of the connection in, plain bytes out, and back.
//!
//! rustls does the work, through its interface without buffers of its own: an idle session then holds none, and neither
//! half holds the lock while it waits for the socket.

use bytes::BytesMut;
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic};
use rustls::{CommonState, Error};

use crate::sync::{Mutex, lock};

/// Bytes that a record adds: header, content type, tag.
const RECORD_OVERHEAD: usize = 22;
/// Plain bytes of a record at most.
const RECORD_PLAIN_MAX: usize = 16 * 1024;
/// Bytes that may wait for the rest of a record or of a handshake message. rustls bounds both; this bounds rustls.
const LEFTOVER_BYTES_MAX: usize = 80 * 1024;

/// One side of a TLS connection.
pub(crate) struct Records(Mutex<Inner>);

struct Inner {
    side: Side,
    /// What has arrived and is no whole record yet. Both halves hand it to rustls, whose place in it must not change.
    leftover: Vec<u8>,
    /// Alerts that were made while reading; they go out before what is sealed next.
    unsent: Outgoing,
    /// Whether the other side has said that it sends no more.
    is_peer_done: bool,
    /// The error after which rustls is not asked again: it would find the same bytes wrong a second time.
    broken: Option<Error>,
}

pub(crate) enum Side {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

/// Bytes for the connection. The buffer keeps its length between uses, so that it is not zeroed each time.
#[derive(Default)]
pub(crate) struct Outgoing {
    /// Behind [`UNUSED_BYTES`].
    bytes: Vec<u8>,
    filled: usize,
}

/// Bytes before those for the connection: rustls copies records there from the beginning of a page, and must not copy
/// them to nearly the same place of another (ADR 18).
const UNUSED_BYTES: usize = 2048;

/// What a call of rustls is for.
enum Want<'a> {
    /// Whatever there is to be read.
    Read,
    /// To encrypt these bytes.
    Seal(&'a [u8]),
    /// To encrypt the end of what this side sends.
    End,
}

/// What a call of rustls came to.
enum Progress {
    /// It has to be called again.
    Again,
    /// It wants more bytes, or was given the chance to write.
    Settled,
    /// The bytes that were to be sealed are sealed.
    Sealed,
    /// The other side is done.
    PeerDone,
}

impl Records {
    pub(crate) fn new(side: Side) -> Self {
        let unsent = Outgoing::default();
        Records(Mutex::new(Inner { side, leftover: Vec::new(), unsent, is_peer_done: false, broken: None }))
    }

    /// Takes bytes that arrived, `input[from..]`. Before them there must be room for what is left of earlier ones,
    /// which is copied there. Plain bytes are appended to `plain`.
    pub(crate) fn open(&self, input: &mut [u8], from: usize, plain: &mut BytesMut) -> Result<(), Error> {
        let mut inner = lock(&self.0);
        let leftover = std::mem::take(&mut inner.leftover);
        match from.checked_sub(leftover.len()) {
            Some(start) => {
                input[start..from].copy_from_slice(&leftover);
                inner.open(&mut input[start..], plain)
            }
            // Only a handshake message in many records leaves this much, and only before the first byte of data.
            None => inner.open(&mut [&leftover, &input[from..]].concat(), plain),
        }
    }

    /// Encrypts `plain` to the end of `out`, after alerts that are due.
    pub(crate) fn seal(&self, plain: &[u8], out: &mut Outgoing) -> Result<(), Error> {
        let mut inner = lock(&self.0);
        inner.take_unsent(out);
        inner.seal(Want::Seal(plain), out)
    }

    /// Encrypts the end of what this side sends.
    pub(crate) fn seal_end(&self, out: &mut Outgoing) -> Result<(), Error> {
        let mut inner = lock(&self.0);
        inner.take_unsent(out);
        inner.seal(Want::End, out)
    }

    /// Alerts and handshake messages that are due.
    pub(crate) fn take_unsent(&self, out: &mut Outgoing) {
        lock(&self.0).take_unsent(out);
    }

    /// Whether the handshake is not over yet.
    pub(crate) fn is_handshaking(&self) -> bool {
        lock(&self.0).common().is_handshaking()
    }

    /// Whether the other side has said that it sends no more.
    pub(crate) fn is_peer_done(&self) -> bool {
        lock(&self.0).is_peer_done
    }

    /// Whether the beginning of a record has arrived and its end has not.
    pub(crate) fn is_inside_record(&self) -> bool {
        !lock(&self.0).leftover.is_empty()
    }

    /// Bytes that wait for the rest of a record.
    pub(crate) fn leftover_bytes(&self) -> usize {
        lock(&self.0).leftover.capacity()
    }

    /// Has the keys of what this side sends changed.
    #[cfg(test)]
    pub(crate) fn refresh_keys(&self) {
        fn refresh<Data>(status: UnbufferedStatus<'_, '_, Data>) {
            let Ok(ConnectionState::WriteTraffic(traffic)) = status.state else { panic!("not settled") };
            traffic.refresh_traffic_keys().expect("TLS 1.3");
        }
        let mut inner = lock(&self.0);
        let Inner { side, leftover, .. } = &mut *inner;
        match side {
            Side::Client(connection) => refresh(connection.process_tls_records(leftover)),
            Side::Server(connection) => refresh(connection.process_tls_records(leftover)),
        }
    }

    /// Looks at what the handshake came to.
    pub(crate) fn inspect<T>(&self, look: impl FnOnce(&CommonState) -> T) -> T {
        look(lock(&self.0).common())
    }
}

impl Inner {
    fn open(&mut self, input: &mut [u8], plain: &mut BytesMut) -> Result<(), Error> {
        self.check()?;
        let mut at = 0;
        let mut unsent = std::mem::take(&mut self.unsent);
        let outcome = loop {
            let (discard, progress) = self.side.process(&mut input[at..], &Want::Read, plain, &mut unsent);
            at += discard;
            match progress {
                Ok(Progress::Again) => {}
                Ok(Progress::PeerDone) => self.is_peer_done = true,
                Ok(Progress::Settled | Progress::Sealed) => break Ok(()),
                Err(error) => {
                    self.collect_alert(&mut input[at..], &mut unsent);
                    break Err(error);
                }
            }
        };
        self.unsent = unsent;
        self.leftover = input[at..].to_vec();
        let outcome = outcome.and_then(|()| match self.leftover.len() {
            ..=LEFTOVER_BYTES_MAX => Ok(()),
            _ => Err(Error::General("a record or handshake message without end".to_owned())),
        });
        self.broken = outcome.as_ref().err().cloned();
        outcome
    }

    /// The alert that tells the other side of an error; rustls makes one at most.
    fn collect_alert(&mut self, input: &mut [u8], out: &mut Outgoing) {
        if self.common().wants_write() {
            let _ = self.side.process(input, &Want::Read, &mut BytesMut::new(), out);
        }
    }

    fn check(&self) -> Result<(), Error> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    fn seal(&mut self, want: Want<'_>, out: &mut Outgoing) -> Result<(), Error> {
        self.check()?;
        // Nothing to read is left to be decrypted here: the reader takes all there is.
        let mut no_plain = BytesMut::new();
        loop {
            let (discard, progress) = self.side.process(&mut self.leftover, &want, &mut no_plain, out);
            self.leftover.drain(..discard);
            debug_assert!(no_plain.is_empty(), "the reader leaves no whole record");
            match progress? {
                Progress::Again => {}
                Progress::PeerDone => self.is_peer_done = true,
                Progress::Sealed => return Ok(()),
                Progress::Settled => return Err(Error::HandshakeNotComplete),
            }
        }
    }

    fn take_unsent(&mut self, out: &mut Outgoing) {
        let unsent = std::mem::take(&mut self.unsent);
        out.extend(unsent.filled());
    }

    fn common(&self) -> &CommonState {
        match &self.side {
            Side::Client(connection) => connection,
            Side::Server(connection) => connection,
        }
    }
}

impl Side {
    fn process(
        &mut self,
        input: &mut [u8],
        want: &Want<'_>,
        plain: &mut BytesMut,
        out: &mut Outgoing,
    ) -> (usize, Result<Progress, Error>) {
        match self {
            Side::Client(connection) => handle(connection.process_tls_records(input), want, plain, out),
            Side::Server(connection) => handle(connection.process_tls_records(input), want, plain, out),
        }
    }
}

fn handle<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    want: &Want<'_>,
    plain: &mut BytesMut,
    out: &mut Outgoing,
) -> (usize, Result<Progress, Error>) {
    let mut discard = status.discard;
    let progress = match status.state {
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                Some(Ok(record)) => {
                    discard += record.discard;
                    oap::put_in_steps(plain, record.payload);
                }
                Some(Err(error)) => break Err(error),
                None => break Ok(Progress::Again),
            }
        },
        Ok(ConnectionState::EncodeTlsData(mut data)) => out.fill_with(|room| match data.encode(room) {
            Ok(written) => Filled::Done(Ok(written)),
            Err(EncodeError::InsufficientSize(size)) => Filled::NeedsRoom(size.required_size),
            Err(EncodeError::AlreadyEncoded) => Filled::Done(Ok(0)),
        }),
        // What was encoded is in `out`, and everybody who has an `out` writes it: in this sense it is transmitted.
        Ok(ConnectionState::TransmitTlsData(data)) => {
            data.done();
            Ok(Progress::Again)
        }
        Ok(ConnectionState::WriteTraffic(mut traffic)) => write(&mut traffic, want, out),
        Ok(ConnectionState::PeerClosed) => Ok(Progress::PeerDone),
        Ok(_) => Ok(Progress::Settled),
        Err(error) => Err(error),
    };
    (discard, progress)
}

fn write<Data>(traffic: &mut WriteTraffic<'_, Data>, want: &Want<'_>, out: &mut Outgoing) -> Result<Progress, Error> {
    let filled = |outcome| match outcome {
        Ok(written) => Filled::Done(Ok(written)),
        Err(EncryptError::InsufficientSize(size)) => Filled::NeedsRoom(size.required_size),
        Err(EncryptError::EncryptExhausted) => Filled::Done(Err(Error::EncryptError)),
    };
    match want {
        Want::Read => return Ok(Progress::Settled),
        Want::Seal(plain) => {
            out.reserve(plain.len() + (plain.len() / RECORD_PLAIN_MAX + 1) * RECORD_OVERHEAD);
            out.fill_with(|room| filled(traffic.encrypt(plain, room)))?;
        }
        Want::End => {
            out.fill_with(|room| filled(traffic.queue_close_notify(room)))?;
        }
    }
    Ok(Progress::Sealed)
}

/// What an attempt to fill the free room of an [`Outgoing`] came to.
enum Filled {
    Done(Result<usize, Error>),
    NeedsRoom(usize),
}

impl Outgoing {
    /// The bytes to be written.
    pub(crate) fn filled(&self) -> &[u8] {
        self.bytes.get(UNUSED_BYTES..UNUSED_BYTES + self.filled).unwrap_or_default()
    }

    /// Forgets the bytes, keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.filled = 0;
    }

    /// Bytes of memory held.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    fn extend(&mut self, more: &[u8]) {
        self.reserve(more.len());
        self.free()[..more.len()].copy_from_slice(more);
        self.filled += more.len();
    }

    fn reserve(&mut self, room: usize) {
        let needed = UNUSED_BYTES + self.filled + room;
        if self.bytes.len() < needed {
            self.bytes.resize(needed, 0);
        }
    }

    fn free(&mut self) -> &mut [u8] {
        self.bytes.get_mut(UNUSED_BYTES + self.filled..).unwrap_or_default()
    }

    fn fill_with(&mut self, mut attempt: impl FnMut(&mut [u8]) -> Filled) -> Result<Progress, Error> {
        loop {
            match attempt(self.free()) {
                Filled::Done(written) => {
                    self.filled += written?;
                    return Ok(Progress::Again);
                }
                Filled::NeedsRoom(room) => self.reserve(room),
            }
        }
    }
}
