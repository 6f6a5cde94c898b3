//! The OpenAPI document, put together from the operations.

use ron_types::Kind;
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{OperationBuilder, Parameter, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::schema::{ComponentsBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::Tag;
use utoipa::openapi::{Components, HttpMethod, InfoBuilder, OpenApiBuilder, PathsBuilder, Ref, RefOr, Required};
use utoipa::{PartialSchema as _, ToSchema as _};

use super::{BodyShape, Operation, Shape, schemas};
use crate::problem::Wire;
use crate::route::Verb;

const ABOUT: &str = "A durable at-least-once queue with leases, idempotency keys, groups and dead letters. \
    Every answer to a change says how durable it is; every refusal is a problem body (RFC 9457) with a stable code.";

/// What any route may answer with.
const ANY_ROUTE: [Kind; 4] = [Kind::Schema, Kind::Busy, Kind::Degraded, Kind::Timeout];

/// What any route that needs a token may answer with.
const ANY_GUARDED_ROUTE: [Kind; 2] = [Kind::Unauthenticated, Kind::Forbidden];

const BEARER: &str = "bearer";

/// The groups of routes, in the order a reader wants them.
const TAGS: [&str; 6] = ["messages", "leases", "topics", "dead letters", "node", "description"];

/// The document as JSON.
pub(super) fn write(operations: &[&'static Operation]) -> Vec<u8> {
    let info = InfoBuilder::new().title("macronode mailbox").version(env!("CARGO_PKG_VERSION"));
    let paths = operations.iter().fold(PathsBuilder::new(), |paths, operation| {
        paths.path(operation.spec.pattern, PathItem::new(method(operation.spec.method), described(operation)))
    });
    let document = OpenApiBuilder::new()
        .info(info.description(Some(ABOUT)).build())
        .paths(paths)
        .components(Some(components(operations)))
        .tags(Some(TAGS.map(Tag::new)))
        .build();
    serde_json::to_vec(&document).expect("the document is made of strings and numbers")
}

fn components(operations: &[&Operation]) -> Components {
    let mut bearer = Http::new(HttpAuthScheme::Bearer);
    bearer.bearer_format = Some("biscuit".to_owned());
    bearer.description = Some("A capability of this node; the operator's is in its data directory.".to_owned());
    let components = ComponentsBuilder::new()
        .security_scheme(BEARER, SecurityScheme::Http(bearer))
        .schema(Wire::name(), Wire::schema());
    components.schemas_from_iter(schemas(operations)).build()
}

fn described(operation: &Operation) -> OperationBuilder {
    let described = OperationBuilder::new()
        .tag(operation.tag)
        .summary(Some(operation.spec.does))
        .operation_id(Some(operation_id(operation)))
        .parameters(Some(parameters(operation)))
        .request_body(operation.body.as_ref().map(body))
        .responses(answers(operation));
    match operation.needs {
        Some(op) => described
            .security(SecurityRequirement::new(BEARER, [op.as_str()]))
            .description(Some(format!("Needs a token that allows `{op}`."))),
        None => described.description(Some("Needs no token.")),
    }
}

fn operation_id(operation: &Operation) -> String {
    let words = operation.spec.pattern.split(|c: char| !c.is_ascii_alphanumeric());
    let words = words.filter(|word| !word.is_empty() && *word != "v1");
    let method = operation.spec.method.name().to_ascii_lowercase();
    words.fold(method, |id, word| format!("{id}_{word}"))
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

fn body(body: &BodyShape) -> RequestBody {
    let example = serde_json::from_str(body.example).ok();
    let content = ContentBuilder::new().schema(Some(reference(&body.shape))).example(example).build();
    let required = if body.is_required { Required::True } else { Required::False };
    RequestBodyBuilder::new().content("application/json", content).required(Some(required)).build()
}

fn answers(operation: &Operation) -> utoipa::openapi::response::Responses {
    let mut answers = utoipa::openapi::response::ResponsesBuilder::new();
    let success = match operation {
        Operation { answer: None, needs: Some(_), .. } => "204",
        _ => "200",
    };
    answers = answers.response(success, success_of(operation));
    if operation.may_create {
        answers = answers.response("201", success_of(operation));
    }
    let guarded = operation.needs.iter().flat_map(|_| ANY_GUARDED_ROUTE);
    let mut kinds: Vec<Kind> = ANY_ROUTE.into_iter().chain(guarded).chain(operation.errors.iter().copied()).collect();
    kinds.sort_by_key(|kind| kind.http_status());
    kinds
        .into_iter()
        .fold(answers, |answers, kind| answers.response(kind.http_status().to_string(), refusal(kind)))
        .build()
}

fn success_of(operation: &Operation) -> Response {
    let mut response = ResponseBuilder::new().description("It is done.");
    if let Some(shape) = &operation.answer {
        response = response.content(operation.media_type, ContentBuilder::new().schema(Some(reference(shape))).build());
    }
    if operation.tells_durability {
        let header = HeaderBuilder::new().schema(Some(text_schema()));
        let header = header.description(Some("How safe the change is: `fsynced`, `written` or `ram`."));
        response = response.header("X-Durability", header.build());
    }
    response.build()
}

fn refusal(kind: Kind) -> Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(Wire::name()))).build();
    let detail = format!("{}: {}", kind.code(), kind.title());
    ResponseBuilder::new().description(detail).content("application/problem+json", content).build()
}

const fn method(verb: Verb) -> HttpMethod {
    match verb {
        Verb::Get => HttpMethod::Get,
        Verb::Post => HttpMethod::Post,
        Verb::Put => HttpMethod::Put,
        Verb::Delete => HttpMethod::Delete,
        Verb::Patch => HttpMethod::Patch,
    }
}
