//! A Parquet file whose sizes are checked before the library believes them.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use parquet::arrow::arrow_reader::RowGroups;
use parquet::basic::Encoding;
use parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::{ChunkReader, Length, SerializedPageReader};

use super::footer::{self, varint};
use crate::limits::FOOTER_BYTES_MAX;

/// Bytes that are read for the head of a page; heads are some dozen bytes, or some hundred with statistics.
const HEAD_BYTES: usize = 512;

/// The bytes of a Parquet file.
#[derive(Debug)]
pub enum Bytes {
    /// On disk.
    File(File),
    /// In memory.
    Memory(bytes::Bytes),
}

/// A file that refuses pages and footers past a bound. Reads at places, so that threads do not share a position.
#[derive(Debug)]
pub struct GuardedFile {
    bytes: Bytes,
    length: u64,
    page_bytes_max: u64,
}

impl GuardedFile {
    /// Takes over a file.
    pub fn new(bytes: Bytes, page_bytes_max: u64) -> io::Result<GuardedFile> {
        let length = match &bytes {
            Bytes::File(file) => file.metadata()?.len(),
            Bytes::Memory(bytes) => bytes.len() as u64,
        };
        Ok(GuardedFile { bytes, length, page_bytes_max })
    }

    /// Length in bytes when it was opened.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Checks the footer, as far as the library would trust it.
    pub fn check_footer(&self) -> std::result::Result<(), String> {
        let mut end = [0; 8];
        let start = self.length.checked_sub(8).ok_or("too short for a Parquet file")?;
        let cut_off = |error: io::Error| format!("cannot be read: {error}");
        self.read_exact_at(&mut end, start).map_err(cut_off)?;
        let length = footer::length(&end)?;
        let start = start.checked_sub(length as u64).ok_or("its footer is longer than the file")?;
        let mut bytes = vec![0; length];
        self.read_exact_at(&mut bytes, start).map_err(cut_off)?;
        footer::check(&bytes)
    }

    /// BLAKE3 of all bytes.
    pub fn hash(&self) -> io::Result<blake3::Hash> {
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; 1 << 20];
        let mut at = 0;
        loop {
            match self.read_at(&mut buffer, at)? {
                0 => return Ok(hasher.finalize()),
                length => {
                    hasher.update(&buffer[..length]);
                    at += length as u64;
                }
            }
        }
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        match &self.bytes {
            Bytes::File(file) => file.read_at(buffer, at),
            Bytes::Memory(bytes) => {
                let rest = bytes.get(usize::try_from(at).unwrap_or(usize::MAX)..).unwrap_or_default();
                let length = rest.len().min(buffer.len());
                buffer[..length].copy_from_slice(&rest[..length]);
                Ok(length)
            }
        }
    }

    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            match self.read_at(&mut buffer[done..], at + done as u64)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => done += length,
            }
        }
        Ok(())
    }
}

impl Length for GuardedFile {
    fn len(&self) -> u64 {
        self.length
    }
}

impl ChunkReader for GuardedFile {
    type T = io::Cursor<Vec<u8>>;

    /// Called for the footer's end and for the head of each page.
    fn get_read(&self, start: u64) -> Result<io::Cursor<Vec<u8>>> {
        let mut head = vec![0; HEAD_BYTES];
        let mut length = 0;
        while length < head.len() {
            match self.read_at(&mut head[length..], start.saturating_add(length as u64))? {
                0 => break,
                more => length += more,
            }
        }
        head.truncate(length);
        // The end of the footer is no head of a page; row groups that reach into it were refused.
        let is_footer = start + 8 == self.length;
        if !is_footer {
            check_head(&head, self.page_bytes_max)?;
        }
        Ok(io::Cursor::new(head))
    }

    /// Called for the footer and for the body of each page.
    fn get_bytes(&self, start: u64, length: usize) -> Result<bytes::Bytes> {
        let most = self.page_bytes_max.max(FOOTER_BYTES_MAX as u64);
        if length as u64 > most {
            return Err(ParquetError::General(format!("a part of {length} bytes; at most {most}")));
        }
        if let Bytes::Memory(bytes) = &self.bytes {
            let start = usize::try_from(start)?;
            let is_within = start.checked_add(length).is_some_and(|end| end <= bytes.len());
            let outside = || ParquetError::EOF("a part lies outside the file".to_owned());
            return is_within.then(|| bytes.slice(start..start + length)).ok_or_else(outside);
        }
        let mut buffer = vec![0; length];
        self.read_exact_at(&mut buffer, start)?;
        Ok(buffer.into())
    }
}

/// Reads the sizes in the head of a page: a Thrift struct in compact form whose first fields are the kind of the page,
/// its unpacked and its packed size, each a 32-bit number. Every writer puts them first, in this order.
fn check_head(head: &[u8], most: u64) -> Result<()> {
    let mut rest = head;
    for _ in 0..3 {
        let Some((0x15, after)) = rest.split_first().map(|(byte, after)| (*byte, after)) else {
            return Err(ParquetError::General("the head of a page is damaged".to_owned()));
        };
        let (number, after) =
            varint(after).ok_or_else(|| ParquetError::EOF("the head of a page is cut off".to_owned()))?;
        // Zigzag: the lowest bit is the sign. Negative sizes are odd, and huge.
        let size = if number & 1 == 0 { number >> 1 } else { u64::MAX };
        if size > most {
            return Err(ParquetError::General(format!("a page of more than {most} bytes")));
        }
        rest = after;
    }
    Ok(())
}

/// One row group of a file.
pub struct RowGroup {
    file: Arc<GuardedFile>,
    metadata: Arc<ParquetMetaData>,
    group: usize,
}

impl RowGroup {
    /// The row group of this number.
    pub fn new(file: &Arc<GuardedFile>, metadata: &Arc<ParquetMetaData>, group: usize) -> RowGroup {
        RowGroup { file: Arc::clone(file), metadata: Arc::clone(metadata), group }
    }
}

impl RowGroups for RowGroup {
    fn num_rows(&self) -> usize {
        self.metadata.row_group(self.group).num_rows() as usize
    }

    fn column_chunks(&self, column: usize) -> Result<Box<dyn PageIterator>> {
        let group = self.metadata.row_group(self.group);
        let chunk = group.column(column);
        let pages = SerializedPageReader::new(Arc::clone(&self.file), chunk, self.num_rows(), None)?;
        let has_levels = chunk.column_descr().max_def_level() > 0;
        let pages = GuardedPages { pages, has_levels, values_left: group.num_rows() as u64 };
        Ok(Box::new(OneChunk(VecDeque::from([pages]))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(std::iter::once(self.metadata.row_group(self.group)))
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }
}

/// The only chunk of a column.
struct OneChunk(VecDeque<GuardedPages>);

impl Iterator for OneChunk {
    type Item = Result<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.pop_front().map(|pages| Ok(Box::new(pages) as Box<dyn PageReader>))
    }
}

impl PageIterator for OneChunk {}

/// Pages whose counts were checked.
struct GuardedPages {
    pages: SerializedPageReader<GuardedFile>,
    /// Whether values are preceded by a list of which are there.
    has_levels: bool,
    values_left: u64,
}

impl GuardedPages {
    fn check(&mut self, page: &Page) -> Result<()> {
        let refuse = |reason: &str| Err(ParquetError::General(reason.to_owned()));
        if let Page::DictionaryPage { buf, num_values, .. } = page {
            // The library reserves sixteen bytes for each value, before it reads one.
            return if *num_values as usize > buf.len() {
                refuse("a dictionary with more values than bytes")
            } else {
                Ok(())
            };
        }
        let values = u64::from(page.num_values());
        match self.values_left.checked_sub(values) {
            Some(left) => self.values_left = left,
            None => return refuse("a column with more values than rows"),
        }
        let body = match page {
            Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, .. } => {
                buf.get((*def_levels_byte_len as usize).saturating_add(*rep_levels_byte_len as usize)..)
            }
            page if self.has_levels => after_levels(page.buffer()),
            page => Some(page.buffer().as_ref()),
        };
        match page.encoding() {
            Encoding::DELTA_BYTE_ARRAY => refuse("the encoding DELTA_BYTE_ARRAY is not read; use plain or dictionary"),
            // The library makes room for as many values as the page says.
            Encoding::DELTA_BINARY_PACKED | Encoding::DELTA_LENGTH_BYTE_ARRAY
                if body.and_then(delta_values).is_none_or(|count| count > values) =>
            {
                refuse("a page with more values than its head says")
            }
            _ => Ok(()),
        }
    }
}

/// What follows the list of which values are there: four bytes of length, then the list.
fn after_levels(page: &[u8]) -> Option<&[u8]> {
    let (length, rest) = page.split_first_chunk::<4>()?;
    rest.get(u32::from_le_bytes(*length) as usize..)
}

/// Number of values in a delta-encoded page: the third number, after the sizes of its blocks.
fn delta_values(body: &[u8]) -> Option<u64> {
    let (_, rest) = varint(body)?;
    let (_, rest) = varint(rest)?;
    Some(varint(rest)?.0)
}

impl Iterator for GuardedPages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for GuardedPages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.pages.get_next_page()?;
        if let Some(page) = &page {
            self.check(page)?;
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    /// Nothing is skipped here, and what is not read is not checked.
    fn skip_next_page(&mut self) -> Result<()> {
        Err(ParquetError::General("pages are not skipped".to_owned()))
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.pages.at_record_boundary()
    }
}
