//! What the plane holds for one request: its permit of the route, its share of the memory for bodies, its wait.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::metrics::counter::Counter;
use ron_kernel::{Metrics, Snapshot};
use ron_types::Error;

use crate::fair_share::{Claim, FairShare, Sharer, Taken};
use crate::limits::HttpLimits;
use crate::problem::{Counted, Problem};

/// Bodies up to this many bytes are not counted: the bound on requests bounds them well enough, and nearly all bodies
/// are that small.
const UNCOUNTED_BODY_BYTES: usize = 2 * 1024;

/// How many routes' worth of permits the requests over frames have together: those of an application have one path, and
/// no routes.
const FRAME_ROUTES: usize = 4;

/// Everything that callers share, on the plane of HTTP and on that of frames.
pub struct SharedShares {
    limits: Snapshot<HttpLimits>,
    /// Bytes of request bodies in memory.
    bodies: Arc<FairShare>,
    /// Requests that wait for something to happen: long polls and open streams.
    waits: Arc<FairShare>,
    waits_refused: Counter,
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
        let state = AdmissionState { sharer, permit: Some(permit), body: None };
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

    /// What was read is used up: its share of the memory is everybody's again.
    pub(crate) fn drop_body(&self) {
        self.state().body = None;
    }

    /// The caller has proven who it is only now: from here on it has the share of that subject.
    pub(crate) fn belongs_to(&self, subject: &str) -> Result<(), Error> {
        let mut state = self.state();
        let AdmissionState { sharer, permit, body } = &mut *state;
        let is_known = matches!(&sharer.claim, Claim::Proven(known) if **known == *subject);
        if is_known {
            return Ok(());
        }
        sharer.claim = Claim::Proven(subject.into());
        for taken in [permit, body].into_iter().flatten() {
            *taken = taken.moved_to(sharer).ok_or_else(|| Error::busy("your share of the node"))?;
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, AdmissionState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
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
