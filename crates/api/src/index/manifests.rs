//! Documents addressed by their hash.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderValue, header};
use ron_store::ContentId;
use ron_types::{Error, Kind};
use serde::Serialize;
use svc_index::capabilities::PUBLISH;
use utoipa::ToSchema;

use super::words::ContentWords;
use super::{App, Asker, READERS, Routes, caching, content_of};
use crate::body;
use crate::call::Call;
use crate::extract::{Json, Path};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;

/// What has this name never changes.
const FOREVER: &str = "max-age=31536000, immutable";

static GET_MANIFEST: Operation =
    Operation::get("/manifests/{id}", "manifests", "the bytes of a document that this node keeps, verified")
        .needs(READERS)
        .speaks(&[], &["application/octet-stream"])
        .errors(&[Kind::NotFound, Kind::Integrity]);

static PUT_MANIFEST: Operation = Operation::put(
    "/manifests/{id}",
    "manifests",
    "keeps a document of at most a mebibyte, whose BLAKE3 hash the id must be",
)
.needs("`index:publish`")
.speaks(&["application/octet-stream"], &[])
.answers::<ManifestAnswer>()
.errors(&[Kind::Unauthenticated, Kind::Forbidden, Kind::FrameTooLarge, Kind::Integrity])
.takes_stream();

/// A document that is kept.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ManifestAnswer {
    /// Its ids.
    content: ContentWords,
    /// Bytes of it.
    bytes: usize,
}

pub(super) const OPERATIONS: &[&Operation] = &[&GET_MANIFEST, &PUT_MANIFEST];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes
        .add_open(&GET_MANIFEST, with!(app, get(asker, headers, id)))
        .add_open(&PUT_MANIFEST, with!(app, put(call, asker, id, request)))
}

async fn get(app: Arc<App>, asker: Asker, headers: HeaderMap, id: Path<String>) -> HandlerResult {
    let id = content_of("id", &id.0)?;
    let admitted = app.admit(&asker, &id)?;
    let found = app.index.manifest(&id).await?;
    let bytes = found.ok_or_else(|| Error::new(Kind::NotFound, "this node keeps no such document"))?;
    let etag = format!("\"{id}\"");
    let mut response = Response::new(Body::from(bytes));
    let answer = response.headers_mut();
    answer.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    // Anybody may have written it: a browser is to show none of it as a page of this node.
    answer.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox"));
    answer.insert(header::CACHE_CONTROL, caching::life(admitted.access, FOREVER));
    caching::add_etag(answer, &etag);
    Ok(if caching::is_known(&headers, &etag) { caching::not_modified(response) } else { response })
}

async fn put(app: Arc<App>, call: Call, asker: Asker, id: Path<String>, request: Request) -> HandlerResult {
    let id = content_of("id", &id.0)?;
    let admitted = app.allow(&asker, PUBLISH, &id.to_string())?;
    let bytes = body::begin(request, &call)?.1.up_to(app.index.live().body_bytes_max)?.whole().await?;
    if !is_named(&id, &bytes) {
        let detail = "the bytes have another BLAKE3 hash than the id";
        return Err(Error::new(Kind::Integrity, detail).into());
    }
    let count = bytes.len();
    let kept = app.index.publish_manifest(&admitted.tenant, bytes).await?;
    let mut response = Json(ManifestAnswer { content: ContentWords::of(&kept), bytes: count }).into_response();
    caching::add_etag(response.headers_mut(), &format!("\"{kept}\""));
    Ok(response)
}

/// Whether the bytes are those that the id names. Documents are kept under their BLAKE3 hash alone.
fn is_named(id: &ContentId, bytes: &[u8]) -> bool {
    *id == ContentId::of_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_has_the_name_of_its_bytes() {
        let id = "b3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85".parse().expect("an id");
        assert!(is_named(&id, b"abc"));
        assert!(!is_named(&id, b"abd"));
        let cid = "bafkr4ideg6z2yocgkez77nr3outtvdnvjdcvqrs5phnqh7jvtrwnlpm5qu".parse().expect("a CID");
        assert!(is_named(&cid, b"abc"), "the same bytes, written as a CID");
    }
}
