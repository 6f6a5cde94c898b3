//! The description of a whole node against what it serves.

use std::collections::BTreeSet;

use axum::extract::Request;
use http::Uri;
use ron_auth::RootKey;
use ron_kernel::{Builder, KernelOptions, Metrics, Snapshot};
use serde_json::Value;
use svc_mailbox::{LiveOptions, MailboxOptions};
use utoipa::ToSchema as _;

use super::*;
use crate::limits::HttpLimits;
use crate::route::Api;
use crate::sqs::{self, Keyring, SqsOptions, sqs_routes};
use crate::tokens::{self, node_routes};

fn served() -> Api {
    let mut builder = Builder::new(KernelOptions::default(), Metrics::new());
    let kernel = builder.handle();
    let authority = Authority::new(RootKey::generate(), None, || 0);
    let live = Snapshot::new(LiveOptions::default());
    let mailbox = svc_mailbox::install(&mut builder, MailboxOptions::default(), live);
    let api = ApiBuilder::new(kernel, Snapshot::new(HttpLimits::default()));
    let api = mailbox_routes(
        node_routes(api, authority.clone(), vec![&svc_mailbox::capabilities::CAPABILITIES]),
        mailbox.clone(),
        authority.clone(),
    );
    let keyring = Keyring::open(None).expect("no file");
    sqs_routes(api, mailbox, authority, keyring, SqsOptions::default()).build()
}

#[tokio::test]
async fn no_name_of_a_topic_is_the_word_of_another_route() {
    let api = served();
    let patterns: Vec<&str> = api.operations().iter().map(|operation| operation.spec.pattern).collect();
    let mut words = BTreeSet::new();
    for pattern in &patterns {
        let Some((before, _)) = pattern.split_once("{topic}") else { continue };
        let others = patterns.iter().filter_map(|other| other.strip_prefix(before));
        let first = others.filter_map(|rest| rest.split('/').next()).filter(|word| !word.starts_with('{'));
        words.extend(first.map(|word| format!("{before}{word}")));
    }
    // What is asked for there can be asked for below /v1/topics as well.
    assert_eq!(words.into_iter().collect::<Vec<_>>(), ["/v1/dlq/tasks"]);
}

async fn document() -> Value {
    let mut request = Request::default();
    *request.uri_mut() = Uri::from_static("/openapi.json");
    let body = served().answer_to(request).await.into_body();
    let body = axum::body::to_bytes(body, usize::MAX).await.expect("a whole body");
    serde_json::from_slice(&body).expect("json")
}

fn place(operation: &Operation) -> (String, String) {
    (operation.spec.pattern.to_owned(), operation.spec.method.name().to_ascii_lowercase())
}

#[tokio::test]
async fn what_is_served_is_declared_and_described() {
    let served: BTreeSet<(String, String)> = served().operations().iter().map(|one| place(one)).collect();
    let surfaces = [&SURFACE, &sqs::SURFACE, &tokens::SURFACE];
    let declared = surfaces.iter().flat_map(|surface| surface.operations).map(|one| place(one));
    let plane = ["/openapi.json", "/docs"].map(|path| (path.to_owned(), "get".to_owned()));
    assert_eq!(served, declared.chain(plane).collect());
    let document = document().await;
    let paths = document["paths"].as_object().expect("paths");
    let described: BTreeSet<(String, String)> = paths
        .iter()
        .flat_map(|(path, item)| item.as_object().expect("an item").keys().map(|method| (path.clone(), method.clone())))
        .collect();
    assert_eq!(served, described);
    assert!(served.len() > 40, "{} routes", served.len());
}

#[tokio::test]
async fn every_route_names_its_errors_and_its_token() {
    let document = document().await;
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["components"]["securitySchemes"]["bearer"]["scheme"], "bearer");
    let tags = document["tags"].as_array().expect("tags");
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("an item") {
            let is_sqs = operation["tags"][0] == "mailbox: SQS";
            let needs_token = !(is_sqs || ["/openapi.json", "/docs", "/v1/identity"].contains(&path.as_str()));
            assert_eq!(operation["security"].is_array(), needs_token, "{method} {path}");
            assert!(tags.iter().any(|tag| tag["name"] == operation["tags"][0]), "{method} {path}");
            let answers = operation["responses"].as_object().expect("answers");
            for status in ["400", "429", "503", "504"] {
                let content = &answers[status]["content"];
                let schema = &content["application/problem+json"]["schema"]["$ref"];
                assert_eq!(schema, "#/components/schemas/Problem", "{method} {path} {status}");
                assert_eq!(content["text/xml"].is_object(), is_sqs, "{method} {path} {status}");
            }
            let is_guarded = answers.contains_key("401") && answers.contains_key("403");
            assert_eq!(is_guarded, needs_token, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn tags_are_grouped_by_service() {
    let document = document().await;
    let groups = document["x-tagGroups"].as_array().expect("groups");
    let names: Vec<&str> = groups.iter().filter_map(|group| group["name"].as_str()).collect();
    assert_eq!(names, ["mailbox", "node"]);
    let tags = serde_json::json!([
        "mailbox: messages",
        "mailbox: leases",
        "mailbox: topics",
        "mailbox: dead letters",
        "mailbox: operations",
        "mailbox: SQS",
        "mailbox: access keys",
    ]);
    assert_eq!(groups[0]["tags"], tags);
    let grouped = groups.iter().flat_map(|group| group["tags"].as_array().expect("tags"));
    let known = document["tags"].as_array().expect("tags").iter().map(|tag| &tag["name"]);
    assert!(grouped.eq(known), "each tag stands in one group");
}

#[tokio::test]
async fn operations_have_names_of_their_own() {
    let document = document().await;
    let items = document["paths"].as_object().expect("paths").values();
    let operations: Vec<&Value> = items.flat_map(|item| item.as_object().expect("an item").values()).collect();
    let names: BTreeSet<&str> =
        operations.iter().map(|operation| operation["operationId"].as_str().expect("a name")).collect();
    assert_eq!(names.len(), operations.len());
}

#[tokio::test]
async fn every_reference_leads_somewhere() {
    fn walk<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| match (name.as_str(), value) {
                ("$ref", Value::String(target)) => found.push(target),
                _ => walk(value, found),
            }),
            Value::Array(items) => items.iter().for_each(|item| walk(item, found)),
            _ => {}
        }
    }
    let document = document().await;
    let mut references = Vec::new();
    walk(&document, &mut references);
    assert!(!references.is_empty());
    for reference in references {
        let pointer = reference.strip_prefix('#').expect("within the document");
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

#[test]
fn every_example_is_a_request_that_its_route_reads() {
    for operation in served().operations() {
        if let Some(body) = &operation.body {
            (body.reads)(body.example).unwrap_or_else(|error| panic!("{}: {error}", operation.spec.pattern));
        }
    }
}

#[test]
fn no_more_pages_of_messages_are_gathered_at_once_than_fit_in_memory() {
    let (page, api) = (messages::PageAnswer::name(), served());
    let is_page = |operation: &&Operation| operation.answer.is_some_and(|answer| (answer.name)() == page);
    let of_pages: Vec<_> = api.operations().iter().copied().filter(is_page).map(|one| one.spec.concurrency).collect();
    assert_eq!(of_pages, [Some(messages::PAGES_AT_ONCE_MAX); 3]);
}

#[tokio::test]
async fn settings_are_described_as_they_are_shown() {
    let shown = serde_json::to_value(svc_mailbox::types::TopicSettings::default()).expect("json");
    let document = document().await;
    let described = document["components"]["schemas"]["Settings"]["properties"].as_object().expect("fields");
    let names = |fields: &serde_json::Map<String, Value>| fields.keys().cloned().collect::<BTreeSet<String>>();
    assert_eq!(names(shown.as_object().expect("fields")), names(described));
    let name = topics::Settings::name();
    assert_eq!(name, "Settings");
}
