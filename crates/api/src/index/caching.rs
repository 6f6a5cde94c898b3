//! How long others may keep an answer of the routing API.

use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use axum::extract::FromRequestParts;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use ron_kernel::clock;
use svc_index::config::Access;
use svc_index::words::Outcome;

/// Answers with records: fresh for five minutes. Relay addresses of peers change within hours, so that an old answer
/// may be shown while a new one is fetched for ten minutes only, and for two days if the node cannot be reached.
const WITH_RECORDS: &str = "max-age=300, stale-while-revalidate=600, stale-if-error=172800";
/// Answers of those who looked everywhere and found none: somebody may publish at any moment.
const WITHOUT_RECORDS: &str = "max-age=15, stale-while-revalidate=60, stale-if-error=3600";
/// For nobody to keep.
pub(super) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
/// An answer depends on what its caller can read.
pub(super) const VARY: HeaderValue = HeaderValue::from_static("Accept, Accept-Encoding");

/// Life of an IPNS record that names none.
const IPNS_TTL_DEFAULT: Duration = Duration::from_secs(60);

/// Who may keep an answer, and for how long. A cache between caller and node gives what is `public` to everybody, also
/// to those without a token; where one is asked for, only the caller's own cache may keep it.
pub(super) fn life(access: Access, how_long: impl std::fmt::Display) -> HeaderValue {
    let keeper = match access {
        Access::Public => "public",
        Access::Token => "private",
    };
    HeaderValue::try_from(format!("{keeper}, {how_long}")).expect("words and numbers")
}

/// What an answer of the routing API is worth to a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CacheWorth {
    /// It has records.
    Records,
    /// It has none, and there are none that its caller wants.
    Nothing,
    /// Whether there are any, or others, could not be found out in time. The body looks the same as that of the others,
    /// so that only this keeps a cache from telling everybody that there are no more.
    Unknown,
}

impl CacheWorth {
    /// Of an answer whose search ended like this. Records that a filter left out were found all the same.
    pub(super) fn of(has_records: bool, outcome: Outcome) -> Self {
        match (has_records, outcome) {
            (true, Outcome::Found | Outcome::Absent) => CacheWorth::Records,
            (false, Outcome::Found | Outcome::Absent) => CacheWorth::Nothing,
            (_, Outcome::Unknown | Outcome::Degraded) => CacheWorth::Unknown,
        }
    }
}

/// Says how long an answer with or without records may be kept.
pub(super) fn add_records(headers: &mut HeaderMap, access: Access, worth: CacheWorth) {
    let how_long = match worth {
        CacheWorth::Records => life(access, WITH_RECORDS),
        CacheWorth::Nothing => life(access, WITHOUT_RECORDS),
        CacheWorth::Unknown => NO_STORE,
    };
    headers.insert(header::CACHE_CONTROL, how_long);
    headers.insert(header::VARY, VARY);
    add_time(headers, header::LAST_MODIFIED, clock::unix_millis());
}

/// Says how long an IPNS record may be kept: as long as it says itself, never beyond its end.
pub(super) fn add_ipns(
    headers: &mut HeaderMap,
    access: Access,
    ttl: Option<Duration>,
    valid_until_ms: u64,
    now_ms: u64,
) {
    headers.insert(header::VARY, VARY);
    add_time(headers, header::LAST_MODIFIED, now_ms);
    let left = Duration::from_millis(valid_until_ms.saturating_sub(now_ms)).as_secs();
    if left == 0 {
        headers.insert(header::CACHE_CONTROL, NO_STORE);
        return;
    }
    let fresh = ttl.unwrap_or(IPNS_TTL_DEFAULT).as_secs().min(left);
    let stale = left - fresh;
    let how_long = format_args!("max-age={fresh}, stale-while-revalidate={stale}, stale-if-error={stale}");
    headers.insert(header::CACHE_CONTROL, life(access, how_long));
    add_time(headers, header::EXPIRES, valid_until_ms);
}

/// Latest moment that a date of HTTP can name: the year 9999 has four digits, and the next does not.
const DATE_MS_MAX: u64 = 253_402_300_799_000;

fn add_time(headers: &mut HeaderMap, name: HeaderName, at_ms: u64) {
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(at_ms.min(DATE_MS_MAX));
    headers.extend(HeaderValue::try_from(httpdate::fmt_http_date(at)).ok().map(|value| (name, value)));
}

/// Names the bytes of an answer by their digest.
pub(super) fn add_etag(headers: &mut HeaderMap, etag: &str) {
    headers.extend(HeaderValue::try_from(etag).ok().map(|value| (header::ETAG, value)));
}

/// Headers of a request that say which answers its caller has. Few requests have any, and nobody asks for a copy of the
/// others.
pub(super) struct HeldTags(HeaderMap);

impl HeldTags {
    /// Whether the caller has the answer with this tag already.
    pub(super) fn has(&self, etag: &str) -> bool {
        is_known(&self.0, etag)
    }
}

impl<S: Sync> FromRequestParts<S> for HeldTags {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        let values = parts.headers.get_all(header::IF_NONE_MATCH).iter();
        Ok(HeldTags(values.map(|value| (header::IF_NONE_MATCH, value.clone())).collect()))
    }
}

/// Whether the caller has the answer with this tag already.
pub(super) fn is_known(headers: &HeaderMap, etag: &str) -> bool {
    let bare = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let texts = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).any(|tag| tag.trim() == "*" || bare(tag) == bare(etag))
}

/// The same answer without its content, for a caller that has it.
pub(super) fn not_modified(mut response: Response) -> Response {
    *response.status_mut() = http::StatusCode::NOT_MODIFIED;
    *response.body_mut() = axum::body::Body::empty();
    for name in [header::CONTENT_TYPE, header::CONTENT_LENGTH, header::CONTENT_ENCODING] {
        response.headers_mut().remove(name);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_800_000_000_000;

    fn ipns(ttl: Option<u64>, left_ms: i64) -> (String, Option<String>) {
        let mut headers = HeaderMap::new();
        let until = NOW_MS.saturating_add_signed(left_ms);
        add_ipns(&mut headers, Access::Public, ttl.map(Duration::from_secs), until, NOW_MS);
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        assert_eq!(text(header::VARY).as_deref(), Some("Accept, Accept-Encoding"));
        assert!(text(header::LAST_MODIFIED).is_some());
        (text(header::CACHE_CONTROL).unwrap_or_default(), text(header::EXPIRES))
    }

    #[test]
    fn an_ipns_record_is_kept_as_long_as_it_says_and_no_longer_than_it_is_valid() {
        let (life, ends) = ipns(Some(300), 3_600_000);
        assert_eq!(life, "public, max-age=300, stale-while-revalidate=3300, stale-if-error=3300");
        assert_eq!(ends.as_deref(), Some("Fri, 15 Jan 2027 09:00:00 GMT"));
        assert_eq!(ipns(None, 3_600_000).0, "public, max-age=60, stale-while-revalidate=3540, stale-if-error=3540");
        assert_eq!(ipns(Some(300), 10_000).0, "public, max-age=10, stale-while-revalidate=0, stale-if-error=0");
        assert_eq!(ipns(Some(300), 0), ("no-store".to_owned(), None));
        assert_eq!(ipns(Some(300), -5), ("no-store".to_owned(), None));
        // A record may claim to be valid for ever; a date cannot.
        let mut headers = HeaderMap::new();
        add_ipns(&mut headers, Access::Public, None, u64::MAX, NOW_MS);
        assert_eq!(headers.get(header::EXPIRES).expect("a date"), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn an_answer_without_records_is_soon_asked_for_again_and_one_that_nobody_could_give_at_once() {
        let life = |has_records, outcome| {
            let mut headers = HeaderMap::new();
            add_records(&mut headers, Access::Public, CacheWorth::of(has_records, outcome));
            headers[header::CACHE_CONTROL].to_str().expect("text").to_owned()
        };
        assert!(life(true, Outcome::Found).contains("max-age=300,"));
        assert!(life(false, Outcome::Absent).contains("max-age=15,"));
        assert!(life(false, Outcome::Found).contains("max-age=15,"), "a filter left out what was found");
        for nobody_could_say in [Outcome::Unknown, Outcome::Degraded] {
            assert_eq!(life(false, nobody_could_say), "no-store");
        }
    }

    #[test]
    fn where_a_token_is_asked_for_no_cache_between_keeps_an_answer() {
        assert_eq!(life(Access::Public, "max-age=5"), "public, max-age=5");
        assert_eq!(life(Access::Token, "max-age=5"), "private, max-age=5");
    }

    #[tokio::test]
    async fn of_the_headers_of_a_request_only_all_held_tags_are_kept() {
        let request = http::Request::get("/").header("accept", "*/*");
        let request = request.header("if-none-match", "\"a\"").header("if-none-match", "\"b\", \"c\"");
        let (mut parts, ()) = request.body(()).expect("a request").into_parts();
        let Ok(held) = HeldTags::from_request_parts(&mut parts, &()).await;
        assert_eq!(held.0.len(), 2);
        assert!(held.has("\"a\"") && held.has("\"c\"") && !held.has("\"d\""));
    }

    #[test]
    fn a_tag_is_recognized_in_a_list() {
        let known = |value: &'static str| {
            let headers = HeaderMap::from_iter([(header::IF_NONE_MATCH, HeaderValue::from_static(value))]);
            is_known(&headers, "\"b3:aa\"")
        };
        assert!(known("\"b3:aa\"") && known("W/\"b3:aa\"") && known("\"x\", \"b3:aa\"") && known("*"));
        assert!(!known("\"b3:ab\"") && !known("b3:aa") && !is_known(&HeaderMap::new(), "\"b3:aa\""));
    }
}
