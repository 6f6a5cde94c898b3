//! What an operator may set about the SQS surface.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether the region of a signature's scope is a place of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Regions {
    /// Every region sees all queues.
    Shared,
    /// Queues of one region are not seen in another.
    Separate,
}

/// How the surface behaves; what is not here is as the service has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqsOptions {
    /// The account in queue URLs and ARNs: twelve digits.
    pub account_id: String,
    /// The beginning of queue URLs, without a slash at its end; made from the `Host` of each request if not given.
    pub base_url: Option<String>,
    /// How long the name of a deleted queue cannot be used again.
    pub deleted_name_cooldown: Duration,
    /// Whether requests must be signed; without, whoever reaches the port may do everything.
    pub signatures: bool,
    /// Whether a signature may stand in the query of the URL.
    pub presigned: bool,
    /// Whether regions are places of their own.
    pub regions: Regions,
    /// Where access keys are kept; in memory alone if not given.
    pub keys_file: Option<PathBuf>,
}

impl Default for SqsOptions {
    fn default() -> Self {
        SqsOptions {
            account_id: "000000000000".to_owned(),
            base_url: None,
            deleted_name_cooldown: Duration::ZERO,
            signatures: true,
            presigned: false,
            regions: Regions::Shared,
            keys_file: None,
        }
    }
}
