//! Where one crate's words become another's: configuration into limits, the process into the admin plane's control.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use ron_admin::{Control, ReloadReport};
use ron_api::{HttpLimits, SqsOptions};
use ron_kernel::coalesce::Coalesce;
use ron_kernel::connection_limiter::ConnectionLimits;
use ron_kernel::retry::RetryLimits;
use ron_kernel::spec::{QueueSpec, ServiceSpec};
use ron_kernel::{Builder, KernelOptions, Snapshot};
use ron_types::Error;
use ron_types::limits::mailbox::SHARDS_MAX;
use svc_mailbox::types::TopicSettings;
use svc_mailbox::{LiveOptions, LogLocation, MailboxOptions};

use crate::config::{Config, KNOWN_SERVICES, Runtime, SqsAuth, TimeSpan, cpus};
use crate::config_watch::ReloadPort;
use crate::data_dir::{ACCESS_KEYS_FILE, DataDir};
use crate::logging::LogControl;
use crate::specs;

impl Config {
    /// The bounds of the HTTP plane.
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
            connections_max: self.connections.max,
            connections_per_ip_max: self.connections.per_ip_max,
            accepts_per_ip_per_second: self.connections.accepts_per_ip_per_second,
        }
    }

    /// The bounds of every listener.
    pub fn connection_limits(&self) -> ConnectionLimits {
        ConnectionLimits {
            total: self.connections.max,
            per_ip: self.connections.per_ip_max,
            per_ip_per_second: self.connections.accepts_per_ip_per_second,
        }
    }

    /// What the kernel takes from the configuration.
    pub fn kernel_options(&self, seed: u64) -> KernelOptions {
        KernelOptions {
            drain_deadline: self.io.drain_deadline.duration(),
            bus_capacity: self.queues.bus,
            config_updates_capacity: self.queues.cfg_updates,
            seed,
            record: false,
        }
    }

    /// How often and how slowly lost work is tried again.
    pub fn retry_limits(&self) -> RetryLimits {
        let [low, high] = self.retry.initial_jitter_ms.map(std::time::Duration::from_millis);
        RetryLimits { first_wait: (low, high), cap: self.retry.cap.duration(), tries_max: self.retry.max_tries }
    }

    /// What of the mailbox is fixed while the node runs.
    pub fn mailbox_options(&self, data: &DataDir, secret: [u8; 32]) -> MailboxOptions {
        MailboxOptions {
            location: match data {
                DataDir::Kept(folder) => LogLocation::Directory(folder.join("mailbox")),
                DataDir::Nowhere => LogLocation::Memory,
            },
            secret,
            shard_capacity: self.mailbox.shard_capacity,
            disk_bytes_max: self.mailbox.disk_bytes_max.bytes() as u64,
            segment_bytes: u32::try_from(self.mailbox.segment_bytes.bytes()).unwrap_or(u32::MAX),
            ops_permits: self.permits("mailbox_ops", cpus()),
        }
    }

    /// What of the mailbox a reload may change.
    pub fn mailbox_live(&self) -> LiveOptions {
        let mailbox = &self.mailbox;
        let millis = |millis: TimeSpan| millis.duration().as_millis() as u64;
        LiveOptions {
            ready_shards: match mailbox.ready_shards {
                0 => cpus().clamp(1, SHARDS_MAX),
                shards => shards,
            },
            global_inflight: mailbox.global_inflight,
            auto_create: mailbox.auto_create,
            visibility_min: mailbox.visibility_min.duration(),
            defaults: TopicSettings {
                visibility_ms: millis(mailbox.visibility),
                max_attempts: mailbox.max_attempts,
                replay_window_ms: millis(mailbox.replay_window),
                retention_ms: millis(mailbox.retention),
                backoff_base_ms: millis(mailbox.backoff_base),
                backoff_max_ms: millis(mailbox.backoff_max),
                ..TopicSettings::default()
            },
            tenant_sends_per_second: mailbox.tenant_sends_per_second,
            upkeep_bytes_per_second: mailbox.upkeep_bytes_per_second.bytes() as u64,
        }
    }

    /// What the surface that speaks SQS takes from the configuration.
    pub fn sqs_options(&self, data: &DataDir) -> SqsOptions {
        SqsOptions {
            account_id: self.sqs.account_id.clone(),
            base_url: self.sqs.base_url.as_ref().map(|url| url.trim_end_matches('/').to_owned()),
            deleted_name_cooldown: self.sqs.deleted_name_cooldown.duration(),
            signatures: self.auth.sqs == SqsAuth::SigV4,
            presigned: self.sqs.presigned,
            keys_file: match data {
                DataDir::Kept(folder) => Some(folder.join(ACCESS_KEYS_FILE)),
                DataDir::Nowhere => None,
            },
        }
    }

    /// Permits of a facet gate on this machine.
    pub fn permits(&self, gate: &str, cpus: usize) -> usize {
        let permits = match gate {
            "feed_fanout" => self.facets.feed_fanout,
            "graph_expand" => self.facets.graph_expand,
            "search_qps" => self.facets.search_qps,
            "index_ingest" => self.facets.index_ingest,
            _ => self.facets.mailbox_ops,
        };
        permits.on(cpus)
    }
}

/// The process, as the admin plane controls it.
pub struct ProcessControl {
    /// Asks the configuration watcher.
    pub reloads: ReloadPort,
    /// Changes the log filter.
    pub log: LogControl,
    /// The configuration in force.
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

/// What is known without a running node.
pub fn build_facts() -> serde_json::Value {
    serde_json::json!({
        "name": "macronode",
        "version": env!("CARGO_PKG_VERSION"),
        "profile": if cfg!(debug_assertions) { "debug" } else { "release" },
        "target": format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
        "tls": "rustls with aws-lc-rs, TLS 1.3",
    })
}

/// Everything a node with these services declares, as (kind, name), for the comparison with what runs.
pub fn declared(services: &[String]) -> Vec<(&'static str, &'static str)> {
    // A service that nobody can choose is always there.
    let runs = |spec: &&&ServiceSpec| {
        !KNOWN_SERVICES.contains(&spec.name) || services.iter().any(|chosen| chosen == spec.name)
    };
    let running = specs::SERVICES.iter().filter(runs);
    let services_rows = running.clone().map(|spec| ("service", spec.name));
    let supervisor = ("task", ron_kernel::builder::SUPERVISOR.name);
    let tasks = running.flat_map(|spec| spec.tasks).map(|task| ("task", task.name));
    let chosen = |spec: &&'static QueueSpec| spec.service != "mailbox" || services_run(services, "mailbox");
    let queues = specs::queues().filter(chosen).map(|spec| ("queue", spec.name));
    let of_mailbox = svc_mailbox::specs::GATES.iter().filter(|_| services_run(services, "mailbox"));
    let gates = specs::GATES.iter().chain(of_mailbox).map(|spec| ("gate", spec.name));
    services_rows.chain([supervisor]).chain(tasks).chain(queues).chain(gates).collect()
}

fn services_run(services: &[String], name: &str) -> bool {
    services.iter().any(|chosen| chosen == name)
}

/// An update of the index on its way to the ingester, by the name or hash it concerns: the newest one wins.
#[derive(Debug)]
pub struct IndexUpdate(String);

impl Coalesce for IndexUpdate {
    type Key = String;

    fn key(&self) -> String {
        self.0.clone()
    }

    fn absorb(&mut self, newer: Self) {
        *self = newer;
    }
}

/// Makes the facets' gates and queue: bounded and shown from the start, for the services that will use them.
pub fn declare_facets(builder: &mut Builder, config: &Config) {
    for gate in &specs::GATES {
        builder.gate(gate, config.permits(gate.name, cpus()));
    }
    let absorbed = builder.handle().metrics().queue_dropped.at(specs::INDEX_INGEST.name);
    builder.coalescing::<IndexUpdate>(&specs::INDEX_INGEST, absorbed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_chosen_is_not_declared() {
        let names = |services: &[&str]| {
            let services: Vec<String> = services.iter().map(|name| (*name).to_owned()).collect();
            declared(&services).into_iter().map(|(_, name)| name).collect::<Vec<_>>()
        };
        let only_http = names(&["http"]);
        assert!(
            only_http.contains(&"overlay_http") && only_http.contains(&"worker") && only_http.contains(&"supervisor")
        );
        assert!(!only_http.contains(&"oap") && !only_http.contains(&"transport_ingress"));
        assert!(names(&["http", "oap"]).contains(&"transport_ingress"));
    }
}
