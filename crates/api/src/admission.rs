//! What the plane holds for one request: its permit of the route, its share of the memory for bodies, its wait.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use prometheus_client::metrics::counter::Counter;
use ron_kernel::{Metrics, Snapshot};
use ron_types::Error;
use ron_types::limits::CHUNK_BYTES;

use crate::fair_share::{Claim, FairShare, Sharer, Taken};
use crate::limits::HttpLimits;
use crate::problem::{Counted, Problem};

/// Bodies up to this many bytes are not counted: the bound on requests bounds them well enough, and nearly all bodies
/// are that small.
const UNCOUNTED_BODY_BYTES: usize = 2 * 1024;

/// How many routes' worth of permits the requests over frames have together: those of an application have one path, and
/// no routes.
const FRAME_ROUTES: usize = 4;

/// Answers up to this many bytes are not counted: over HTTP/1.1 there is one for each connection, over HTTP/2 they keep
/// the permit of their route instead.
const UNCOUNTED_ANSWER_BYTES: usize = 2 * 1024;

/// No answer takes more than this part of the memory for answers, however large it is, so that a lone one always fits.
const ANSWER_PART: usize = 4;

/// Everything that callers share, on the plane of HTTP and on that of frames.
pub struct SharedShares {
    limits: Snapshot<HttpLimits>,
    /// Bytes of request bodies in memory.
    bodies: Arc<FairShare>,
    /// Requests that wait for something to happen: long polls and open streams.
    waits: Arc<FairShare>,
    waits_refused: Counter,
    /// Bytes of answers that have not left.
    answers: Arc<FairShare>,
    answers_refused: Counter,
    /// Requests over frames that are at work.
    frames: Arc<FairShare>,
    frames_refused: Counter,
}

/// The permits of one route.
pub(crate) struct RoutePermits {
    permits: Arc<FairShare>,
    /// Requests in flight at once; none means the configured number.
    concurrency: Option<usize>,
}

/// One request that was let in. Clones are the same admission.
#[derive(Clone)]
pub(crate) struct Admission(Arc<Inner>);

struct Inner {
    shares: Arc<SharedShares>,
    state: Mutex<AdmissionState>,
}

struct AdmissionState {
    sharer: Sharer,
    /// Permit of the route; given back before the request ends if it begins to wait.
    permit: Option<Taken>,
    /// Share of the memory for bodies, kept until the request ends because its body is.
    body: Option<Taken>,
    /// Share of the memory for answers, from the making of the answer until it takes the share along.
    answer: Option<Taken>,
}

/// What an answer keeps until its last byte has left; given back when dropped.
#[derive(Debug)]
pub(crate) struct HeldAnswer {
    #[expect(dead_code, reason = "held for its drop")]
    permit: Option<Taken>,
    #[expect(dead_code, reason = "held for its drop")]
    bytes: Option<Taken>,
}

/// Left with an answer: its part of the memory for answers.
#[derive(Clone)]
pub(crate) enum AnswerShare {
    /// All of it is known, and counted.
    Whole(Arc<HeldAnswer>),
    /// Its pieces are counted as they come.
    Pieces(Admission),
}

/// Bytes of an answer and what is held for them.
struct HeldBytes {
    bytes: Bytes,
    _held: Taken,
}

/// A request or stream that waits; ended by dropping it.
#[derive(Debug)]
pub struct Waiting(#[expect(dead_code, reason = "held for its drop")] Taken);

impl SharedShares {
    /// Shares of which nothing is taken yet.
    pub fn new(limits: Snapshot<HttpLimits>, metrics: &Metrics) -> Arc<Self> {
        Arc::new(SharedShares {
            limits,
            bodies: FairShare::new(metrics.http_body_bytes.clone()),
            waits: FairShare::new(metrics.http_waiting.clone()),
            waits_refused: metrics.busy_rejections.at("waiting"),
            answers: FairShare::new(metrics.http_answer_bytes.clone()),
            answers_refused: metrics.busy_rejections.at("answer_memory"),
            frames: Arc::default(),
            frames_refused: metrics.busy_rejections.at("frames"),
        })
    }

    /// Lets a request over frames in, with what it keeps of its payload, if that is within its sharer's part.
    pub(crate) fn admit_frame(self: &Arc<Self>, sharer: Sharer, payload_bytes: usize) -> Result<Admission, Problem> {
        let capacity = self.limits.get().value.route_concurrency_max.saturating_mul(FRAME_ROUTES);
        let admitted = match self.frames.take(sharer.clone(), 1, capacity) {
            Some(permit) => {
                let admission = Admission::new(self, sharer, permit);
                admission.hold_body(payload_bytes).map(|()| admission)
            }
            None => Err(Error::busy("the plane of frames, or your share of it,").into()),
        };
        if admitted.is_err() {
            self.frames_refused.inc();
        }
        admitted
    }
}

impl SharedShares {
    fn no_answer_memory(&self) -> Error {
        self.answers_refused.inc();
        Error::busy("the memory for answers that have not been read, or your share of it,")
    }
}

impl fmt::Debug for SharedShares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedShares")
    }
}

impl RoutePermits {
    pub(crate) fn new(concurrency: Option<usize>) -> Self {
        RoutePermits { permits: Arc::default(), concurrency }
    }

    /// Lets a request in if there is a permit for its sharer. Nobody waits for one: a full route answers Busy at once,
    /// so that no queue of requests builds up in memory.
    pub(crate) fn admit(&self, sharer: Sharer, shares: &Arc<SharedShares>) -> Option<Admission> {
        let permit = self.take(sharer.clone(), shares)?;
        Some(Admission::new(shares, sharer, permit))
    }

    fn take(&self, sharer: Sharer, shares: &SharedShares) -> Option<Taken> {
        let capacity = self.concurrency.unwrap_or_else(|| shares.limits.get().value.route_concurrency_max);
        self.permits.take(sharer, 1, capacity)
    }
}

impl Admission {
    fn new(shares: &Arc<SharedShares>, sharer: Sharer, permit: Taken) -> Self {
        let state = AdmissionState { sharer, permit: Some(permit), body: None, answer: None };
        Admission(Arc::new(Inner { shares: Arc::clone(shares), state: Mutex::new(state) }))
    }

    /// Begins to wait: takes a share of the waits and gives the permit of the route back, so that those who wait keep
    /// nobody from being served.
    pub(crate) fn wait(&self) -> Result<Waiting, Error> {
        let Inner { shares, .. } = &*self.0;
        let capacity = shares.limits.get().value.waiting_max;
        let mut state = self.state();
        let Some(waiting) = shares.waits.take(state.sharer.clone(), 1, capacity) else {
            shares.waits_refused.inc();
            return Err(Error::busy("the table of those who wait, or your share of it,"));
        };
        state.permit = None;
        Ok(Waiting(waiting))
    }

    /// Makes sure that the body may have this many bytes in memory, in all its forms together.
    pub(crate) fn hold_body(&self, bytes: usize) -> Result<(), Problem> {
        if bytes <= UNCOUNTED_BODY_BYTES {
            return Ok(());
        }
        let Inner { shares, .. } = &*self.0;
        let capacity = shares.limits.get().value.body_memory_bytes_max;
        let mut state = self.state();
        let sharer = state.sharer.clone();
        let fits = match &mut state.body {
            Some(held) => held.grow(bytes.saturating_sub(held.amount())),
            empty => {
                *empty = shares.bodies.take(sharer, bytes, capacity);
                empty.is_some()
            }
        };
        fits.then_some(()).ok_or_else(no_memory)
    }

    /// Takes one of something that callers share beside the plane; `what` says of what in a refusal.
    pub(crate) fn take_of(&self, share: &Arc<FairShare>, capacity: usize, what: &'static str) -> Result<Taken, Error> {
        let sharer = self.state().sharer.clone();
        share.take(sharer, 1, capacity).ok_or_else(|| Error::busy(format_args!("{what}, or your share of them,")))
    }

    /// What was read is used up: its share of the memory is everybody's again.
    pub(crate) fn drop_body(&self) {
        self.state().body = None;
    }

    /// Whether the caller may be handed more, before anything is done for an answer that may be large.
    pub(crate) fn has_answer_room(&self) -> Result<(), Error> {
        let Inner { shares, .. } = &*self.0;
        let capacity = shares.limits.get().value.answer_memory_bytes_max;
        let has_room = shares.answers.has_room(&self.state().sharer, CHUNK_BYTES, capacity);
        has_room.then_some(()).ok_or_else(|| shares.no_answer_memory())
    }

    /// Makes sure that the answer may have this many bytes in memory until it has left. A handler that cannot undo what
    /// it did asks before it does it.
    pub(crate) fn hold_answer(&self, bytes: usize) -> Result<(), Error> {
        if bytes <= UNCOUNTED_ANSWER_BYTES {
            return Ok(());
        }
        let Inner { shares, .. } = &*self.0;
        let capacity = shares.limits.get().value.answer_memory_bytes_max;
        let mut state = self.state();
        let bytes = bytes.min(capacity / ANSWER_PART);
        let held = state.answer.as_ref().map_or(0, Taken::amount);
        if bytes <= held {
            return Ok(());
        }
        let sharer = state.sharer.clone();
        let fits = match &mut state.answer {
            Some(held) => held.grow(bytes - held.amount()),
            empty => {
                *empty = shares.answers.take(sharer, bytes, capacity);
                empty.is_some()
            }
        };
        fits.then_some(()).ok_or_else(|| shares.no_answer_memory())
    }

    /// What an answer of this many bytes takes along, or one that comes in pieces if nobody knows. One that cannot be
    /// counted is refused if it `can_be_refused`: where nothing was done for it, it can be asked for again.
    pub(crate) fn answer_share(
        &self,
        bytes: Option<u64>,
        is_multiplexed: bool,
        can_be_refused: bool,
    ) -> Result<Option<AnswerShare>, Error> {
        let Some(bytes) = bytes else { return Ok(Some(self.share_of_pieces())) };
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if !is_multiplexed && bytes <= UNCOUNTED_ANSWER_BYTES {
            return Ok(None);
        }
        let counted = self.take_answer(bytes);
        let bytes = if can_be_refused { counted? } else { counted.unwrap_or(None) };
        let permit = self.state().permit.take().filter(|_| is_multiplexed);
        Ok(Some(AnswerShare::Whole(Arc::new(HeldAnswer { permit, bytes }))))
    }

    /// A stream keeps its permit or its wait until it ends, and nothing of its request.
    fn share_of_pieces(&self) -> AnswerShare {
        self.state().body = None;
        AnswerShare::Pieces(self.clone())
    }

    /// What is held for an answer of this many bytes. A handler that held something before has thought of its answer,
    /// and what it did is not undone because that is a little longer.
    fn take_answer(&self, bytes: usize) -> Result<Option<Taken>, Error> {
        let counted = self.hold_answer(bytes);
        match self.state().answer.take() {
            Some(held) => Ok(Some(held)),
            None => counted.map(|()| None),
        }
    }

    /// The whole of an answer, with what is held for it: both are let go of when its last byte has left, wherever it
    /// waits until then.
    pub(crate) fn held_until_left(&self, answer: Bytes) -> Bytes {
        match self.take_answer(answer.len()) {
            Ok(Some(held)) => Bytes::from_owner(HeldBytes { bytes: answer, _held: held }),
            Ok(None) | Err(_) => answer,
        }
    }

    /// The caller has proven who it is only now: from here on it has the share of that subject.
    pub(crate) fn belongs_to(&self, subject: &str) -> Result<(), Error> {
        let mut state = self.state();
        let AdmissionState { sharer, permit, body, answer } = &mut *state;
        let is_known = matches!(&sharer.claim, Claim::Proven(known) if **known == *subject);
        if is_known {
            return Ok(());
        }
        sharer.claim = Claim::Proven(subject.into());
        for taken in [permit, body, answer].into_iter().flatten() {
            *taken = taken.moved_to(sharer).ok_or_else(|| Error::busy("your share of the node"))?;
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, AdmissionState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AnswerShare {
    /// What a piece of so many bytes takes along; none is left for it where the caller has not taken what came before.
    pub(crate) fn of_piece(&self, bytes: usize) -> Result<Option<Arc<HeldAnswer>>, Error> {
        match self {
            AnswerShare::Whole(held) => Ok(Some(Arc::clone(held))),
            AnswerShare::Pieces(admission) => {
                let bytes = admission.take_answer(bytes)?;
                Ok(bytes.map(|bytes| Arc::new(HeldAnswer { permit: None, bytes: Some(bytes) })))
            }
        }
    }
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Admission")
    }
}

fn no_memory() -> Problem {
    let error = Error::busy("the memory for request bodies, or your share of it,");
    // What is left of the body is not read, so nothing can follow it on this connection.
    Problem { counted: Counted::BodyMemory, closes: true, ..error.into() }
}
