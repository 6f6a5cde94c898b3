//! What a handler knows of its request beside its content: who asks, and by when the answer must exist.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use ron_kernel::Deadline;
use ron_types::Error;

#[cfg(test)]
use crate::admission::SharedShares;
use crate::admission::{Admission, Waiting};
use crate::auth::Bearer;
use crate::corr::CorrId;
use crate::fair_share::{FairShare, Taken};
use crate::limits::{BodyLimits, HttpLimits};

const DEADLINE_HEADER: HeaderName = HeaderName::from_static("x-request-deadline-ms");
const GRPC_TIMEOUT_HEADER: HeaderName = HeaderName::from_static("grpc-timeout");

/// One request on its way through the node: the guard hands it to the handler as its state.
#[derive(Clone, Debug)]
pub struct Call {
    /// Correlation id of the request, for logs and answers.
    pub corr_id: CorrId,
    /// Moment by which the answer must exist.
    pub deadline: Deadline,
    /// Pattern of the route, as in `/v1/topics/{name}`.
    pub endpoint: &'static str,
    /// Bounds on reading the body.
    pub(crate) limits: BodyLimits,
    /// What the plane holds for the request.
    pub(crate) admission: Admission,
    /// The token of the caller, if the operation asks for one.
    pub(crate) bearer: Option<Bearer>,
}

impl Call {
    /// Begins to wait for something that may take long, such as a message. Until the wait is dropped the request is
    /// one of those that wait, of which each caller has a share, and no longer one of those its route works on.
    pub fn wait(&self) -> Result<Waiting, Error> {
        self.admission.wait()
    }

    /// Takes one of something that callers share beside the plane, until it is dropped.
    pub(crate) fn take_of(&self, share: &Arc<FairShare>, capacity: usize, what: &'static str) -> Result<Taken, Error> {
        self.admission.take_of(share, capacity, what)
    }

    /// Whether the caller may be handed an answer that may be large: asked before something is done for it.
    pub(crate) fn has_answer_room(&self) -> Result<(), Error> {
        self.admission.has_answer_room()
    }

    /// Makes sure that an answer of about so many bytes may be in memory until it has left.
    pub(crate) fn hold_answer(&self, bytes: usize) -> Result<(), Error> {
        self.admission.hold_answer(bytes)
    }
}

#[cfg(test)]
impl Call {
    /// A call on a plane that nobody else uses.
    pub(crate) fn alone() -> Self {
        let (limits, metrics) = (HttpLimits::default(), ron_kernel::Metrics::new());
        let shares = SharedShares::new(ron_kernel::Snapshot::new(limits.clone()), &metrics);
        let nowhere = std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);
        let sharer = crate::fair_share::Sharer { claim: crate::fair_share::Claim::Nobody, address: nowhere };
        let admission = crate::admission::RoutePermits::new(None).admit(sharer, &shares).expect("nobody is there");
        let deadline = Deadline::after(limits.request_deadline);
        Call { corr_id: CorrId::fresh(), deadline, endpoint: "/", limits: limits.of_body(), admission, bearer: None }
    }
}

impl FromRequestParts<Call> for Call {
    type Rejection = Infallible;

    async fn from_request_parts(_parts: &mut Parts, call: &Call) -> Result<Self, Infallible> {
        Ok(call.clone())
    }
}

/// A header few requests have: a look along the few names there are costs less than the hash of one more.
pub(crate) fn seldom<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    headers.keys().find(|known| *known == name).and_then(|name| headers.get(name))
}

/// The time a request has: what its caller asks for, up to the limit, or the route's own.
pub(crate) fn budget(headers: &HeaderMap, route: Option<Duration>, limits: &HttpLimits) -> Result<Duration, Error> {
    let asked =
        if let Some(value) = seldom(headers, &DEADLINE_HEADER) {
            let millis = value.to_str().ok().and_then(plain_number).filter(|millis| *millis > 0);
            Some(millis.map(Duration::from_millis).ok_or_else(|| {
                Error::schema("X-Request-Deadline-Ms must be a whole number of milliseconds, at least 1")
            })?)
        } else if let Some(value) = seldom(headers, &GRPC_TIMEOUT_HEADER) {
            let timeout = value.to_str().ok().and_then(grpc_timeout).filter(|timeout| !timeout.is_zero());
            Some(timeout.ok_or_else(|| {
                Error::schema("grpc-timeout must be 1 to 8 digits followed by one of H, M, S, m, u, n, and above zero")
            })?)
        } else {
            None
        };
    Ok(asked.map_or_else(|| route.unwrap_or(limits.request_deadline), |asked| asked.min(limits.request_deadline_max)))
}

/// Digits only: the parser of the standard library would also take a plus sign.
fn plain_number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn grpc_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 {
        return None;
    }
    let amount = plain_number(digits)?;
    match unit {
        "H" => Some(Duration::from_secs(amount * 3600)),
        "M" => Some(Duration::from_secs(amount * 60)),
        "S" => Some(Duration::from_secs(amount)),
        "m" => Some(Duration::from_millis(amount)),
        "u" => Some(Duration::from_micros(amount)),
        "n" => Some(Duration::from_nanos(amount)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget_of(name: HeaderName, value: &'static str) -> Option<Duration> {
        let headers = HeaderMap::from_iter([(name, HeaderValue::from_static(value))]);
        budget(&headers, None, &HttpLimits::default()).ok()
    }

    #[test]
    fn callers_may_ask_for_less_or_more_time_up_to_the_limit() {
        let max = HttpLimits::default().request_deadline_max;
        for (name, value, expected) in [
            (DEADLINE_HEADER, "1", Some(Duration::from_millis(1))),
            (DEADLINE_HEADER, "2500", Some(Duration::from_millis(2500))),
            (DEADLINE_HEADER, "999999999", Some(max)),
            (DEADLINE_HEADER, "0", None),
            (DEADLINE_HEADER, "-1", None),
            (DEADLINE_HEADER, "+1", None),
            (DEADLINE_HEADER, "1.5", None),
            (DEADLINE_HEADER, "", None),
            (DEADLINE_HEADER, "soon", None),
            (DEADLINE_HEADER, "99999999999999999999999", None),
            (GRPC_TIMEOUT_HEADER, "500m", Some(Duration::from_millis(500))),
            (GRPC_TIMEOUT_HEADER, "2S", Some(Duration::from_secs(2))),
            (GRPC_TIMEOUT_HEADER, "99999999H", Some(max)),
            (GRPC_TIMEOUT_HEADER, "70u", Some(Duration::from_micros(70))),
            (GRPC_TIMEOUT_HEADER, "123456789m", None),
            (GRPC_TIMEOUT_HEADER, "5", None),
            (GRPC_TIMEOUT_HEADER, "m", None),
            (GRPC_TIMEOUT_HEADER, "0m", None),
            (GRPC_TIMEOUT_HEADER, "", None),
        ] {
            assert_eq!(budget_of(name.clone(), value), expected, "{name}: {value}");
        }
    }

    #[test]
    fn silence_means_the_routes_own_time_or_the_default() {
        let (limits, route) = (HttpLimits::default(), Duration::from_secs(9));
        assert_eq!(budget(&HeaderMap::new(), None, &limits), Ok(limits.request_deadline));
        assert_eq!(budget(&HeaderMap::new(), Some(route), &limits), Ok(route));
    }
}
