//! The fixed header: its bytes and the rules that it alone can break.

use bytes::{Buf, BufMut};

use crate::{AppId, Flags, FrameError, HEADER_BYTES, VERSION};

/// The fields of a header that keeps the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// Bytes of the whole frame.
    pub(crate) len: usize,
    pub(crate) flags: Flags,
    pub(crate) code: u16,
    pub(crate) app: AppId,
    pub(crate) tenant: u128,
    /// Bytes of the capability.
    pub(crate) cap_len: usize,
    pub(crate) corr: u64,
}

/// Length of the frame that begins with these four bytes. It is judged before anything else of the frame is there.
pub(crate) fn frame_len(first: [u8; 4], frame_bytes_max: usize) -> Result<usize, FrameError> {
    // On a platform with 16-bit addresses the length saturates, and is refused.
    let len = usize::try_from(u32::from_be_bytes(first)).unwrap_or(usize::MAX);
    if len < HEADER_BYTES {
        Err(FrameError::TooSmall { len })
    } else if len > frame_bytes_max {
        Err(FrameError::TooLarge { len, max: frame_bytes_max })
    } else {
        Ok(len)
    }
}

impl Header {
    /// Reads a header and checks its rules, in the order of its fields.
    pub(crate) fn parse(bytes: &[u8; HEADER_BYTES], frame_bytes_max: usize) -> Result<Header, FrameError> {
        let [a, b, c, d, rest @ ..] = bytes;
        let len = frame_len([*a, *b, *c, *d], frame_bytes_max)?;
        let mut rest: &[u8] = rest;
        let version = rest.get_u16();
        if version != VERSION {
            return Err(FrameError::Version { version });
        }
        let bits = rest.get_u16();
        let flags = Flags::from_bits(bits).ok_or(FrameError::UnknownFlags { bits })?;
        let header = Header {
            len,
            flags,
            code: rest.get_u16(),
            app: AppId(rest.get_u16()),
            tenant: rest.get_u128(),
            cap_len: usize::from(rest.get_u16()),
            corr: rest.get_u64(),
        };
        header.check()?;
        Ok(header)
    }

    /// The rules between fields.
    pub(crate) fn check(&self) -> Result<(), FrameError> {
        let is_response = self.flags.contains(Flags::RESP);
        if !self.flags.has_one_direction() {
            Err(FrameError::Direction)
        } else if is_response && !(100..600).contains(&self.code) {
            Err(FrameError::ResponseCode { code: self.code })
        } else if !is_response && self.code != 0 {
            Err(FrameError::CodeWithoutResponse)
        } else if self.cap_len > 0 && !self.flags.contains(Flags::START) {
            Err(FrameError::CapWithoutStart)
        } else if HEADER_BYTES + self.cap_len > self.len {
            Err(FrameError::CapBeyondFrame { cap_len: self.cap_len })
        } else {
            Ok(())
        }
    }

    /// Writes the header.
    pub(crate) fn put(&self, out: &mut impl BufMut) {
        let mut bytes = [0; HEADER_BYTES];
        let mut room = &mut bytes[..];
        // Lengths that do not fit are the caller's defect (`Frame::check`). They are written as the largest number,
        // which every decoder refuses, rather than as a smaller one, which would put the peer out of step.
        room.put_u32(u32::try_from(self.len).unwrap_or(u32::MAX));
        room.put_u16(VERSION);
        room.put_u16(self.flags.bits());
        room.put_u16(self.code);
        room.put_u16(self.app.0);
        room.put_u128(self.tenant);
        room.put_u16(u16::try_from(self.cap_len).unwrap_or(u16::MAX));
        room.put_u64(self.corr);
        out.put_slice(&bytes);
    }
}
