//! Text files, plain or packed, cut into blocks of whole records while their bytes are hashed.

use std::fs::File;
use std::io::{self, Read};
use std::sync::{Arc, Mutex};

use crate::crew::lock;
use crate::csv::Header;
use crate::input::{InputError, InputFile, Limits};
use crate::limits::LINE_BYTES_MAX;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How the records of a text file are written.
#[derive(Clone, Debug)]
pub enum TextFormat {
    /// Comma-separated values below a header.
    Csv(Arc<Header>),
    /// One JSON object on each line.
    Ndjson,
}

/// A text file that is being read.
pub struct TextFile {
    name: String,
    source: Source,
    unpacked: Box<dyn Read + Send>,
    /// Bytes that belong to no block yet.
    buffer: Vec<u8>,
    is_at_end: bool,
    unpacked_bytes: u64,
    unpacked_bytes_max: u64,
    format: TextFormat,
}

/// The file below the unpacking; shared with it, because the hash is needed after the last byte.
#[derive(Clone)]
struct Source(Arc<Mutex<HashedFile>>);

struct HashedFile {
    file: File,
    hasher: blake3::Hasher,
    length: u64,
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut source = lock(&self.0);
        let length = source.file.read(buffer)?;
        source.hasher.update(&buffer[..length]);
        source.length += length as u64;
        Ok(length)
    }
}

impl TextFile {
    /// Opens a file whose first bytes are known; tells the format by the first byte that was unpacked.
    pub fn open(input: &InputFile, file: File, magic: &[u8], limits: &Limits) -> Result<TextFile, InputError> {
        let source = Source(Arc::new(Mutex::new(HashedFile { file, hasher: blake3::Hasher::new(), length: 0 })));
        let failed = |error| failed(&input.name, error);
        let unpacked: Box<dyn Read + Send> = match magic {
            [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(source.clone())),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => {
                let mut decoder = zstd::Decoder::new(source.clone()).map_err(failed)?;
                // A hostile frame asks for a window of gigabytes; eight megabytes are what ordinary levels use.
                let window_log = if limits.memory_bytes >= 1 << 30 { 27 } else { 23 };
                decoder.window_log_max(window_log).map_err(failed)?;
                Box::new(decoder)
            }
            _ => Box::new(source.clone()),
        };
        let mut text = TextFile {
            name: input.name.clone(),
            source,
            unpacked,
            buffer: Vec::new(),
            is_at_end: false,
            unpacked_bytes: 0,
            unpacked_bytes_max: limits.unpacked_bytes_max,
            format: TextFormat::Ndjson,
        };
        text.start()?;
        Ok(text)
    }

    /// Finds out the format, and takes the header off.
    fn start(&mut self) -> Result<(), InputError> {
        self.fill()?;
        if self.buffer.starts_with(BYTE_ORDER_MARK) {
            self.buffer.drain(..BYTE_ORDER_MARK.len());
        }
        if self.buffer.starts_with(b"PAR1") {
            return Err(self.bad("a packed Parquet file: Parquet has its own compression, give it as it is".to_owned()));
        }
        let is_ndjson = self.buffer.trim_ascii_start().first().is_none_or(|byte| *byte == b'{');
        if is_ndjson {
            return Ok(());
        }
        let end = memchr::memchr(b'\n', &self.buffer).unwrap_or(self.buffer.len());
        let header = Header::read(&self.buffer[..end]).map_err(|reason| self.bad(reason))?;
        self.buffer.drain(..(end + 1).min(self.buffer.len()));
        self.format = TextFormat::Csv(Arc::new(header));
        Ok(())
    }

    /// How its records are written.
    pub fn format(&self) -> TextFormat {
        self.format.clone()
    }

    /// Reads until a block is full or the file ends.
    fn fill(&mut self) -> Result<(), InputError> {
        let room = LINE_BYTES_MAX.saturating_sub(self.buffer.len());
        if self.is_at_end || room == 0 {
            return Ok(());
        }
        self.buffer.reserve_exact(room);
        let read = self.unpacked.by_ref().take(room as u64).read_to_end(&mut self.buffer);
        let length = read.map_err(|error| failed(&self.name, error))?;
        self.is_at_end = length < room;
        self.unpacked_bytes += length as u64;
        if self.unpacked_bytes > self.unpacked_bytes_max {
            let (name, most) = (&self.name, self.unpacked_bytes_max);
            return Err(InputError::TooMuch(format!("{name}: unpacks to more than {most} bytes")));
        }
        Ok(())
    }

    /// The next records, and how many bytes of the file were read for them; none at the end.
    pub fn next_block(&mut self) -> Result<Option<(Vec<u8>, u64)>, InputError> {
        let before = lock(&self.source.0).length;
        self.fill()?;
        if self.buffer.is_empty() {
            return Ok(None);
        }
        let end = if self.is_at_end { self.buffer.len() } else { self.last_end().ok_or_else(|| self.too_long())? };
        let rest = self.buffer.split_off(end);
        let block = std::mem::replace(&mut self.buffer, rest);
        Ok(Some((block, lock(&self.source.0).length - before)))
    }

    /// End of the last whole record in the buffer. A line end between quotes ends no record.
    fn last_end(&self) -> Option<usize> {
        if matches!(self.format, TextFormat::Ndjson) || memchr::memchr(b'"', &self.buffer).is_none() {
            return memchr::memrchr(b'\n', &self.buffer).map(|end| end + 1);
        }
        let (mut is_quoted, mut last) = (false, None);
        for at in memchr::memchr2_iter(b'"', b'\n', &self.buffer) {
            match self.buffer[at] {
                b'"' => is_quoted = !is_quoted,
                _ if !is_quoted => last = Some(at + 1),
                _ => {}
            }
        }
        last
    }

    /// Hash and length of the file, of which all bytes were read.
    pub fn end(mut self) -> Result<(blake3::Hash, u64), InputError> {
        // What follows the packed data belongs to the file as well.
        io::copy(&mut self.source, &mut io::sink()).map_err(|error| failed(&self.name, error))?;
        let source = lock(&self.source.0);
        Ok((source.hasher.finalize(), source.length))
    }

    fn bad(&self, reason: String) -> InputError {
        InputError::BadFile { file: self.name.clone(), reason }
    }

    fn too_long(&self) -> InputError {
        let start = self.unpacked_bytes - self.buffer.len() as u64;
        self.bad(format!("the record at byte {start} is longer than {LINE_BYTES_MAX} bytes; is a quote not closed?"))
    }
}

/// Damage of packed data is the file's; everything else is the disk's.
fn failed(name: &str, error: io::Error) -> InputError {
    let is_damage = !matches!(error.raw_os_error(), Some(code) if code > 0);
    if is_damage {
        return InputError::BadFile { file: name.to_owned(), reason: format!("cannot be unpacked: {error}") };
    }
    InputError::Io { file: name.to_owned(), source: error }
}
