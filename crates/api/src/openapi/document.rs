//! The OpenAPI document, put together from the operations.

use std::collections::BTreeMap;

use ron_types::Kind;
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::extensions::Extensions;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{OperationBuilder, Parameter, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::response::{Response, ResponseBuilder, Responses, ResponsesBuilder};
use utoipa::openapi::schema::{ComponentsBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::{Tag, TagBuilder};
use utoipa::openapi::{self, Components, InfoBuilder, OpenApiBuilder, PathsBuilder, Ref, RefOr, Required};
use utoipa::{PartialSchema as _, ToSchema as _};

use crate::error_format::{ErrorFormat, ProblemJson};
use crate::operation::{BodyShape, Operation, Shape};
use crate::problem::ProblemBody;
use crate::route::HttpMethod;
use crate::surface::{Service, Surface, services};

const ABOUT: &str = "The services of a node over HTTP, on one address. Every route has a deadline, bounds on what it \
    reads, and an id by which a request is found again; every refusal has a stable code, in a problem body (RFC 9457) \
    unless the protocol of a surface demands another.";

const BEARER: &str = "bearer";

/// The document of these surfaces as JSON.
pub(super) fn write(surfaces: &[&Surface]) -> Vec<u8> {
    let info = InfoBuilder::new().title("macronode").version(env!("CARGO_PKG_VERSION"));
    let operations = surfaces.iter().flat_map(|surface| surface.operations.iter().map(|one| (surface.service, *one)));
    let paths = operations.clone().fold(PathsBuilder::new(), |paths, (service, operation)| {
        let item = PathItem::new(method(operation.spec.method), described(service, operation));
        paths.path(operation.spec.pattern, item)
    });
    let services = services(surfaces);
    let mut document = OpenApiBuilder::new()
        .info(info.description(Some(ABOUT)).build())
        .paths(paths)
        .components(Some(components(operations.map(|(_, operation)| operation))))
        .tags(Some(services.iter().flat_map(tags).collect::<Vec<Tag>>()))
        .build();
    document.extensions = Some(Extensions::from_iter([("x-tagGroups", tag_groups(&services))]));
    serde_json::to_vec(&document).expect("the document is made of strings and numbers")
}

/// Two services may use the same word, so the document has tags with the name of their service before them.
fn full_name(service: &str, tag: &str) -> String {
    format!("{service}: {tag}")
}

fn tags(service: &Service<'_>) -> Vec<Tag> {
    let tag = |name: &'static str| {
        let shown = Extensions::from_iter([("x-displayName", name)]);
        TagBuilder::new().name(full_name(service.name, name)).extensions(Some(shown)).build()
    };
    service.tag_names().into_iter().map(tag).collect()
}

/// Tags of each service, in the extension `x-tagGroups` that several viewers read.
fn tag_groups(services: &[Service<'_>]) -> serde_json::Value {
    let group = |service: &Service<'_>| {
        let tags = service.tag_names().into_iter().map(|tag| full_name(service.name, tag));
        serde_json::json!({"name": service.name, "description": service.about(), "tags": tags.collect::<Vec<_>>()})
    };
    services.iter().map(group).collect()
}

fn components<'a>(operations: impl Iterator<Item = &'a Operation>) -> Components {
    let mut bearer = Http::new(HttpAuthScheme::Bearer);
    bearer.bearer_format = Some("biscuit".to_owned());
    bearer.description = Some("A capability of this node; the operator's is in its data directory.".to_owned());
    let components = ComponentsBuilder::new()
        .security_scheme(BEARER, SecurityScheme::Http(bearer))
        .schema(ProblemBody::name(), ProblemBody::schema());
    components.schemas_from_iter(schemas(operations)).build()
}

/// Every schema that an operation refers to, by name. A name means one thing in the whole document: a second schema
/// of the name would describe the answers of another operation.
fn schemas<'a>(operations: impl Iterator<Item = &'a Operation>) -> BTreeMap<String, RefOr<Schema>> {
    let mut all = Vec::new();
    for operation in operations {
        let body = operation.body.as_ref().map(|body| &body.shape);
        for shape in [body, operation.answer.as_ref()].into_iter().flatten() {
            all.push(((shape.name)().into_owned(), (shape.schema)()));
            (shape.parts)(&mut all);
        }
    }
    let mut by_name = BTreeMap::new();
    for (name, schema) in all {
        if let Some(other) = by_name.insert(name.clone(), schema.clone()) {
            assert!(other == schema, "two schemas are called {name}: give one of the types another name");
        }
    }
    by_name
}

fn described(service: &str, operation: &Operation) -> OperationBuilder {
    let described = OperationBuilder::new()
        .tag(full_name(service, operation.tag))
        .summary(Some(operation.spec.does))
        .operation_id(Some(operation_id(operation)))
        .parameters(Some(parameters(operation)))
        .request_body(request_body(operation))
        .responses(answers(operation));
    let described = match operation.takes_token() {
        true => {
            described.security(SecurityRequirement::new(BEARER, operation.needs.iter().map(|right| right.as_str())))
        }
        false => described,
    };
    described.description(Some(operation.needs_sentence()))
}

fn operation_id(operation: &Operation) -> String {
    let words = operation.spec.pattern.split(|c: char| !c.is_ascii_alphanumeric());
    let words = words.filter(|word| !word.is_empty() && *word != "v1");
    let method = operation.spec.method.name().to_ascii_lowercase();
    let id = words.fold(method, |id, word| format!("{id}_{word}"));
    // The same path with a slash at its end is another operation.
    if operation.spec.pattern.ends_with('/') { format!("{id}_slash") } else { id }
}

fn parameters(operation: &Operation) -> Vec<Parameter> {
    let in_path = operation.spec.pattern.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let in_path = in_path.map(|name| parameter(name, ParameterIn::Path, text_schema()).required(Required::True));
    let in_query = operation.query.iter().flat_map(query_parameters);
    let words = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(["fsynced", "written", "ram"]));
    let minimum = parameter("Min-Durability", ParameterIn::Header, words.into())
        .description(Some("Refuse with 503 where the node cannot answer with this much."));
    let minimum = operation.takes_min_durability.then_some(minimum);
    in_path.chain(in_query).chain(minimum).map(ParameterBuilder::build).collect()
}

fn parameter(name: &str, place: ParameterIn, schema: RefOr<Schema>) -> ParameterBuilder {
    ParameterBuilder::new().name(name).parameter_in(place).required(Required::False).schema(Some(schema))
}

/// The fields of a query are its parameters.
fn query_parameters(query: &Shape) -> Vec<ParameterBuilder> {
    let RefOr::T(Schema::Object(object)) = (query.schema)() else { return Vec::new() };
    let fields = object.properties.into_iter();
    fields.map(|(name, schema)| parameter(&name, ParameterIn::Query, schema)).collect()
}

fn text_schema() -> RefOr<Schema> {
    ObjectBuilder::new().schema_type(Type::String).into()
}

fn reference(shape: &Shape) -> Ref {
    Ref::from_schema_name((shape.name)())
}

fn request_body(operation: &Operation) -> Option<RequestBody> {
    let media_types = operation.media_types.as_ref().map_or(&[][..], |types| types.requests);
    match &operation.body {
        Some(body) => Some(json_body(body)),
        None => (!media_types.is_empty()).then(|| protocol_body(media_types)),
    }
}

fn json_body(body: &BodyShape) -> RequestBody {
    let example = serde_json::from_str(body.example).ok();
    let content = ContentBuilder::new().schema(Some(reference(&body.shape))).example(example).build();
    let required = if body.is_required { Required::True } else { Required::False };
    RequestBodyBuilder::new().content("application/json", content).required(Some(required)).build()
}

/// Body in a protocol that is described elsewhere: media types without a schema.
fn protocol_body(media_types: &[&str]) -> RequestBody {
    let body = RequestBodyBuilder::new().required(Some(Required::True));
    media_types.iter().fold(body, |body, media_type| body.content(*media_type, ContentBuilder::new().build())).build()
}

fn answers(operation: &Operation) -> Responses {
    let success = operation
        .success_statuses()
        .iter()
        .fold(ResponsesBuilder::new(), |answers, status| answers.response(*status, success_of(operation)));
    // Kinds that share a status share its description.
    let kinds = operation.refusals();
    let by_status = kinds.chunk_by(|one, other| operation.status_of(*one) == operation.status_of(*other));
    by_status
        .fold(success, |answers, kinds| {
            answers.response(operation.status_of(kinds[0]).to_string(), refusal(operation, kinds))
        })
        .build()
}

fn success_of(operation: &Operation) -> Response {
    let mut response = ResponseBuilder::new().description("It is done.");
    if let Some(shape) = &operation.answer {
        let media_type = operation.media_type;
        let schema = match media_type {
            "text/event-stream" => event_schema(shape),
            _ => reference(shape).into(),
        };
        response = response.content(media_type, ContentBuilder::new().schema(Some(schema)).build());
    }
    for media_type in operation.media_types.iter().flat_map(|types| types.answers) {
        response = response.content(*media_type, ContentBuilder::new().build());
    }
    if operation.tells_durability {
        let header = HeaderBuilder::new().schema(Some(text_schema()));
        let header = header.description(Some("How safe the change is: `fsynced`, `written` or `ram`."));
        response = response.header("X-Durability", header.build());
    }
    response.build()
}

/// One server-sent event: its data is text, in which there is JSON of the shape.
fn event_schema(shape: &Shape) -> RefOr<Schema> {
    let data = ObjectBuilder::new().schema_type(Type::String).content_media_type("application/json");
    let data = data.description(Some(format!("JSON as in the schema {}.", (shape.name)())));
    ObjectBuilder::new().property("event", text_schema()).property("data", data).into()
}

fn refusal(operation: &Operation, kinds: &[Kind]) -> Response {
    let detail = kinds.iter().map(|kind| format!("{}: {}", kind.code(), kind.title())).collect::<Vec<_>>().join("; ");
    let formats = operation.error_formats.map_or(&[&ProblemJson as &dyn ErrorFormat][..], |formats| formats.all);
    let response = ResponseBuilder::new().description(detail);
    let add = |response: ResponseBuilder, format: &&dyn ErrorFormat| {
        let is_problem = format.media_type() == ProblemJson.media_type();
        let schema = is_problem.then(|| Ref::from_schema_name(ProblemBody::name()));
        response.content(format.media_type(), ContentBuilder::new().schema(schema).build())
    };
    formats.iter().fold(response, add).build()
}

const fn method(method: HttpMethod) -> openapi::HttpMethod {
    match method {
        HttpMethod::Get => openapi::HttpMethod::Get,
        HttpMethod::Post => openapi::HttpMethod::Post,
        HttpMethod::Put => openapi::HttpMethod::Put,
        HttpMethod::Delete => openapi::HttpMethod::Delete,
        HttpMethod::Patch => openapi::HttpMethod::Patch,
        HttpMethod::Options => openapi::HttpMethod::Options,
    }
}
