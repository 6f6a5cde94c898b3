//! What the admin plane asks of the rest of the process.

use futures_util::future::BoxFuture;
use ron_types::Error;
use serde::Serialize;

/// The process as the admin plane controls it; implemented where configuration and logging live.
pub trait Control: Send + Sync + 'static {
    /// Reads the configuration again and applies it, or says why not and leaves everything as it was.
    fn reload(&self) -> BoxFuture<'static, Result<ReloadReport, Error>>;

    /// Sets what is logged; an error says what is wrong with the filter.
    fn set_log_filter(&self, filter: &str) -> Result<(), String>;

    /// Version, build and engines of the node, for `/version`.
    fn version(&self) -> serde_json::Value;

    /// Notes for whoever looks at the node, such as a check that is switched off.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Outcome of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReloadReport {
    /// Version of the configuration now in force.
    pub version: u64,
    /// Keys whose values changed.
    pub changed: Vec<String>,
    /// Keys whose values wait for a restart of the process.
    pub waiting: Vec<String>,
    /// Services restarted to take them up.
    pub restarted: Vec<String>,
}
