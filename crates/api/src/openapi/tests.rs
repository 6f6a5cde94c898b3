//! The page, and what a plane says where no surface says more.

use axum::extract::Request;
use http::Uri;
use ron_kernel::{Builder, KernelOptions, Metrics, Snapshot};
use serde_json::Value;

use super::*;
use crate::limits::HttpLimits;

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    for foreign in ["http://", "https://", "//cdn", "@import", "src=", "url("] {
        assert!(!PAGE.contains(foreign), "{foreign}");
    }
    assert!(PAGE.contains("openapi.json"));
}

#[tokio::test]
async fn a_plane_without_surfaces_says_what_it_is() {
    let kernel = Builder::new(KernelOptions::default(), Metrics::new());
    let api = ApiBuilder::new(kernel.handle(), Snapshot::new(HttpLimits::default())).build();
    let ask = async |path: &'static str| -> Value {
        let mut request = Request::default();
        *request.uri_mut() = Uri::from_static(path);
        let body = api.answer_to(request).await.into_body();
        serde_json::from_slice(&axum::body::to_bytes(body, 1 << 20).await.expect("a whole body")).expect("json")
    };
    let root = ask("/").await;
    assert_eq!(root["name"], "macronode");
    let description = ask("/openapi.json").await;
    assert_eq!(root["version"], description["info"]["version"]);
    let paths: Vec<&String> = description["paths"].as_object().expect("paths").keys().collect();
    assert_eq!(paths, ["/", "/docs", "/openapi.json"]);
    for path in [&root["openapi"], &root["docs"]] {
        assert!(paths.iter().any(|described| *path == **described), "{path}");
    }
}
