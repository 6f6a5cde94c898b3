//! What the rewarder answers: epochs as they stand.

use std::collections::BTreeMap;

use ron_kernel::Deadline;
use serde::Serialize;
use serde_json::{Map, Value, json};
use svc_rewarder::service::EpochState;
use svc_rewarder::store::EpochRow;
use svc_rewarder::{EpochId, Rewarder};
use utoipa::ToSchema;

use crate::problem::Problem;

/// An epoch. A sealed one has all members of its manifest `run.json` beside these.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct EpochAnswer {
    /// Id of the epoch.
    epoch: String,
    /// How it stands: `computing`, `refused`, `held`, `released`, `settled` or `quarantined`.
    state: String,
    /// Commitment over the manifest.
    commitment: Option<String>,
    /// What was divided, by asset: pool, paid, delta and roots.
    #[schema(value_type = Vec<Object>)]
    assets: Option<Value>,
    /// How far it is, while it is computed.
    #[schema(value_type = Option<Object>)]
    progress: Option<Value>,
    /// Who removed its artifacts; then only its sums are left.
    artifacts_removed_by: Option<String>,
    /// Why it was refused, with the first bad rows.
    #[schema(value_type = Option<Object>)]
    refusal: Option<Value>,
}

/// One epoch of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct EpochSummary {
    /// Id of the epoch.
    epoch: String,
    /// How it stands.
    state: &'static str,
    /// Name of the policy.
    policy: String,
    /// Commitment over the manifest.
    commitment: String,
    /// Actors in its usage.
    actors: u64,
    /// Payouts.
    intents: u64,
    /// Payouts that the ledger has answered for, as far as it is written down.
    sent: u64,
    /// Units paid, by asset.
    paid: BTreeMap<String, String>,
}

/// How the payouts of an epoch stand.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SettlementAnswer {
    /// Id of the epoch.
    epoch: String,
    /// How it stands: `held`, `released`, `settled` or `quarantined`.
    state: &'static str,
    /// Payouts.
    intents: u64,
    /// Payouts that the ledger has answered for, as far as it is written down.
    sent: u64,
    /// Why they wait for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_because: Option<String>,
    /// Who released them.
    #[serde(skip_serializing_if = "Option::is_none")]
    released_by: Option<String>,
    /// What was compared with the ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    reconciliation: Option<Value>,
    /// Why it is quarantined.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    quarantine: Option<Value>,
    /// Who removed its artifacts.
    #[serde(skip_serializing_if = "Option::is_none")]
    artifacts_removed_by: Option<String>,
}

/// An epoch as it stands, with its manifest if it is sealed.
pub(super) async fn epoch_answer(rewarder: &Rewarder, epoch: &EpochId, deadline: Deadline) -> Result<Value, Problem> {
    let id = epoch.as_str();
    Ok(match rewarder.epoch(epoch)? {
        EpochState::Computing(progress) => json!({"epoch": id, "state": "computing", "progress": progress}),
        EpochState::Refused(refusal) => json!({"epoch": id, "state": "refused", "refusal": *refusal}),
        EpochState::Sealed(row) if row.removed_by.is_some() => json!({
            "epoch": id, "state": row.status.as_str(), "commitment": row.commitment, "assets": row.totals,
            "artifacts_removed_by": row.removed_by,
        }),
        EpochState::Sealed(row) => {
            let manifest = rewarder.manifest(epoch, deadline).await?;
            let mut answer = match serde_json::to_value(&manifest) {
                Ok(Value::Object(members)) => members,
                _ => Map::new(),
            };
            answer.insert("state".to_owned(), row.status.as_str().into());
            answer.insert("commitment".to_owned(), row.commitment.clone().into());
            if let Some(because) = &row.held_because {
                answer.insert("held_because".to_owned(), because.clone().into());
            }
            if let Some(quarantine) = &row.quarantine {
                answer.insert("quarantine".to_owned(), json!(quarantine));
            }
            Value::Object(answer)
        }
    })
}

/// Members of an answer that name people, or show single amounts: why somebody had to look, and who removed what.
const NOT_PUBLIC: [&str; 5] = ["held_because", "quarantine", "reason", "refusal", "artifacts_removed_by"];

/// What everybody may see of a settled epoch. Names of input files stay out too: whoever computed it has chosen them.
pub(super) fn public_answer(mut answer: Value) -> Value {
    if let Some(members) = answer.as_object_mut() {
        members.retain(|name, _| !NOT_PUBLIC.contains(&name.as_str()));
    }
    let inputs = answer.get_mut("inputs").and_then(Value::as_array_mut);
    for input in inputs.into_iter().flatten().filter_map(Value::as_object_mut) {
        input.remove("name");
    }
    answer
}

pub(super) fn settlement_answer(row: &EpochRow) -> SettlementAnswer {
    SettlementAnswer {
        epoch: row.epoch.clone(),
        state: row.status.as_str(),
        intents: row.intents,
        sent: row.sent,
        held_because: row.held_because.clone(),
        released_by: row.released_by.clone(),
        reconciliation: row.reconciliation.clone(),
        quarantine: row.quarantine.as_ref().map(|quarantine| json!(quarantine)),
        artifacts_removed_by: row.removed_by.clone(),
    }
}

impl EpochSummary {
    pub(super) fn of(row: &EpochRow) -> EpochSummary {
        EpochSummary {
            epoch: row.epoch.clone(),
            state: row.status.as_str(),
            policy: row.policy.clone(),
            commitment: row.commitment.clone(),
            actors: row.actors,
            intents: row.intents,
            sent: row.sent,
            paid: row.totals.iter().map(|total| (total.asset.clone(), total.paid.to_string())).collect(),
        }
    }
}
