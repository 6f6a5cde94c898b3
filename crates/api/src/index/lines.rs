//! Bodies of a line for each record: sent as the record becomes known, also while they are compressed.

use std::convert::Infallible;
use std::io::Write as _;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::{Stream, StreamExt as _, stream};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde::Serialize;

use super::negotiation::NDJSON;

/// Bytes of all lines of one answer, before compression: Kubo reads no more than a mebibyte.
pub(super) const LINES_BYTES_MAX: usize = 1024 * 1024 - 4096;
/// Tells proxies of the nginx family to pass lines on as they come.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Bounds of one answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineLimits {
    pub lines_max: usize,
    pub bytes_max: usize,
}

/// Writes lines, compressed if the caller can read that.
enum LineWriter {
    Plain,
    Gzip(Box<GzEncoder<Vec<u8>>>),
}

impl LineWriter {
    fn new(is_gzip: bool) -> Self {
        match is_gzip {
            // The level only decides how hard repetitions are looked for, and a line is short.
            true => LineWriter::Gzip(Box::new(GzEncoder::new(Vec::new(), Compression::fast()))),
            false => LineWriter::Plain,
        }
    }

    /// The bytes after which a reader has the whole line.
    fn line(&mut self, text: Vec<u8>) -> Bytes {
        match self {
            LineWriter::Plain => text.into(),
            LineWriter::Gzip(encoder) => {
                let written = encoder.write_all(&text).and_then(|()| encoder.flush());
                written.expect("a vector can be written to");
                std::mem::take(encoder.get_mut()).into()
            }
        }
    }

    /// The last bytes; none if nothing is missing.
    fn end(self) -> Option<Bytes> {
        match self {
            LineWriter::Plain => None,
            LineWriter::Gzip(encoder) => Some(encoder.finish().expect("a vector can be written to").into()),
        }
    }
}

struct State<S> {
    items: S,
    writer: LineWriter,
    lines_left: usize,
    bytes_left: usize,
}

/// The answer whose lines are the items of the stream, as far as the limits reach.
pub(super) fn response<T, S>(items: S, limits: LineLimits, is_gzip: bool) -> Response
where
    T: Serialize + Send,
    S: Stream<Item = T> + Send + Unpin + 'static,
{
    let LineLimits { lines_max, bytes_max } = limits;
    let writer = LineWriter::new(is_gzip);
    let state = State { items, writer, lines_left: lines_max, bytes_left: bytes_max };
    let pieces = stream::unfold(Some(state), |state| async {
        let (piece, state) = next_piece(state?).await;
        piece.map(|piece| (Ok::<_, Infallible>(piece), state))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(NDJSON));
    headers.insert(BUFFERING, HeaderValue::from_static("no"));
    add_coding(headers, is_gzip);
    response
}

/// The next bytes of the body, and what remains to be sent after them.
async fn next_piece<T, S>(mut state: State<S>) -> (Option<Bytes>, Option<State<S>>)
where
    T: Serialize,
    S: Stream<Item = T> + Unpin,
{
    let item = match state.lines_left {
        0 => None,
        _ => state.items.next().await,
    };
    let text = item.and_then(|item| line_of(&item)).filter(|text| text.len() <= state.bytes_left);
    let Some(text) = text else { return (state.writer.end(), None) };
    state.lines_left -= 1;
    state.bytes_left -= text.len();
    (Some(state.writer.line(text)), Some(state))
}

fn line_of(item: &impl Serialize) -> Option<Vec<u8>> {
    let mut text = serde_json::to_vec(item)
        .inspect_err(|error| tracing::error!(%error, "a line could not be written as JSON"))
        .ok()?;
    text.push(b'\n');
    Some(text)
}

/// The same bytes compressed, with the header that says so; short ones are not worth it.
pub(super) fn whole(headers: &mut HeaderMap, bytes: Vec<u8>, is_gzip: bool) -> Bytes {
    const WORTH_BYTES: usize = 1024;
    if !is_gzip || bytes.len() < WORTH_BYTES {
        return bytes.into();
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 2), Compression::fast());
    let packed = encoder.write_all(&bytes).and_then(|()| encoder.finish());
    add_coding(headers, true);
    packed.expect("a vector can be written to").into()
}

fn add_coding(headers: &mut HeaderMap, is_gzip: bool) {
    if is_gzip {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;
    use http_body_util::BodyExt as _;
    use tokio::sync::oneshot;

    use super::*;

    const LIMITS: LineLimits = LineLimits { lines_max: 1000, bytes_max: LINES_BYTES_MAX };

    /// Two lines, each of which comes when the test says so.
    fn two_lines() -> ([oneshot::Sender<&'static str>; 2], impl Stream<Item = &'static str> + Send + Unpin) {
        let [(first, one), (second, two)] = [(); 2].map(|()| oneshot::channel());
        let items = stream::iter([one, two]).then(|line| async { line.await.expect("the test says it") });
        ([first, second], Box::pin(items))
    }

    async fn frame(body: &mut Body) -> Option<Bytes> {
        body.frame().await.map(|frame| frame.expect("no error").into_data().expect("data"))
    }

    /// As much as a reader can make of a compressed beginning.
    fn inflated(packed: &[u8]) -> String {
        let mut text = Vec::new();
        let mut decoder = GzDecoder::new(packed);
        let mut byte = [0];
        while decoder.read(&mut byte).is_ok_and(|count| count == 1) {
            text.push(byte[0]);
        }
        String::from_utf8(text).expect("text")
    }

    #[tokio::test]
    async fn the_first_line_can_be_read_before_the_second_is_known() {
        for is_gzip in [false, true] {
            let (senders, items) = two_lines();
            let mut body = response(items, LIMITS, is_gzip).into_body();
            let mut seen = Vec::new();
            let steps = [("one", "\"one\"\n"), ("two", "\"one\"\n\"two\"\n")];
            for (sender, (sent, expected)) in senders.into_iter().zip(steps) {
                sender.send(sent).expect("somebody reads");
                seen.extend(frame(&mut body).await.expect("a line"));
                let text = if is_gzip { inflated(&seen) } else { String::from_utf8(seen.clone()).expect("text") };
                assert_eq!(text, expected, "gzip: {is_gzip}");
            }
            while let Some(bytes) = frame(&mut body).await {
                seen.extend(bytes);
            }
            if is_gzip {
                let mut whole = String::new();
                GzDecoder::new(&seen[..]).read_to_string(&mut whole).expect("a whole stream with its checksum");
                assert_eq!(whole, "\"one\"\n\"two\"\n");
            }
        }
    }

    #[tokio::test]
    async fn lines_end_at_the_limits() {
        let count = async |limits: LineLimits| {
            let items = stream::iter(vec!["0123456789"; 50]);
            let body = response(items, limits, false).into_body().collect().await.expect("no error").to_bytes();
            assert!(body.len() <= limits.bytes_max);
            body.iter().filter(|byte| **byte == b'\n').count()
        };
        assert_eq!(count(LineLimits { lines_max: 7, bytes_max: 10_000 }).await, 7);
        // Each line has thirteen bytes.
        assert_eq!(count(LineLimits { lines_max: 50, bytes_max: 40 }).await, 3);
        assert_eq!(count(LineLimits { lines_max: 50, bytes_max: 12 }).await, 0);
        assert_eq!(count(LineLimits { lines_max: 0, bytes_max: 10_000 }).await, 0);
    }

    #[tokio::test]
    async fn nothing_is_an_empty_body_that_can_be_read() {
        let empty = async |is_gzip| {
            let response = response(stream::empty::<String>(), LIMITS, is_gzip);
            let is_marked = response.headers().contains_key(header::CONTENT_ENCODING);
            (is_marked, response.into_body().collect().await.expect("no error").to_bytes())
        };
        assert_eq!(empty(false).await, (false, Bytes::new()));
        let (is_marked, packed) = empty(true).await;
        let mut text = String::new();
        GzDecoder::new(&packed[..]).read_to_string(&mut text).expect("a whole stream");
        assert!(is_marked && text.is_empty());
    }

    #[test]
    fn a_long_document_is_compressed_for_those_who_ask() {
        let long = vec![b'a'; 5000];
        let mut headers = HeaderMap::new();
        assert_eq!(whole(&mut headers, long.clone(), false).len(), 5000);
        assert_eq!(whole(&mut headers, b"short".to_vec(), true), "short");
        assert!(headers.is_empty());
        let packed = whole(&mut headers, long, true);
        assert_eq!((inflated(&packed).len(), headers[header::CONTENT_ENCODING].as_bytes()), (5000, &b"gzip"[..]));
    }
}
