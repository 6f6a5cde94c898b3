//! Logs: where they go, how they look, and changing the filter while running.

use std::sync::Arc;

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, Registry, fmt, reload};

use crate::config::LogFormat;

/// Changes the filter of the running process. Clones are the same control.
#[derive(Clone)]
pub struct LogControl(Arc<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>);

impl LogControl {
    /// Replaces the filter, or says what is wrong with the new one.
    pub fn set_filter(&self, filter: &str) -> Result<(), String> {
        (self.0)(parse(filter)?)
    }
}

fn parse(filter: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(filter).map_err(|error| format!("log filter {filter:?}: {error}"))
}

/// Sends logs to stderr from here on, panics included.
pub fn start(format: LogFormat, filter: &str) -> Result<LogControl, String> {
    let (filter, handle) = reload::Layer::new(parse(filter)?);
    let lines = match format {
        LogFormat::Json => fmt::layer().json().flatten_event(true).with_writer(std::io::stderr).boxed(),
        LogFormat::Pretty => {
            let coloured = std::io::IsTerminal::is_terminal(&std::io::stderr());
            fmt::layer().with_target(false).with_ansi(coloured).with_writer(std::io::stderr).boxed()
        }
    };
    Registry::default().with(filter).with(lines).try_init().map_err(|error| error.to_string())?;
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, "panic: {}", panic.payload_as_str().unwrap_or("without a message"));
    }));
    Ok(LogControl(Arc::new(move |filter| handle.reload(filter).map_err(|error| error.to_string()))))
}
