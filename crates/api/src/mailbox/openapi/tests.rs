//! The description against the routes that are served.

use std::collections::BTreeSet;

use ron_auth::{Authority, RootKey};
use ron_kernel::{Builder, KernelOptions, Metrics, Snapshot};
use serde_json::Value;
use svc_mailbox::{LiveOptions, MailboxOptions};

use super::super::{App, topics};
use super::*;
use crate::limits::HttpLimits;
use crate::mailbox_routes;
use crate::route::{Api, ApiBuilder};
use crate::sqs::Keyring;

fn routes_before() -> Routes {
    let mut builder = Builder::new(KernelOptions::default(), Metrics::new());
    let kernel = builder.handle();
    let authority = Authority::new(RootKey::generate(), None, || 0);
    let live = Snapshot::new(LiveOptions::default());
    let mailbox = svc_mailbox::install(&mut builder, MailboxOptions::default(), live, authority.clone(), None);
    let api = ApiBuilder::new(kernel.clone(), Snapshot::new(HttpLimits::default()));
    let keyring = Keyring::open(None).expect("no file");
    let (streams, event_streams) = Default::default();
    let app = App { mailbox, authority, keyring, kernel, streams, event_streams };
    Routes { builder: api, app: std::sync::Arc::new(app), operations: Vec::new() }
}

fn served() -> Api {
    let Routes { builder, app, .. } = routes_before();
    mailbox_routes(builder, app.mailbox.clone(), app.authority.clone(), app.keyring.clone()).build()
}

fn operations() -> Vec<&'static Operation> {
    super::super::collected(routes_before()).operations
}

fn document() -> Value {
    serde_json::from_slice(&document::write(&operations())).expect("json")
}

#[test]
fn what_is_served_is_described_and_what_is_described_is_served() {
    let api = served();
    let served: BTreeSet<(String, String)> =
        api.routes().iter().map(|spec| (spec.pattern.to_owned(), spec.method.name().to_ascii_lowercase())).collect();
    let document = document();
    let paths = document["paths"].as_object().expect("paths");
    let described: BTreeSet<(String, String)> = paths
        .iter()
        .flat_map(|(path, item)| item.as_object().expect("an item").keys().map(|method| (path.clone(), method.clone())))
        .collect();
    assert_eq!(served, described);
    assert!(served.len() > 30, "{} routes", served.len());
}

#[test]
fn every_route_names_its_errors_and_its_token() {
    let document = document();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["components"]["securitySchemes"]["bearer"]["scheme"], "bearer");
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("an item") {
            let needs_token = !["/openapi.json", "/docs"].contains(&path.as_str());
            assert_eq!(operation["security"].is_array(), needs_token, "{method} {path}");
            let tags = document["tags"].as_array().expect("tags");
            assert!(tags.iter().any(|tag| tag["name"] == operation["tags"][0]), "{method} {path}");
            let answers = operation["responses"].as_object().expect("answers");
            for status in ["400", "429", "503", "504"] {
                let schema = &answers[status]["content"]["application/problem+json"]["schema"]["$ref"];
                assert_eq!(schema, "#/components/schemas/Problem", "{method} {path} {status}");
            }
            assert_eq!(answers.contains_key("401") && answers.contains_key("403"), needs_token, "{method} {path}");
        }
    }
}

#[test]
fn operations_have_names_of_their_own() {
    let document = document();
    let items = document["paths"].as_object().expect("paths").values();
    let operations: Vec<&Value> = items.flat_map(|item| item.as_object().expect("an item").values()).collect();
    let names: BTreeSet<&str> =
        operations.iter().map(|operation| operation["operationId"].as_str().expect("a name")).collect();
    assert_eq!(names.len(), operations.len());
}

#[test]
fn every_reference_leads_somewhere() {
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
    let document = document();
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
    for operation in operations() {
        if let Some(body) = &operation.body {
            (body.reads)(body.example).unwrap_or_else(|error| panic!("{}: {error}", operation.spec.pattern));
        }
    }
}

#[test]
fn settings_are_described_as_they_are_shown() {
    let shown = serde_json::to_value(svc_mailbox::types::TopicSettings::default()).expect("json");
    let document = document();
    let described = document["components"]["schemas"]["Settings"]["properties"].as_object().expect("fields");
    let names = |fields: &serde_json::Map<String, Value>| fields.keys().cloned().collect::<BTreeSet<String>>();
    assert_eq!(names(shown.as_object().expect("fields")), names(described));
    let name = <topics::Settings as ToSchema>::name();
    assert_eq!(name, "Settings");
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    for foreign in ["http://", "https://", "//cdn", "@import", "src=", "url("] {
        assert!(!PAGE.contains(foreign), "{foreign}");
    }
    assert!(PAGE.contains("openapi.json"));
}
