//! The answers to requests that no route has: the plane's own, and those of protocols with words of their own for it.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{MatchedPath, Request};
use axum::handler::Handler;
use hashbrown::HashMap;
use http::{StatusCode, Uri};

use crate::call::Call;
use crate::error_format::ErrorFormats;
use crate::guard::{Answering, Guarded, RouteState, not_found};
use crate::operation::Operation;
use crate::problem::Problem;
use crate::route::{Endpoint, Shared};

/// All paths below a prefix, as far as no route answers them. Pages of others may ask there too: what they hear is that
/// there is nothing.
pub(crate) struct PathSpace {
    /// What the paths begin with, up to a slash or their end.
    pub prefix: &'static str,
    /// Status where no route has the path.
    pub unknown_path: StatusCode,
    /// Status where a route has the path with other methods.
    pub other_method: StatusCode,
    /// The formats of both refusals.
    pub error_formats: &'static ErrorFormats,
}

impl PathSpace {
    fn has(&self, path: &str) -> bool {
        path.strip_prefix(self.prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// Answers requests that no route has.
pub(crate) struct Unmatched {
    plane: Refusals,
    spaces: Vec<(&'static PathSpace, Refusals)>,
}

/// The two ways in which there is no route.
struct Refusals {
    no_path: Endpoint,
    no_method: Endpoint,
}

/// For each pattern that does not have all its paths, which ones it has.
type Claims = HashMap<&'static str, fn(&str) -> bool>;

impl Unmatched {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        operations: &[&'static Operation],
        spaces: Vec<&'static PathSpace>,
    ) -> Arc<Self> {
        let claims = operations.iter().filter_map(|operation| Some((operation.spec.pattern, operation.claims?)));
        let claims: Arc<Claims> = Arc::new(claims.collect());
        let plane = RouteState::unmatched(Arc::clone(shared));
        let plane = Refusals::new(plane, &claims, not_found, || other_method(StatusCode::METHOD_NOT_ALLOWED));
        let of_space = |space: &'static PathSpace| {
            let route = RouteState::unmatched_of(space, Arc::clone(shared));
            let no_path = || Problem::schema(space.unknown_path, "no route has this path");
            (space, Refusals::new(route, &claims, no_path, || other_method(space.other_method)))
        };
        Arc::new(Unmatched { plane, spaces: spaces.into_iter().map(of_space).collect() })
    }

    /// Answers where no route has the path.
    pub(crate) fn no_path(&self, request: Request) -> Answering {
        (self.refusals(&request).no_path)(request)
    }

    /// Answers where routes have the path, and none the method.
    pub(crate) fn no_method(&self, request: Request) -> Answering {
        (self.refusals(&request).no_method)(request)
    }

    fn refusals(&self, request: &Request) -> &Refusals {
        let path = request.uri().path();
        self.spaces.iter().find(|(space, _)| space.has(path)).map_or(&self.plane, |(_, refusals)| refusals)
    }
}

impl Refusals {
    fn new(
        route: RouteState,
        claims: &Arc<Claims>,
        no_path: impl Fn() -> Problem + Copy + Send + Sync + 'static,
        no_method: impl Fn() -> Problem + Copy + Send + Sync + 'static,
    ) -> Self {
        let (route, claims) = (Arc::new(route), Arc::clone(claims));
        let other_method = move |uri: Uri, route: Option<Extension<MatchedPath>>| {
            let claims = route.and_then(|Extension(route)| claims.get(route.as_str()).copied());
            let is_claimed = claims.is_none_or(|claims| claims(uri.path()));
            std::future::ready(if is_claimed { no_method() } else { no_path() })
        };
        Refusals {
            no_path: endpoint(move || std::future::ready(no_path()), Arc::clone(&route)),
            no_method: endpoint(other_method, route),
        }
    }
}

fn endpoint<H, T>(handler: H, route: Arc<RouteState>) -> Endpoint
where
    H: Handler<T, Call> + Sync,
    T: 'static,
{
    let guarded = Guarded::new(handler, route);
    Box::new(move |request| guarded.clone().call(request, ()))
}

fn other_method(status: StatusCode) -> Problem {
    Problem::schema(status, "the route has other methods; see Allow")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error_format::ProblemJson;

    #[test]
    fn a_space_has_whole_segments() {
        static FORMATS: ErrorFormats = ErrorFormats { all: &[&ProblemJson], choose: |_| &ProblemJson };
        let (unknown_path, other_method) = (StatusCode::BAD_REQUEST, StatusCode::NOT_IMPLEMENTED);
        let space = PathSpace { prefix: "/a/v1", unknown_path, other_method, error_formats: &FORMATS };
        assert!(space.has("/a/v1") && space.has("/a/v1/") && space.has("/a/v1/b/c"));
        assert!(!space.has("/a/v10") && !space.has("/a") && !space.has("/b/a/v1"));
    }
}
