//! The rewarder's section of the configuration: every key once, with its meaning, bounds and reload class.

use std::path::PathBuf;

use ron_types::limits::rewarder as limits;
use ron_types::settings::{DAY_MS, GIB, KIB, MIB, SECOND_MS, ValueKind, choice, live, process, size, time, whole};
use ron_types::{Size, TimeSpan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::service::LiveOptions;

/// The rewarder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Largest body of a request to compute an epoch.
    #[schemars(extend("x-setting" = live(size(KIB, 4 * MIB))))]
    pub max_body_bytes: Size,
    /// Tries of one call to the ledger before it is left alone for a while.
    #[schemars(extend("x-setting" = live(whole(1, 10))))]
    pub rpc_max_attempts: u32,
    /// Length of an epoch: a run must be computed within half of it, or sooner if its caller says so.
    #[schemars(extend("x-setting" = live(time(2 * SECOND_MS, 366 * DAY_MS))))]
    pub epoch_duration: TimeSpan,
    /// Runs computed at once; they share `rewarder.memory_bytes` and the cores.
    #[schemars(extend("x-setting" = process(whole(1, limits::COMPUTE_WORKERS_MAX as u64))))]
    pub compute_workers: usize,
    /// Memory for rows, totals and buffers of all runs together; what does not fit goes to disk. Sealed runs that are
    /// being read have as much as one of the runs, and readers beyond it are told to come back.
    #[schemars(extend("x-setting" = process(size(64 * MIB, 1024 * GIB))))]
    pub memory_bytes: Size,
    /// Disk that uploaded inputs may take, each counted as 16 KiB at least; uploads beyond it are refused.
    #[schemars(extend("x-setting" = live(size(MIB, 1024 * 1024 * GIB))))]
    pub inputs_bytes_max: Size,
    /// Disk that the artifacts of epochs may take; runs beyond it are refused until some are removed.
    #[schemars(extend("x-setting" = live(size(MIB, 1024 * 1024 * GIB))))]
    pub epochs_bytes_max: Size,
    /// Time after which the artifacts of a settled epoch are removed, but for the last epoch of each policy; 0: they
    /// are kept. What was paid stays in the seal log and in the ledger.
    #[schemars(extend("x-setting" = live(time(0, 3660 * DAY_MS))))]
    pub artifacts_kept_for: TimeSpan,
    /// The folder below which requests may name usage files; none: they may not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-setting" = process(ValueKind::Path)))]
    pub inputs_dir: Option<PathBuf>,
    /// A JSON file with the keys that policies must be signed with, and how many of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-setting" = process(ValueKind::Path)))]
    pub trusted_keys: Option<PathBuf>,
    /// Take policies that nobody signed, if the request says so; the manifest is marked.
    #[schemars(extend("x-setting" = live(ValueKind::Switch)))]
    pub unsigned_policies: bool,
    /// Who may read settled epochs: bearers of a token, or everybody.
    #[schemars(extend("x-setting" = live(choice(&["token", "public"]))))]
    pub page: PageAccess,
    /// The book that payouts go to: in the data directory, in PostgreSQL, or behind HTTP.
    #[schemars(extend("x-setting" = process(choice(&["embedded", "postgres", "http"]))))]
    pub ledger: LedgerKind,
    /// A file that says how to reach the ledger; needed unless it is embedded, and kept from others because it may hold
    /// a password.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-setting" = process(ValueKind::Path)))]
    pub ledger_settings: Option<PathBuf>,
}

/// Who may read settled epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PageAccess {
    /// Bearers of a token that allows it.
    Token,
    /// Everybody.
    Public,
}

/// The book that payouts go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LedgerKind {
    /// A book of the node's own.
    Embedded,
    /// Tables in a PostgreSQL database.
    Postgres,
    /// Anybody's, behind HTTP.
    Http,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            max_body_bytes: Size(limits::BODY_BYTES_MAX),
            rpc_max_attempts: limits::RPC_ATTEMPTS_MAX,
            epoch_duration: TimeSpan::from_duration(limits::EPOCH_DURATION),
            compute_workers: limits::COMPUTE_WORKERS,
            memory_bytes: Size(limits::MEMORY_BYTES),
            inputs_bytes_max: Size(limits::INPUTS_BYTES_MAX),
            epochs_bytes_max: Size(limits::EPOCHS_BYTES_MAX),
            artifacts_kept_for: TimeSpan::from_duration(std::time::Duration::ZERO),
            inputs_dir: None,
            trusted_keys: None,
            unsigned_policies: false,
            page: PageAccess::Token,
            ledger: LedgerKind::Embedded,
            ledger_settings: None,
        }
    }
}

impl Options {
    /// What a reload may change.
    pub fn live(&self) -> LiveOptions {
        LiveOptions {
            body_bytes_max: self.max_body_bytes.bytes(),
            rpc_attempts_max: self.rpc_max_attempts,
            epoch_duration: self.epoch_duration.duration(),
            inputs_bytes_max: self.inputs_bytes_max.bytes() as u64,
            epochs_bytes_max: self.epochs_bytes_max.bytes() as u64,
            artifacts_kept_for: self.artifacts_kept_for.duration(),
            unsigned_policies: self.unsigned_policies,
            page: self.page,
        }
    }

    /// Memory of one run: workers share what the runs may take.
    pub fn run_memory_bytes(&self) -> u64 {
        (self.memory_bytes.bytes() / self.compute_workers.max(1)) as u64
    }
}
