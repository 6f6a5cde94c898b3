//! Publishing one message. The right is checked before anything of the body is read.

use std::sync::Arc;

use axum::extract::Request;
use axum::response::IntoResponse as _;
use bytes::Bytes;
use http::StatusCode;
use ron_types::Kind;
use ron_types::limits::overlay::PAYLOAD_BYTES_MAX;
use svc_overlay::capabilities::PUBLISH;
use svc_overlay::check_lane;

use super::words::{PublishAnswer, PublishRequest};
use super::{App, Routes, lane_of};
use crate::auth::Bearer;
use crate::body;
use crate::call::Call;
use crate::extract::{self, Json, Path};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;
use crate::problem::Problem;

/// Largest body as JSON: the largest payload in base64, and the words around it.
pub(super) const JSON_BYTES_MAX: usize = PAYLOAD_BYTES_MAX.div_ceil(3) * 4 + 1024;

static PUBLISH_MESSAGE: Operation = Operation::post(
    "/overlay/lanes/{lane}/publish",
    "lanes",
    "publishes a message of at most 4 MiB: as JSON, or its bytes as they are under any other media type. The answer \
     says what became of it at each peer; nobody waits for a slow one. The lane _dht is the node's own: publishing on \
     it is refused with 403",
)
.allows(PUBLISH)
.takes_stream()
.body::<PublishRequest>(r#"{"payload_b64":"aGVsbG8="}"#)
.answers::<PublishAnswer>()
.accepted()
.errors(&[Kind::FrameTooLarge]);

pub(super) const OPERATIONS: &[&Operation] = &[&PUBLISH_MESSAGE];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes.add(&PUBLISH_MESSAGE, with!(app, publish(call, bearer, lane, request)))
}

async fn publish(app: Arc<App>, call: Call, bearer: Bearer, lane: Path<String>, request: Request) -> HandlerResult {
    let lane = lane_of(&lane.0)?;
    let subject = app.allow(&bearer, PUBLISH, &lane)?;
    check_lane(&lane)?;
    let payload = read(request, &call).await?;
    let published = app.overlay.publish(&subject.name, lane, payload).await?;
    Ok((StatusCode::ACCEPTED, Json(PublishAnswer::new(&lane, &published))).into_response())
}

/// The payload in a body, whichever way it came.
async fn read(request: Request, call: &Call) -> Result<Bytes, Problem> {
    let is_json = extract::is_json_itself(request.headers());
    let bytes_max = if is_json { JSON_BYTES_MAX } else { PAYLOAD_BYTES_MAX };
    let content = body::begin(request, call)?.1.up_to(bytes_max)?.whole().await?;
    if !is_json {
        return Ok(content);
    }
    let PublishRequest { payload_b64 } = extract::parse(&content)?;
    Ok(payload_b64.0)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    async fn read_from(media_type: &str, content: Vec<u8>) -> Result<Bytes, StatusCode> {
        let request = Request::builder().header("content-type", media_type).body(Body::from(content));
        read(request.expect("a request"), &Call::alone()).await.map_err(|problem| problem.status)
    }

    #[tokio::test]
    async fn a_payload_comes_as_json_or_as_it_is() {
        let json = || br#"{"payload_b64":"aGk"}"#.to_vec();
        assert_eq!(read_from("application/json; charset=utf-8", json()).await, Ok(Bytes::from_static(b"hi")));
        assert_eq!(read_from("Application/JSON", json()).await, Ok(Bytes::from_static(b"hi")));
        for other in ["text/plain", "application/cloudevents+json", "application/json-seq", "text/json"] {
            assert_eq!(read_from(other, json()).await, Ok(Bytes::from(json())), "{other}");
        }
        assert_eq!(read_from("application/octet-stream", Vec::new()).await, Ok(Bytes::new()));
        for wrong in [&b"{}"[..], b"", br#"{"payload_b64":"!"}"#, br#"{"payload_b64":"","lane":"a"}"#] {
            assert_eq!(read_from("application/json", wrong.to_vec()).await, Err(StatusCode::BAD_REQUEST));
        }
    }

    #[tokio::test]
    async fn the_largest_payload_fits_either_way_and_no_byte_more() {
        let largest = vec![7; PAYLOAD_BYTES_MAX];
        let json = |payload: &[u8]| {
            format!(r#"{{"payload_b64":"{}"}}"#, base64_simd::STANDARD.encode_to_string(payload)).into_bytes()
        };
        assert_eq!(read_from("application/json", json(&largest)).await.map(|bytes| bytes.len()), Ok(largest.len()));
        assert_eq!(read_from("a/b", largest.clone()).await.map(|bytes| bytes.len()), Ok(largest.len()));
        let larger = vec![7; PAYLOAD_BYTES_MAX + 1];
        assert_eq!(read_from("a/b", larger).await, Err(StatusCode::PAYLOAD_TOO_LARGE));
        let much_larger = vec![7; PAYLOAD_BYTES_MAX + 1024];
        assert_eq!(read_from("application/json", json(&much_larger)).await, Err(StatusCode::PAYLOAD_TOO_LARGE));
    }

    #[tokio::test]
    async fn a_body_without_a_length_is_stopped_at_the_same_byte() {
        let piece = || Ok::<_, std::convert::Infallible>(Bytes::from(vec![0; 1 << 20]));
        let body = Body::from_stream(futures_util::stream::iter((0..5).map(move |_| piece())));
        let request = Request::builder().body(body).expect("a request");
        let refused = read(request, &Call::alone()).await.map_err(|problem| problem.status);
        assert_eq!(refused, Err(StatusCode::PAYLOAD_TOO_LARGE));
    }
}
