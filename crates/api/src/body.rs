//! Request bodies: read whole under a cap and a pause limit, and inflated without being blown up.

use std::io::Read;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use bytes::{Bytes, BytesMut};
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use futures_util::{Stream, stream};
use http::request::Parts;
use http::{HeaderMap, StatusCode, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use ron_kernel::deadline;
use ron_types::Error;
use ron_types::limits::CHUNK_BYTES;

use crate::admission::Admission;
use crate::call::Call;
use crate::limits::BodyLimits;
use crate::problem::{Counted, Problem};

/// A body as it came over the wire, which is what a signature covers; what it says comes out of `inflated`.
pub(crate) struct WireBody {
    pub bytes: Bytes,
    coding: Option<Coding>,
    limits: BodyLimits,
    admission: Admission,
}

/// A body that is about to be read; the rest of its request need not be kept for that.
pub(crate) struct Reading {
    body: Body,
    coding: Option<Coding>,
    limits: BodyLimits,
    admission: Admission,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    Gzip,
    /// The zlib format, as HTTP defines the word.
    Deflate,
}

/// Short texts may be as repetitive as they like: inflating to less than this is never judged by its ratio.
const RATIO_FLOOR_BYTES: usize = 64 * 1024;

/// Inflating more than this would hold up the other requests of the thread.
const INFLATE_INLINE_BYTES_MAX: usize = 64 * 1024;

/// Splits a request into its head and a reader of its body.
pub(crate) fn begin(request: Request, call: &Call) -> Result<(Parts, Reading), Problem> {
    let (parts, body) = request.into_parts();
    let coding = if body.is_end_stream() { None } else { coding(&parts.headers)? };
    Ok((parts, Reading { body, coding, limits: call.limits, admission: call.admission.clone() }))
}

impl Reading {
    /// The same with another bound on the body, for an operation that reads it under a bound of its own.
    pub(crate) fn up_to(mut self, body_bytes_max: usize) -> Result<Self, Problem> {
        self.limits.body_bytes_max = body_bytes_max;
        if self.body.size_hint().lower() > body_bytes_max as u64 {
            return Err(too_large(body_bytes_max));
        }
        Ok(self)
    }

    /// Reads and inflates the whole body.
    pub(crate) async fn whole(self) -> Result<Bytes, Problem> {
        self.wire().await?.inflated().await
    }

    /// Reads the whole body and leaves it as it came.
    pub(crate) async fn wire(self) -> Result<WireBody, Problem> {
        let bytes = collect(self.body, &self.limits, &self.admission).await?;
        Ok(WireBody { bytes, coding: self.coding, limits: self.limits, admission: self.admission })
    }
}

impl WireBody {
    /// What the body says, inflated if it was sent compressed.
    pub(crate) async fn inflated(self) -> Result<Bytes, Problem> {
        let WireBody { bytes: sent, coding, limits, admission } = self;
        let Some(coding) = coding else { return Ok(sent) };
        let BodyLimits { body_bytes_max, inflate_ratio_max, .. } = limits;
        admission.hold_body(sent.len() + inflated_bytes_max(sent.len(), body_bytes_max, inflate_ratio_max))?;
        Box::pin(inflate_somewhere(coding, sent, &limits)).await
    }
}

/// A body that its handler reads piece by piece, however long it is: nothing of it gathers in memory.
pub(crate) struct Pieces {
    body: Body,
    limits: BodyLimits,
    /// Bytes the caller announced; 0 if it did not say.
    pub announced: u64,
}

impl FromRequest<Call> for Pieces {
    type Rejection = Problem;

    async fn from_request(request: Request, call: &Call) -> Result<Self, Problem> {
        let (parts, Reading { body, coding, limits, .. }) = begin(request, call)?;
        if coding.is_some() {
            let detail = "a body that is addressed by its hash is taken as it is: Content-Encoding must be absent";
            return Err(Problem::schema(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
        }
        drop(parts);
        let announced = body.size_hint().lower();
        Ok(Pieces { body, limits, announced })
    }
}

impl Pieces {
    /// The pieces as they come; a pause longer than allowed ends them with an error.
    pub(crate) fn into_stream(self) -> impl Stream<Item = Result<Bytes, Error>> + Send + Unpin {
        Box::pin(stream::unfold(Some(self), |state| async move {
            let mut pieces = state?;
            let next = pieces.next().await.transpose()?;
            let rest = next.is_ok().then_some(pieces);
            Some((next, rest))
        }))
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let reading = deadline::within(self.limits.read_timeout, "read", self.body.frame());
            let Some(frame) = reading.await? else { return Ok(None) };
            let frame = frame.map_err(|_| Error::schema("the body broke off or is not framed as HTTP demands"))?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }
}

pub(crate) fn too_large(body_bytes_max: usize) -> Problem {
    Problem::too_large(format!("the body is over {body_bytes_max} bytes"), Counted::LargeBody)
}

fn coding(headers: &HeaderMap) -> Result<Option<Coding>, Problem> {
    let mut values = headers.get_all(header::CONTENT_ENCODING).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(unknown_coding());
    }
    let named = |name: &str| value.as_bytes().trim_ascii().eq_ignore_ascii_case(name.as_bytes());
    match () {
        () if named("gzip") || named("x-gzip") => Ok(Some(Coding::Gzip)),
        () if named("deflate") => Ok(Some(Coding::Deflate)),
        () if named("identity") || named("") => Ok(None),
        () => Err(unknown_coding()),
    }
}

fn unknown_coding() -> Problem {
    Problem::schema(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Content-Encoding must be gzip or deflate, once, or absent")
}

/// Reads a body, whose bytes are reserved before they are read: all that were announced, or piece by piece.
async fn collect(mut body: Body, limits: &BodyLimits, admission: &Admission) -> Result<Bytes, Problem> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    admission.hold_body(announced)?;
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    // A body whose length was declared is known to be over without being asked again.
    while !body.is_end_stream() {
        let reading = deadline::within(limits.read_timeout, "read", body.frame());
        let Some(frame) = reading.await.map_err(|_| stalled(limits))? else { break };
        let Ok(data) = frame.map_err(|_| broken())?.into_data() else { continue };
        let bytes = first.len() + all.len() + data.len();
        if bytes > limits.body_bytes_max {
            return Err(too_large(limits.body_bytes_max));
        }
        // Most bodies come in one piece, which then is not copied.
        if first.is_empty() && all.is_empty() {
            first = data;
        } else {
            if bytes > announced {
                // The buffer grows by doubling, so it may be twice as large as what is in it.
                admission.hold_body(2 * bytes)?;
            }
            if all.is_empty() {
                all.reserve(bytes.max(announced));
            }
            all.extend_from_slice(&std::mem::take(&mut first));
            all.extend_from_slice(&data);
        }
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

fn stalled(limits: &BodyLimits) -> Problem {
    let detail = format!("the body paused for more than {:?}", limits.read_timeout);
    let error = ron_types::Error::new(ron_types::Kind::Timeout, detail);
    Problem { counted: Counted::StalledBody, closes: true, ..Problem::from(error) }
}

fn broken() -> Problem {
    let problem = Problem::schema(StatusCode::BAD_REQUEST, "the body broke off or is not framed as HTTP demands");
    Problem { closes: true, ..problem }
}

async fn inflate_somewhere(coding: Coding, sent: Bytes, limits: &BodyLimits) -> Result<Bytes, Problem> {
    let (cap, ratio_max) = (limits.body_bytes_max, limits.inflate_ratio_max);
    if sent.len() <= INFLATE_INLINE_BYTES_MAX {
        return inflate(coding, &sent, cap, ratio_max);
    }
    let inflating = tokio::task::spawn_blocking(move || inflate(coding, &sent, cap, ratio_max));
    inflating.await.unwrap_or_else(|_| Err(Problem::internal("inflating the body failed")))
}

fn inflate(coding: Coding, sent: &[u8], body_bytes_max: usize, ratio_max: usize) -> Result<Bytes, Problem> {
    match coding {
        Coding::Gzip => inflate_from(MultiGzDecoder::new(sent), sent.len(), body_bytes_max, ratio_max),
        Coding::Deflate => inflate_from(ZlibDecoder::new(sent), sent.len(), body_bytes_max, ratio_max),
    }
}

fn inflated_bytes_max(sent_bytes: usize, body_bytes_max: usize, ratio_max: usize) -> usize {
    sent_bytes.saturating_mul(ratio_max).max(RATIO_FLOOR_BYTES).min(body_bytes_max)
}

fn inflate_from(
    mut decoder: impl Read,
    sent_bytes: usize,
    body_bytes_max: usize,
    ratio_max: usize,
) -> Result<Bytes, Problem> {
    let allowed = inflated_bytes_max(sent_bytes, body_bytes_max, ratio_max);
    // Pieces, joined once their sum is known: a buffer that doubles would leave its halves behind, which many bodies at
    // once make costly.
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    let mut inflated = 0;
    loop {
        // One byte past what is allowed tells apart "exactly full" and "too much".
        let room = (allowed - inflated + 1).min(CHUNK_BYTES);
        let mut piece = Vec::with_capacity(room);
        let got =
            decoder.by_ref().take(room as u64).read_to_end(&mut piece).map_err(|_| {
                Problem::schema(StatusCode::BAD_REQUEST, "the body is not what its Content-Encoding says")
            })?;
        inflated += got;
        if inflated > allowed {
            let detail = format!("the body inflates to more than {allowed} bytes or {ratio_max} times its size");
            return Err(Problem::too_large(detail, Counted::Inflation));
        }
        if got == 0 {
            return Ok(Bytes::from(pieces.concat()));
        }
        pieces.push(piece);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};

    use super::*;

    fn packed(coding: Coding, content: &[u8]) -> Vec<u8> {
        match coding {
            Coding::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(content).expect("a vector grows");
                encoder.finish().expect("a vector grows")
            }
            Coding::Deflate => {
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(content).expect("a vector grows");
                encoder.finish().expect("a vector grows")
            }
        }
    }

    fn outcome(coding: Coding, sent: &[u8], body_bytes_max: usize) -> Result<usize, u16> {
        inflate(coding, sent, body_bytes_max, 10)
            .map(|content| content.len())
            .map_err(|problem| problem.status.as_u16())
    }

    #[test]
    fn growth_is_bounded_by_ratio_and_size_but_short_texts_pass() {
        let mib = 1024 * 1024;
        // Pseudo-random letters, so that the compressor finds little.
        let letters: Vec<u8> =
            (0..200_000_u64).map(|n| (n.wrapping_mul(n).wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for coding in [Coding::Gzip, Coding::Deflate] {
            for (content, cap, expected) in [
                (vec![b'a'; 60_000], mib, Ok(60_000)),
                (vec![b'a'; RATIO_FLOOR_BYTES], mib, Ok(RATIO_FLOOR_BYTES)),
                (vec![b'a'; RATIO_FLOOR_BYTES + 1], mib, Err(413)),
                (vec![0; 50 * mib], 100 * mib, Err(413)),
                (letters.clone(), mib, Ok(letters.len())),
                (letters.clone(), letters.len(), Ok(letters.len())),
                (letters.clone(), letters.len() - 1, Err(413)),
                (Vec::new(), mib, Ok(0)),
            ] {
                let sent = packed(coding, &content);
                assert_eq!(outcome(coding, &sent, cap), expected, "{coding:?} {} bytes", content.len());
            }
        }
    }

    #[test]
    fn what_does_not_inflate_is_the_callers_mistake() {
        assert_eq!(outcome(Coding::Gzip, b"plain text", 1024), Err(400));
        let whole = packed(Coding::Gzip, b"a text that is cut off");
        assert_eq!(outcome(Coding::Gzip, &whole[..whole.len() - 6], 1024), Err(400));
        assert_eq!(outcome(Coding::Deflate, &whole, 1024), Err(400));
    }

    #[test]
    fn one_known_coding_is_understood() {
        let of = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::CONTENT_ENCODING, http::HeaderValue::from_static(value));
            }
            coding(&headers).map_err(|problem| problem.status.as_u16())
        };
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&["identity"]), Ok(None));
        assert_eq!(of(&["GZIP"]), Ok(Some(Coding::Gzip)));
        assert_eq!(of(&["deflate"]), Ok(Some(Coding::Deflate)));
        assert_eq!(of(&["br"]), Err(415));
        assert_eq!(of(&["gzip, deflate"]), Err(415));
        assert_eq!(of(&["gzip", "gzip"]), Err(415));
    }
}
