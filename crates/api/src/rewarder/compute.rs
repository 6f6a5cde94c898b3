//! Computing an epoch, and letting its payouts leave.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::response::IntoResponse as _;
use http::{HeaderValue, StatusCode, header};
use ron_calculus::Units;
use ron_types::Kind;
use serde::Deserialize;
use svc_rewarder::EpochId;
use svc_rewarder::capabilities::{COMPUTE, RELEASE};
use svc_rewarder::service::{Begun, ComputeRequest, CorrectionRequest, InputRef};
use utoipa::ToSchema;

use super::answers::{EpochAnswer, SettlementAnswer, epoch_answer, settlement_answer};
use super::raw_json::RawJson;
use super::{App, Routes, STATUSES, epoch_of, inputs, told};
use crate::auth::Bearer;
use crate::body::too_large;
use crate::call::Call;
use crate::extract::{Json, Path, Payload};
use crate::handler::{HandlerResult, with};
use crate::operation::Operation;
use crate::problem::Problem;

static COMPUTE_EPOCH: Operation = Operation::post(
    "/rewarder/epochs/{epoch}/compute",
    "epochs",
    "has an epoch computed; again with the same inputs finds it (200), while it is computed and with others 409, \
     quarantined 422",
)
.allows(COMPUTE)
.body::<ComputeBody>(
    r#"{"inputs":[{"path":"2026-11.parquet"}],"policy":{"payload":"…","payloadType":"application/vnd.macronode.reward-policy+json","signatures":[]}}"#,
)
.answers::<EpochAnswer>()
.accepted()
.created()
.errors(&[Kind::NotFound, Kind::Conflict, Kind::Quarantine, Kind::FrameTooLarge])
.statuses(STATUSES);

static CORRECT_EPOCH: Operation = Operation::post(
    "/rewarder/epochs/{epoch}/correct",
    "epochs",
    "takes a correction in that `reward correct` made: its files are uploaded as inputs, its commitment names them; it \
     is computed again and held for a release. Again finds it (200); 409 if what it corrects is not settled here or is \
     corrected already",
)
.allows(COMPUTE)
.body::<CorrectBody>(
    r#"{"commitment":"b3:…","corrects":"2026-11","signatures":{"payload":"…","payloadType":"application/vnd.macronode.reward-correction+json","signatures":[]}}"#,
)
.answers::<EpochAnswer>()
.accepted()
.created()
.errors(&[Kind::NotFound, Kind::Conflict, Kind::Quarantine, Kind::FrameTooLarge])
.statuses(STATUSES);

static RELEASE_EPOCH: Operation = Operation::post(
    "/rewarder/epochs/{epoch}/release",
    "epochs",
    "lets the payouts of a held epoch leave; again is fine. With `lift_quarantine` also those of an epoch that its \
     ledger refused or whose files were damaged (422 without), once that is mended: what is booked is not booked again",
)
.allows(RELEASE)
.body::<ReleaseBody>(r#"{"lift_quarantine":false}"#)
.optional_body()
.answers::<SettlementAnswer>()
.errors(&[Kind::NotFound, Kind::Conflict, Kind::Quarantine])
.statuses(STATUSES);

static REJECT_EPOCH: Operation = Operation::post(
    "/rewarder/epochs/{epoch}/reject",
    "epochs",
    "says that a held epoch is never paid; again is fine. What was carried into it is there for another epoch, and the \
     right run can be computed under the same id, which is held then; 409 if it is not held, or another epoch has \
     carried in what it left over",
)
.allows(RELEASE)
.body::<RejectBody>(r#"{"reason":"usage of another month"}"#)
.optional_body()
.answers::<SettlementAnswer>()
.errors(&[Kind::NotFound, Kind::Conflict])
.statuses(STATUSES);

/// What to compute an epoch from.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ComputeBody {
    /// Files of usage.
    #[schema(min_items = 1, max_items = 1024)]
    inputs: Vec<InputBody>,
    /// A signed policy (a DSSE envelope), or a bare one together with `unsigned` where the node takes those.
    #[schema(value_type = Object)]
    policy: RawJson,
    /// Pools of this epoch by asset, in place of those in the policy.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, String>)]
    pools: BTreeMap<String, Units>,
    /// The epoch whose leftovers are added to the pools; each epoch's are taken once, by callers with a right on it.
    carry_from: Option<String>,
    /// Milliseconds the run has; at most half of an epoch.
    #[schema(minimum = 1)]
    deadline_ms: Option<u64>,
    /// A policy that nobody signed will do.
    #[serde(default)]
    unsigned: bool,
}

/// One file of usage: uploaded (`b3`), below the node's folder of inputs (`path`, and `b3` to pin its bytes), or what
/// the node's own meter sealed (`meter`).
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct InputBody {
    /// BLAKE3 hash of the bytes, in hexadecimal, with or without `b3:`.
    b3: Option<String>,
    /// Path below the folder of inputs.
    path: Option<String>,
    /// Epoch of the sealed usage; the caller must have the right to compute it too.
    meter: Option<String>,
}

/// A correction whose files were uploaded.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CorrectBody {
    /// Its commitment: the BLAKE3 hash of its `run.json`.
    commitment: String,
    /// The epoch that it corrects, on which the caller must have the right as well.
    corrects: String,
    /// The signatures under it, as `reward sign` writes them.
    #[schema(value_type = Option<Object>)]
    signatures: Option<RawJson>,
    /// A correction that nobody signed will do.
    #[serde(default)]
    unsigned: bool,
}

/// How an epoch is released.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReleaseBody {
    /// Whether a quarantine by the ledger or by damaged files is lifted.
    #[serde(default)]
    lift_quarantine: bool,
}

/// Why an epoch is rejected.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RejectBody {
    /// Words for those who look at the epoch later; what is long is cut.
    #[serde(default)]
    reason: String,
}

pub(super) const OPERATIONS: &[&Operation] = &[&COMPUTE_EPOCH, &CORRECT_EPOCH, &RELEASE_EPOCH, &REJECT_EPOCH];

pub(super) fn routes(routes: Routes) -> Routes {
    let app = Arc::clone(&routes.app);
    routes
        .add(&COMPUTE_EPOCH, with!(app, compute(call, bearer, epoch, body)))
        .add(&CORRECT_EPOCH, with!(app, correct(call, bearer, epoch, body)))
        .add(&RELEASE_EPOCH, with!(app, release(call, bearer, epoch, body)))
        .add(&REJECT_EPOCH, with!(app, reject(call, bearer, epoch, body)))
}

async fn compute(app: Arc<App>, call: Call, bearer: Bearer, epoch: Path<String>, body: Payload) -> HandlerResult {
    let epoch = epoch_of(&epoch.0)?;
    let subject = app.allow(&bearer, COMPUTE, epoch.as_str())?;
    let bytes_max = app.rewarder.live().body_bytes_max;
    if body.0.len() > bytes_max {
        return Err(too_large(bytes_max));
    }
    let request = crate::extract::parse::<ComputeBody>(&body.0)?.request(epoch.clone())?;
    for other in others_named(&request) {
        app.allow(&bearer, COMPUTE, other.as_str())?;
    }
    let begun = app.rewarder.compute(&subject, request, call.deadline).await.map_err(told)?;
    begun_answer(&app, &epoch, begun, &call).await
}

/// Other epochs that a request draws on. Their leftovers are spent by it and their sealed usage is shown by its run, so
/// that the caller must have a right on them too.
fn others_named(request: &ComputeRequest) -> impl Iterator<Item = &EpochId> {
    let metered = request.inputs.iter().filter_map(|input| match input {
        InputRef::Meter(epoch) => Some(epoch),
        InputRef::Upload(_) | InputRef::File { .. } => None,
    });
    request.carry_from.iter().chain(metered).filter(|other| **other != request.epoch)
}

async fn correct(app: Arc<App>, call: Call, bearer: Bearer, epoch: Path<String>, body: Payload) -> HandlerResult {
    let epoch = epoch_of(&epoch.0)?;
    let subject = app.allow(&bearer, COMPUTE, epoch.as_str())?;
    let bytes_max = app.rewarder.live().body_bytes_max;
    if body.0.len() > bytes_max {
        return Err(too_large(bytes_max));
    }
    let CorrectBody { commitment, corrects, signatures, unsigned } = crate::extract::parse(&body.0)?;
    let (commitment, corrects) = (inputs::hash_of(&commitment)?, epoch_of(&corrects)?);
    // It takes from those whom the other epoch has paid.
    app.allow(&bearer, COMPUTE, corrects.as_str())?;
    let signatures = signatures.map(|signatures| signatures.0.into_bytes());
    let request = CorrectionRequest { epoch: epoch.clone(), corrects, commitment, signatures, unsigned };
    let begun = app.rewarder.correct(&subject, request, call.deadline).await.map_err(told)?;
    begun_answer(&app, &epoch, begun, &call).await
}

/// The epoch as it stands, with 202 if work on it was begun.
async fn begun_answer(app: &App, epoch: &EpochId, begun: Begun, call: &Call) -> HandlerResult {
    let answer = epoch_answer(&app.rewarder, epoch, call.deadline).await?;
    let mut response = Json(answer).into_response();
    if begun == Begun::Started && response.status().is_success() {
        *response.status_mut() = StatusCode::ACCEPTED;
        let location = HeaderValue::try_from(format!("/rewarder/epochs/{epoch}"));
        response.headers_mut().extend(location.ok().map(|location| (header::LOCATION, location)));
    }
    Ok(response)
}

async fn release(app: Arc<App>, call: Call, bearer: Bearer, epoch: Path<String>, body: Payload) -> HandlerResult {
    let epoch = epoch_of(&epoch.0)?;
    let subject = app.allow(&bearer, RELEASE, epoch.as_str())?;
    // Nothing at all asks for nothing special.
    let asked = if body.0.is_empty() { ReleaseBody::default() } else { crate::extract::parse(&body.0)? };
    let row = app.rewarder.release(&epoch, &subject.name, asked.lift_quarantine, call.deadline).await.map_err(told)?;
    Ok(Json(settlement_answer(&row)).into_response())
}

async fn reject(app: Arc<App>, call: Call, bearer: Bearer, epoch: Path<String>, body: Payload) -> HandlerResult {
    let epoch = epoch_of(&epoch.0)?;
    let subject = app.allow(&bearer, RELEASE, epoch.as_str())?;
    let asked = if body.0.is_empty() { RejectBody::default() } else { crate::extract::parse(&body.0)? };
    let row = app.rewarder.reject(&epoch, &subject.name, &asked.reason, call.deadline).await.map_err(told)?;
    Ok(Json(settlement_answer(&row)).into_response())
}

impl ComputeBody {
    fn request(self, epoch: EpochId) -> Result<ComputeRequest, Problem> {
        Ok(ComputeRequest {
            epoch,
            inputs: self.inputs.into_iter().enumerate().map(InputBody::reference).collect::<Result<_, _>>()?,
            policy: self.policy.0.into_bytes(),
            pools: self.pools,
            carry_from: self.carry_from.as_deref().map(epoch_of).transpose()?,
            unsigned: self.unsigned,
            deadline: self.deadline_ms.map(Duration::from_millis),
        })
    }
}

impl InputBody {
    fn reference((index, input): (usize, InputBody)) -> Result<InputRef, Problem> {
        let hash = input.b3.as_deref().map(inputs::hash_of).transpose()?;
        match (hash, input.path, input.meter) {
            (b3, Some(path), None) => Ok(InputRef::File { path, b3 }),
            (Some(hash), None, None) => Ok(InputRef::Upload(hash)),
            (None, None, Some(epoch)) => Ok(InputRef::Meter(epoch_of(&epoch)?)),
            _ => {
                let detail =
                    format!("inputs[{index}]: one of `b3`, `path` (perhaps with `b3`) and `meter` is asked for");
                Err(Problem::schema(StatusCode::BAD_REQUEST, detail))
            }
        }
    }
}
