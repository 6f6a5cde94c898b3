//! From the bytes of a connection to frames.

use bytes::{Buf as _, Bytes, BytesMut};

use crate::header::{Header, frame_len};
use crate::{Frame, FrameError, HEADER_BYTES};

/// Bytes of room for one read at most.
pub const READ_BYTES: usize = 64 * 1024;
/// Bytes of room for one read of a connection on which little comes.
pub const READ_BYTES_MIN: usize = 4 * 1024;

/// Cuts what was read into frames.
///
/// The caller reads into the spare room of [`Decoder::buffer`] and then takes frames with [`Decoder::next`] until there
/// are none. The room follows what arrives, not what a header declares: four bytes that promise a mebibyte pin
/// [`READ_BYTES_MIN`], and the buffer is never larger than twice what has arrived of a frame and [`READ_BYTES`].
#[derive(Debug)]
pub struct Decoder {
    /// What was read and is not yet part of a frame handed out.
    unread: BytesMut,
    frame_bytes_max: usize,
    /// Bytes of room the next read gets; doubled while reads fill half of it, halved while they use an eighth.
    read_bytes: usize,
    /// Bytes that were unread, and bytes of room, when the buffer was lent out.
    lent: Option<(usize, usize)>,
}

impl Decoder {
    /// A decoder that refuses frames of more than so many bytes.
    pub fn new(frame_bytes_max: usize) -> Decoder {
        Decoder { unread: BytesMut::new(), frame_bytes_max, read_bytes: READ_BYTES_MIN, lent: None }
    }

    /// Changes the bound, after a HELLO agreed on one. It holds from the next header on.
    pub fn set_frame_bytes_max(&mut self, frame_bytes_max: usize) {
        self.frame_bytes_max = frame_bytes_max;
    }

    /// The buffer to append what is read to; it has room.
    pub fn buffer(&mut self) -> &mut BytesMut {
        self.buffer_for(0)
    }

    /// The same with room for so many bytes, which have arrived elsewhere.
    pub fn buffer_for(&mut self, arrived: usize) -> &mut BytesMut {
        self.learn();
        // After a burst the large buffer goes once reads have stayed small: most connections are quiet mostly.
        if self.unread.is_empty() && self.unread.capacity() > self.read_bytes * 4 {
            self.unread = BytesMut::new();
        }
        let room = self.unread.capacity() - self.unread.len();
        // What is left of a buffer is used up to a quarter: payloads that are still held somewhere would make each
        // reservation a new allocation, and one for each read is too many.
        if room < arrived.max(self.read_bytes / 4) {
            // Both in one step: a second reservation would copy all of the first, still without content.
            self.unread.reserve(arrived.max(self.read_bytes));
        }
        let room = self.unread.capacity() - self.unread.len();
        self.lent = Some((self.unread.len(), room));
        &mut self.unread
    }

    /// The next whole frame; `None` if more must be read first. After an error there is no next frame, only the error.
    #[expect(clippy::should_implement_trait, reason = "an iterator would end at the first None, and this goes on")]
    pub fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        self.learn();
        let Some(first) = self.unread.first_chunk::<4>() else { return Ok(None) };
        let len = frame_len(*first, self.frame_bytes_max)?;
        let Some(bytes) = self.unread.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let header = Header::parse(bytes, self.frame_bytes_max)?;
        Ok((self.unread.len() >= len).then(|| self.take(&header)))
    }

    /// True if the beginning of a frame has arrived and its end has not: the time of a slow sender runs.
    pub fn is_inside_frame(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Gives memory back; for a connection that has gone quiet. Does nothing inside a frame.
    pub fn shrink(&mut self) {
        if self.unread.is_empty() {
            *self = Decoder::new(self.frame_bytes_max);
        }
    }

    /// Bytes of memory that the buffer holds, apart from what frames handed out keep alive.
    pub fn capacity(&self) -> usize {
        self.unread.capacity()
    }

    fn take(&mut self, header: &Header) -> Frame {
        let mut rest = self.unread.split_to(header.len);
        rest.advance(HEADER_BYTES);
        let cap = if header.cap_len == 0 { Bytes::new() } else { rest.split_to(header.cap_len).freeze() };
        // An empty slice would keep the buffer alive for nothing.
        let payload = if rest.is_empty() { Bytes::new() } else { rest.freeze() };
        let Header { flags, code, app, tenant, corr, .. } = *header;
        Frame { flags, code, app, tenant, corr, cap, payload, tail: None }
    }

    /// Fits the room of the next read to what the last one brought.
    fn learn(&mut self) {
        let Some((unread_before, room)) = self.lent.take() else { return };
        let read = self.unread.len().saturating_sub(unread_before);
        if read >= room / 2 {
            self.read_bytes = (self.read_bytes * 2).min(READ_BYTES);
        } else if read < self.read_bytes / 8 {
            self.read_bytes = (self.read_bytes / 2).max(READ_BYTES_MIN);
        }
    }
}
