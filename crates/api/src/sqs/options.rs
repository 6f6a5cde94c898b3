//! What an operator may set about the SQS surface.

use std::path::PathBuf;
use std::time::Duration;

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
            keys_file: None,
        }
    }
}
