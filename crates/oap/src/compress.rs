//! Payloads compressed by zstd (flag COMP), and inflated under hard bounds.

use std::io;

use bytes::Bytes;
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation as _, OutBuffer};

use crate::status::{self, Status};
use crate::{FRAME_BYTES_MAX, HEADER_BYTES};

/// A payload may grow at most this many times.
pub const RATIO_MAX: usize = 10;
/// Binary logarithm of the largest window of a compressed payload: 1 MiB, because no payload is larger.
pub const WINDOW_LOG_MAX: u32 = FRAME_BYTES_MAX.ilog2();
/// Bytes of output that are made room for at once.
const STEP_BYTES: usize = 32 * 1024;

/// Why a compressed payload is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InflateError {
    /// It would be larger than a frame may be, or than ten times itself.
    #[error("the payload inflates to more than {max} bytes")]
    TooLarge {
        /// Bytes it might have had.
        max: usize,
    },
    /// It is not one whole frame of zstd, or one with a window of more than 1 MiB.
    #[error("the payload is not one zstd frame")]
    Malformed,
}

impl InflateError {
    /// Code of the answer.
    pub const fn code(&self) -> Status {
        match self {
            InflateError::TooLarge { .. } => status::TOO_LARGE,
            InflateError::Malformed => status::BAD_REQUEST,
        }
    }
}

/// Compresses a payload; `None` where that gains nothing, or so much that the other side would take it for a bomb.
pub fn deflate(payload: &[u8], level: i32) -> Option<Bytes> {
    // With the size known beforehand, zstd chooses a window that is no larger than the payload.
    let deflated = zstd::bulk::compress(payload, level).ok()?;
    let is_worth_it = deflated.len() < payload.len() && payload.len() <= deflated.len() * RATIO_MAX;
    is_worth_it.then(|| deflated.into())
}

/// Inflates a payload to at most what a frame of so many bytes can carry, and to at most [`RATIO_MAX`] times itself.
/// Output is made room for as it comes, whatever size the payload declares.
pub fn inflate(payload: &[u8], frame_bytes_max: usize) -> Result<Bytes, InflateError> {
    let max = frame_bytes_max.saturating_sub(HEADER_BYTES).min(payload.len().saturating_mul(RATIO_MAX));
    let mut decoder = decoder().map_err(|_| InflateError::Malformed)?;
    let mut input = InBuffer::around(payload);
    let mut inflated: Vec<u8> = Vec::new();
    loop {
        // One byte of room beyond the bound, to see whether there is more.
        let room = STEP_BYTES.min(max + 1 - inflated.len());
        let filled = inflated.len();
        inflated.resize(filled + room, 0);
        let mut output = OutBuffer::around(&mut inflated[filled..]);
        let wanted = decoder.run(&mut input, &mut output).map_err(|_| InflateError::Malformed)?;
        let written = output.pos();
        inflated.truncate(filled + written);
        if inflated.len() > max {
            return Err(InflateError::TooLarge { max });
        }
        let is_all_read = input.pos() == payload.len();
        match (wanted, is_all_read) {
            (0, true) => return Ok(inflated.into()),
            // The frame is over and something follows, or the input is over and something is missing.
            (0, false) => return Err(InflateError::Malformed),
            (_, true) if written < room => return Err(InflateError::Malformed),
            _ => {}
        }
    }
}

fn decoder() -> io::Result<Decoder<'static>> {
    let mut decoder = Decoder::new()?;
    decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX))?;
    Ok(decoder)
}
