//! Anybody's ledger behind HTTP: a batch is one request, which may be sent again until it is answered.
//!
//! What the other side must do is written down for its makers in docs/ledger-http.md. Nothing it says is believed
//! beyond that: answers are bounded in bytes and time, and one that does not fit the question counts as none.

mod link;
mod wire;

pub use link::HttpOptions;

use crate::model::{Batch, Ledger, LedgerError, Outcome, RunKey, Tally};
use crate::redact::{HIDDEN, redacted};
use crate::words::check_words;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use link::{Link, LinkError, Place};
use ron_kernel::Deadline;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Bytes of an answer beside one outcome for each entry.
const ANSWER_BYTES: usize = 4096;
/// Bytes of one outcome in an answer, with room for spaces.
const OUTCOME_BYTES: usize = 32;
const TALLY_BYTES_MAX: usize = 1 << 20;
/// Bytes of what a ledger says of itself, which may be a page for people.
const ABOUT_BYTES_MAX: usize = 1 << 20;
/// The longest that a ledger may ask us to stay away.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// A ledger behind HTTP, over one connection that is made anew when it is lost.
pub struct HttpLedger {
    place: Place,
    timeout: Duration,
    /// One caller at a time has the connection.
    turn: Semaphore,
    /// The connection while nobody uses it. Who gives up waiting drops it.
    idle: Mutex<Option<Link>>,
    /// The ledger asked not to be called before.
    not_before: Mutex<Option<Deadline>>,
    /// What the ledger last said of itself: that it keeps the rule of pots.
    keeps_pots: AtomicBool,
}

impl HttpLedger {
    /// Reads the options; the first use connects.
    pub fn new(options: &HttpOptions) -> Result<HttpLedger, LedgerError> {
        let place = Place::new(options).map_err(LedgerError::Refused)?;
        let (turn, idle, not_before) = (Semaphore::new(1), Mutex::new(None), Mutex::new(None));
        let keeps_pots = AtomicBool::new(false);
        Ok(HttpLedger { place, timeout: options.timeout, turn, idle, not_before, keeps_pots })
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        answer_bytes_max: usize,
    ) -> Result<Response<Bytes>, LedgerError> {
        let left = lock(&self.not_before).map_or(Duration::ZERO, Deadline::remaining);
        if !left.is_zero() {
            return Err(unavailable(format!("it asked for {} s of rest", left.as_secs() + 1)));
        }
        // Connecting, sending and being answered have the time of one answer each.
        let deadline = Deadline::after(self.timeout * 3);
        let exchange = deadline.run("ledger_http", async {
            let _turn = self.turn.acquire().await.map_err(|_| LinkError("the ledger was closed".to_owned()))?;
            let kept = lock(&self.idle).take();
            if let Some(mut link) = kept {
                // Sent again if its connection was lost: a key is booked once, so that twice is no harm.
                if let Ok(response) = link.exchange(self.request(&method, path, &body), answer_bytes_max).await {
                    return Ok(self.keep(link, response));
                }
            }
            let mut link = self.place.connect().await?;
            let response = link.exchange(self.request(&method, path, &body), answer_bytes_max).await?;
            Ok(self.keep(link, response))
        });
        let answered = exchange.await.unwrap_or_else(|_| Err(LinkError("no answer in time".to_owned())));
        let response = answered.map_err(|LinkError(why)| unavailable(why))?;
        self.note(&response);
        Ok(response)
    }

    fn keep(&self, link: Link, response: Response<Bytes>) -> Response<Bytes> {
        *lock(&self.idle) = link.is_open().then_some(link);
        response
    }

    fn request(&self, method: &Method, path: &str, body: &Bytes) -> Request<Full<Bytes>> {
        let uri = format!("{}{path}", self.place.base());
        let mut request = Request::new(Full::new(body.clone()));
        *request.method_mut() = method.clone();
        *request.uri_mut() = uri.parse().unwrap_or_default();
        let headers = request.headers_mut();
        headers.insert(header::HOST, self.place.authority());
        headers.insert(header::ACCEPT, header::HeaderValue::from_static("application/json"));
        if let Some(token) = self.place.token() {
            headers.insert(header::AUTHORIZATION, token);
        }
        if *method == Method::POST {
            headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
            let key = blake3::hash(body).to_hex();
            let key = header::HeaderValue::from_str(&key).expect("hexadecimal digits");
            headers.insert("idempotency-key", key);
        }
        request
    }

    /// What an answer other than the hoped-for one means. A missing right can be mended without a new run, so it is no
    /// refusal of what was sent.
    fn failure(&self, response: &Response<Bytes>) -> LedgerError {
        let status = response.status();
        let words = format!("it answered {status}{}", wire::detail(&self.hidden(response.body())));
        let may_pass = [408, 425, 429, 401, 403].contains(&status.as_u16()) || status.is_server_error();
        if may_pass || status.is_success() || status.is_informational() {
            LedgerError::Unavailable(words)
        } else {
            LedgerError::Refused(words)
        }
    }

    /// What the ledger said, without our token and without what else it calls a secret. Before it is cut: half a token
    /// would not be known.
    fn hidden(&self, body: &[u8]) -> String {
        redacted(&String::from_utf8_lossy(body), self.place.secret().as_deref())
    }

    fn without_token(&self, name: &str) -> String {
        let secret = self.place.secret().and_then(|secret| String::from_utf8(secret).ok());
        secret
            .filter(|secret| !secret.is_empty())
            .map_or_else(|| name.to_owned(), |secret| name.replace(&secret, HIDDEN))
    }

    fn told_on(&self, error: LedgerError) -> LedgerError {
        error.redacted(self.place.secret().as_deref())
    }

    /// Remembers what the ledger asks for: to be left alone for a while, or a token that it takes.
    fn note(&self, response: &Response<Bytes>) {
        match response.status() {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                let asked = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
                let seconds = asked.and_then(|value| value.trim().parse().ok()).map(Duration::from_secs);
                let rest = seconds.map(|rest| Deadline::after(rest.min(RETRY_AFTER_MAX)));
                *lock(&self.not_before) = rest;
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => self.place.read_token_again(),
            _ => {}
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unavailable(why: impl Into<String>) -> LedgerError {
    LedgerError::Unavailable(why.into())
}

impl Ledger for HttpLedger {
    async fn submit(&self, batch: &Batch) -> Result<Vec<Outcome>, LedgerError> {
        check_words(batch)?;
        if batch.entries.is_empty() {
            return Ok(Vec::new());
        }
        let answer_bytes_max = ANSWER_BYTES + OUTCOME_BYTES * batch.entries.len();
        let keeps_pots = self.keeps_pots.load(Ordering::Relaxed);
        let response = self.call(Method::POST, "/transfers", wire::batch(batch, keeps_pots), answer_bytes_max).await?;
        match response.status() {
            StatusCode::OK => {
                wire::outcomes(response.body(), batch.entries.len()).map_err(|why| self.told_on(unavailable(why)))
            }
            // A conflict is told for each entry, or of the batch as a whole.
            StatusCode::CONFLICT => {
                let told = wire::outcomes(response.body(), batch.entries.len());
                told.ok()
                    .filter(|outcomes| outcomes.contains(&Outcome::Conflict))
                    .ok_or_else(|| self.failure(&response))
            }
            _ => Err(self.failure(&response)),
        }
    }

    async fn tally(&self, run: &RunKey) -> Result<Vec<Tally>, LedgerError> {
        let path = format!("/runs/{}/tally", wire::hex(run));
        let response = self.call(Method::GET, &path, Bytes::new(), TALLY_BYTES_MAX).await?;
        match response.status() {
            StatusCode::OK => {
                let mut tallies = wire::tallies(response.body()).map_err(|why| self.told_on(unavailable(why)))?;
                // A name that it makes up stands in the settlement of the epoch.
                tallies.iter_mut().for_each(|tally| tally.asset = self.without_token(&tally.asset));
                Ok(tallies)
            }
            _ => Err(self.failure(&response)),
        }
    }

    async fn one_run_per_pot(&self) -> Result<bool, LedgerError> {
        let response = self.call(Method::GET, "", Bytes::new(), ABOUT_BYTES_MAX).await?;
        let keeps_pots = match response.status() {
            StatusCode::OK => wire::keeps_pots(response.body()),
            StatusCode::NOT_IMPLEMENTED => false,
            _ => match self.failure(&response) {
                // A ledger of before this question has nothing there, or takes only other methods.
                LedgerError::Refused(_) => false,
                passing @ LedgerError::Unavailable(_) => return Err(passing),
            },
        };
        self.keeps_pots.store(keeps_pots, Ordering::Relaxed);
        Ok(keeps_pots)
    }

    fn kind(&self) -> &'static str {
        "a ledger behind HTTP"
    }
}
