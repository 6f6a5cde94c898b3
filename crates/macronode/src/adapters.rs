//! Where one crate's words become another's: configuration into limits, the process into the admin plane's control.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use ron_admin::{Control, ReloadReport};
use ron_api::HttpLimits;
use ron_kernel::connection_limiter::ConnectionLimits;
use ron_kernel::retry::RetryLimits;
use ron_kernel::spec::ServiceSpec;
use ron_kernel::{KernelOptions, Snapshot};
use ron_types::Error;
use ron_types::limits::MIB;

use crate::config::{Config, Runtime, known_services};
use crate::config_watch::ReloadPort;
use crate::logging::LogControl;
use crate::{descriptors, services, specs};

/// One caller can have half: less would refuse a few of the largest answers.
const ANSWER_MEMORY_BYTES_MIN: usize = 64 * MIB;

impl Config {
    /// Bounds of the HTTP plane, taken from this configuration.
    pub fn http_limits(&self) -> HttpLimits {
        HttpLimits {
            request_deadline: self.http.request_deadline.duration(),
            request_deadline_max: self.http.request_deadline_max.duration(),
            read_timeout: self.io.read_timeout.duration(),
            idle_timeout: self.io.idle_timeout.duration(),
            write_stall: self.connections.write_stall.duration(),
            handshake_timeout: self.tls.handshake_timeout.duration(),
            body_bytes_max: self.http.max_body_bytes.bytes(),
            header_bytes_max: self.http.max_header_bytes.bytes(),
            inflate_ratio_max: self.io.decompress_ratio_max,
            route_concurrency_max: self.http.route_concurrency,
            waiting_max: self.http.waiting_max,
            // One caller can have half, and a compressed body is there twice: less would refuse a lone body.
            body_memory_bytes_max: self.http.body_memory.bytes().max(4 * self.http.max_body_bytes.bytes()),
            answer_memory_bytes_max: self.http.answer_memory.bytes().max(ANSWER_MEMORY_BYTES_MIN),
            connections_max: self.connection_limits().total,
            connections_per_ip_max: self.connections.per_ip_max,
            accepts_per_ip_per_second: self.connections.accepts_per_ip_per_second,
        }
    }

    /// Bounds on the connections of every listener, taken from this configuration.
    pub fn connection_limits(&self) -> ConnectionLimits {
        ConnectionLimits {
            total: descriptors::connections_max(
                self.connections.max,
                self.public_listeners(),
                descriptors::limit(),
                descriptors::reserved(self),
            ),
            per_ip: self.connections.per_ip_max,
            per_ip_per_second: self.connections.accepts_per_ip_per_second,
        }
    }

    /// Listeners that strangers may connect to.
    pub fn public_listeners(&self) -> usize {
        ["http", "oap"].iter().filter(|unit| self.runs(unit)).count()
    }

    /// Options of the kernel, taken from this configuration.
    pub fn kernel_options(&self, seed: u64) -> KernelOptions {
        KernelOptions {
            drain_deadline: self.io.drain_deadline.duration(),
            bus_capacity: self.queues.bus,
            config_updates_capacity: self.queues.cfg_updates,
            seed,
            record: false,
        }
    }

    /// Number and pauses of retries of lost work.
    pub fn retry_limits(&self) -> RetryLimits {
        let [low, high] = self.retry.initial_jitter_ms.map(std::time::Duration::from_millis);
        RetryLimits { first_wait: (low, high), cap: self.retry.cap.duration(), tries_max: self.retry.max_tries }
    }
}

/// The process, as the admin plane controls it.
pub struct ProcessControl {
    /// Port to the configuration watcher.
    pub reloads: ReloadPort,
    /// Handle that replaces the log filter.
    pub log: LogControl,
    /// Configuration in force.
    pub config: Snapshot<Config>,
}

impl Control for ProcessControl {
    fn reload(&self) -> BoxFuture<'static, Result<ReloadReport, Error>> {
        let reloads = self.reloads.clone();
        async move { reloads.reload().await }.boxed()
    }

    fn set_log_filter(&self, filter: &str) -> Result<(), String> {
        self.log.set_filter(filter)
    }

    fn version(&self) -> serde_json::Value {
        let config = self.config.get();
        let mut version = build_facts();
        version["config_version"] = config.version.into();
        version["services"] = config.value.services.clone().into();
        version["dev"] = config.value.dev.into();
        version["amnesia"] = config.value.amnesia.into();
        version["runtime"] = match config.value.runtime {
            Runtime::Multi => "multi".into(),
            Runtime::Current => "current".into(),
        };
        version
    }

    fn notes(&self) -> Vec<String> {
        self.config.get().value.notes()
    }
}

/// Facts about this build, known without a running node.
pub fn build_facts() -> serde_json::Value {
    serde_json::json!({
        "name": "macronode",
        "version": env!("CARGO_PKG_VERSION"),
        "profile": if cfg!(debug_assertions) { "debug" } else { "release" },
        "target": format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
        "tls": "rustls with aws-lc-rs, TLS 1.3",
    })
}

/// Everything a node with these services, and perhaps the development routes, declares, as (kind, name), for the
/// comparison with what runs.
pub fn declared(chosen: &[String], is_dev: bool) -> Vec<(&'static str, &'static str)> {
    // A unit that nobody can choose is always there.
    let runs = |name: &str| match name {
        name if name == specs::WORKERS.name => specs::uses_pool(chosen, is_dev),
        name => !known_services().any(|known| known == name) || chosen.iter().any(|chosen| chosen == name),
    };
    let units: Vec<&ServiceSpec> = specs::units().filter(|unit| runs(unit.name)).collect();
    let queues = specs::queues().filter(|queue| runs(queue.service)).map(|queue| ("queue", queue.name));
    let services = services::all().filter(|service| runs(service.spec().name));
    let gates = services.flat_map(|service| service.gates().iter().map(|gate| ("gate", gate.name)));
    let mut parts: Vec<(&'static str, &'static str)> = vec![("task", ron_kernel::builder::SUPERVISOR.name)];
    parts.extend(units.iter().map(|unit| ("service", unit.name)));
    parts.extend(units.iter().flat_map(|unit| unit.tasks).map(|task| ("task", task.name)));
    parts.extend(queues.chain(gates));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_chosen_is_not_declared() {
        let names = |services: &[&str]| {
            let services: Vec<String> = services.iter().map(|name| (*name).to_owned()).collect();
            declared(&services, false).into_iter().map(|(_, name)| name).collect::<Vec<_>>()
        };
        let only_http = names(&["http"]);
        assert!(
            only_http.contains(&"overlay_http") && !only_http.contains(&"worker") && only_http.contains(&"supervisor")
        );
        assert!(!only_http.contains(&"oap") && !only_http.contains(&"transport_ingress"));
        let with_frames = names(&["http", "oap"]);
        assert!(with_frames.contains(&"transport_ingress") && with_frames.contains(&"worker"));
        for service in services::all() {
            let spec = service.spec();
            assert!(!only_http.contains(&spec.name) && names(&[spec.name]).contains(&spec.tasks[0].name));
        }
    }
}
