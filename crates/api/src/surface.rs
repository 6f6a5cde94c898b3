//! What a service offers over HTTP, as one value: its operations, and the words that group them.

use std::sync::Arc;

use axum::handler::Handler;
use ron_auth::Authority;
use ron_types::{Error, Kind};

use crate::call::Call;
use crate::operation::Operation;
use crate::problem::Problem;
use crate::recognition::{OptionalTokenRecognizer, Recognizer};
use crate::route::ApiBuilder;

/// The service name of what belongs to the node and to no service of it.
pub(crate) const NODE: &str = "node";

/// One surface of a service: a group of the OpenAPI document and of the page. A service may have several.
pub struct Surface {
    /// The service it belongs to; surfaces of one service stand together.
    pub service: &'static str,
    /// A few sentences for a reader who does not know it yet.
    pub about: &'static str,
    /// The tags of its operations, in the order a reader wants them.
    pub tags: &'static [&'static str],
    /// Every operation it mounts, and no other.
    pub operations: &'static [&'static Operation],
}

impl Surface {
    /// Whether this very operation is one of the surface.
    pub(crate) fn declares(&self, operation: &Operation) -> bool {
        self.operations.iter().any(|declared| std::ptr::eq(*declared, operation))
    }
}

/// The surfaces of a service that could not be made: their operations are there, and are refused.
pub fn out_of_service(builder: ApiBuilder, surfaces: &'static [&'static Surface], authority: &Authority) -> ApiBuilder {
    surfaces.iter().fold(builder.authority(authority), |builder, surface| {
        let operations = surface.operations.iter();
        operations.fold(builder.surface(surface), |builder, operation| builder.operation(operation, refuse))
    })
}

async fn refuse() -> Problem {
    Error::new(Kind::Degraded, "this service could not start; /readyz says why").into()
}

/// All surfaces of one service together.
pub(crate) struct Service<'a> {
    pub name: &'static str,
    pub surfaces: Vec<&'a Surface>,
}

/// The services of these surfaces, each where its first surface stands; the node itself comes after them, because it is
/// not what a reader came for.
pub(crate) fn services<'a>(surfaces: &[&'a Surface]) -> Vec<Service<'a>> {
    let mut services: Vec<Service<'a>> = Vec::new();
    for surface in surfaces {
        match services.iter_mut().find(|service| service.name == surface.service) {
            Some(service) => service.surfaces.push(surface),
            None => services.push(Service { name: surface.service, surfaces: vec![surface] }),
        }
    }
    services.sort_by_key(|service| service.name == NODE);
    services
}

impl Service<'_> {
    /// The tags of all its surfaces, each once.
    pub(crate) fn tag_names(&self) -> Vec<&'static str> {
        let tags = self.surfaces.iter().flat_map(|surface| surface.tags.iter().copied());
        tags.fold(Vec::new(), |mut names, tag| {
            if !names.contains(&tag) {
                names.push(tag);
            }
            names
        })
    }

    /// Sentences of its surfaces, joined.
    pub(crate) fn about(&self) -> String {
        let abouts: Vec<&str> = self.surfaces.iter().map(|one| one.about).filter(|about| !about.is_empty()).collect();
        abouts.join("\n\n")
    }
}

/// Operations in all groups together: the length of [`joined`].
pub const fn operation_count(groups: &[&[&Operation]]) -> usize {
    let (mut count, mut at) = (0, 0);
    while at < groups.len() {
        count += groups[at].len();
        at += 1;
    }
    count
}

/// The operations of all groups in one list, so that each file of a surface can keep the list of its own.
pub const fn joined<const N: usize>(groups: &[&[&'static Operation]]) -> [&'static Operation; N] {
    let mut all = [groups[0][0]; N];
    let (mut group, mut at, mut filled) = (0, 0, 0);
    while group < groups.len() {
        while at < groups[group].len() {
            all[filled] = groups[group][at];
            (at, filled) = (at + 1, filled + 1);
        }
        (group, at) = (group + 1, 0);
    }
    assert!(filled == N, "N is operation_count(groups)");
    all
}

/// Collects the routes of a surface, whose handlers share one application.
pub(crate) struct Routes<A> {
    pub builder: ApiBuilder,
    pub app: Arc<A>,
}

/// An application that knows whose tokens count.
pub(crate) trait HasAuthority {
    fn authority(&self) -> &Authority;
}

impl<A> Routes<A> {
    /// A route that only bearers of a token may ask.
    pub(crate) fn add<H, T>(mut self, operation: &'static Operation, handler: H) -> Self
    where
        H: Handler<T, Call>,
        T: 'static,
    {
        self.builder = self.builder.operation(operation, handler);
        self
    }

    /// A route that some may ask without a token.
    pub(crate) fn add_open<H, T>(mut self, operation: &'static Operation, handler: H) -> Self
    where
        A: HasAuthority,
        H: Handler<T, Call>,
        T: 'static,
    {
        let recognizer: Arc<dyn Recognizer> =
            Arc::new(OptionalTokenRecognizer { authority: self.app.authority().clone() });
        self.builder = self.builder.operation_for(operation, recognizer, handler);
        self
    }
}
