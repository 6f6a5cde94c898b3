//! The sections of the configuration that the SQS surface owns: every key once, with its meaning and bounds.

use std::path::PathBuf;

use ron_types::TimeSpan;
use ron_types::settings::{HOUR_MS, ValueKind, choice, process, time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::options::{Regions, SqsOptions};

/// Digits of an account id of the service.
const ACCOUNT_ID_DIGITS: usize = 12;

/// The surface that speaks SQS.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SqsSection {
    /// The account in queue URLs and ARNs.
    #[schemars(extend("x-setting" = process(ValueKind::Digits { count: ACCOUNT_ID_DIGITS })))]
    pub account_id: String,
    /// The beginning of queue URLs, where clients reach the node by another address than the one they ask at.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-setting" = process(ValueKind::Origin)))]
    pub base_url: Option<String>,
    /// How long the name of a deleted queue cannot be used again; the service itself has 60s.
    #[schemars(extend("x-setting" = process(time(0, HOUR_MS))))]
    pub deleted_name_cooldown: TimeSpan,
    /// Take signatures that stand in the query of a URL.
    #[schemars(extend("x-setting" = process(ValueKind::Switch)))]
    pub presigned: bool,
    /// Whether a queue is seen in every region that a signature may name, or only in the one it was made in.
    #[schemars(extend("x-setting" = process(choice(&["shared", "separate"]))))]
    pub regions: Regions,
}

/// Who is let in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuthSection {
    /// Whether requests of SQS must be signed with an access key of the node; off only if `api.addr` is on loopback.
    #[schemars(extend("x-setting" = process(choice(&["sigv4", "off"]))))]
    pub sqs: SqsAuth,
}

/// How requests of SQS are let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SqsAuth {
    /// Signed with an access key.
    SigV4,
    /// All of them, for everything.
    Off,
}

impl Default for SqsSection {
    fn default() -> Self {
        let SqsOptions { account_id, base_url, deleted_name_cooldown, presigned, regions, .. } = SqsOptions::default();
        let deleted_name_cooldown = TimeSpan::from_duration(deleted_name_cooldown);
        SqsSection { account_id, base_url, deleted_name_cooldown, presigned, regions }
    }
}

impl Default for AuthSection {
    fn default() -> Self {
        AuthSection { sqs: SqsAuth::SigV4 }
    }
}

impl SqsSection {
    /// What the surface works with; keys are kept in the file, or in memory alone.
    pub fn options(&self, auth: &AuthSection, keys_file: Option<PathBuf>) -> SqsOptions {
        SqsOptions {
            account_id: self.account_id.clone(),
            base_url: self.base_url.as_ref().map(|url| url.trim_end_matches('/').to_owned()),
            deleted_name_cooldown: self.deleted_name_cooldown.duration(),
            signatures: auth.sqs == SqsAuth::SigV4,
            presigned: self.presigned,
            regions: self.regions,
            keys_file,
        }
    }
}
