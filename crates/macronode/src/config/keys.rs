//! Every key once: what may be written there, what a change of it takes, and the flag that sets it.

use ron_types::limits::{FRAME_BYTES_MAX, MIB};
use serde::Serialize;

use super::KNOWN_SERVICES;
use super::kind::Kind;

/// What it takes for a changed value to have effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reload {
    /// Nothing: a reload applies it at once.
    Live,
    /// A reload restarts just this service.
    Restart(&'static str),
    /// A restart of the process; a reload says so and keeps the old value.
    Process,
}

impl Reload {
    /// In words, as the schema and the documentation show it.
    pub fn words(self) -> String {
        match self {
            Reload::Live => "live".to_owned(),
            Reload::Restart(service) => format!("restarts {service}"),
            Reload::Process => "needs a process restart".to_owned(),
        }
    }
}

/// One key.
#[derive(Debug)]
pub struct Key {
    /// Section and name with a dot between, or just the name.
    pub path: &'static str,
    /// What may be written there.
    pub kind: Kind,
    /// What a change of it takes.
    pub reload: Reload,
    /// The flag of `macronode run` that sets it.
    pub flag: Option<&'static str>,
}

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const DAY: u64 = 24 * 60 * MINUTE;
const KIB: usize = 1024;
const GIB: usize = 1024 * MIB;

const TIME: Kind = Kind::Time { min_ms: 1, max_ms: 10 * MINUTE };
const LIVE: Reload = Reload::Live;
const PROCESS: Reload = Reload::Process;
const HTTP: Reload = Reload::Restart("http");
const OAP: Reload = Reload::Restart("oap");

const fn key(path: &'static str, kind: Kind, reload: Reload) -> Key {
    Key { path, kind, reload, flag: None }
}

const fn flagged(path: &'static str, flag: &'static str, kind: Kind, reload: Reload) -> Key {
    Key { path, kind, reload, flag: Some(flag) }
}

const fn whole(min: u64, max: u64) -> Kind {
    Kind::Whole { min, max }
}

const fn size(min: usize, max: usize) -> Kind {
    Kind::Size { min, max }
}

/// Every key, in the order of the documentation.
pub const KEYS: &[Key] = &[
    flagged("services", "--services", Kind::Names(KNOWN_SERVICES), PROCESS),
    flagged("amnesia", "--amnesia", Kind::Switch, PROCESS),
    flagged("dev", "--dev", Kind::Switch, PROCESS),
    flagged("chaos", "--chaos", Kind::Switch, PROCESS),
    flagged("runtime", "--runtime", Kind::Choice(&["multi", "current"]), PROCESS),
    flagged("data_dir", "--data-dir", Kind::Path, PROCESS),
    key("workers", Kind::WholeOrAuto { max: 1024, auto: "max(20, 4 x cpu)" }, PROCESS),
    flagged("api.addr", "--api", Kind::Address, HTTP),
    key("api.tls_cert", Kind::Path, HTTP),
    key("api.tls_key", Kind::Path, HTTP),
    flagged("admin.addr", "--admin", Kind::Address, PROCESS),
    key("admin.tls_cert", Kind::Path, PROCESS),
    key("admin.tls_key", Kind::Path, PROCESS),
    flagged("oap.addr", "--oap", Kind::Address, OAP),
    key("oap.max_frame_bytes", size(KIB, FRAME_BYTES_MAX), LIVE),
    key("io.read_timeout", TIME, LIVE),
    key("io.write_timeout", TIME, LIVE),
    key("io.idle_timeout", Kind::Time { min_ms: 1, max_ms: 60 * MINUTE }, LIVE),
    key("io.drain_deadline", TIME, LIVE),
    key("io.drain_deadline_max", TIME, LIVE),
    key("io.chunk_bytes", size(KIB, MIB), LIVE),
    key("io.decompress_ratio_max", whole(1, 1_000), LIVE),
    key("http.request_deadline", TIME, LIVE),
    key("http.request_deadline_max", TIME, LIVE),
    key("http.max_body_bytes", size(1, GIB), LIVE),
    key("http.max_header_bytes", size(8 * KIB, MIB), LIVE),
    key("http.route_concurrency", whole(1, 65_536), LIVE),
    key("tls.handshake_timeout", Kind::Time { min_ms: 1, max_ms: MINUTE }, LIVE),
    key("connections.max", whole(1, 1_000_000), LIVE),
    key("connections.per_ip_max", whole(1, 1_000_000), LIVE),
    key("connections.accepts_per_ip_per_second", whole(1, 1_000_000), LIVE),
    key("connections.write_stall", TIME, LIVE),
    key("queues.bus", whole(1, 65_536), PROCESS),
    key("queues.work", whole(1, 65_536), PROCESS),
    key("queues.work_bytes_max", size(MIB, 64 * GIB), PROCESS),
    key("queues.telemetry", whole(1, 65_536), PROCESS),
    key("queues.cfg_updates", whole(1, 65_536), PROCESS),
    key("facets.feed_fanout", Kind::Permits, PROCESS),
    key("facets.graph_expand", Kind::Permits, PROCESS),
    key("facets.search_qps", Kind::Permits, PROCESS),
    key("facets.index_ingest", Kind::Permits, PROCESS),
    key("facets.mailbox_ops", Kind::Permits, PROCESS),
    key("retry.initial_jitter_ms", Kind::Window { max_ms: MINUTE }, LIVE),
    key("retry.cap", TIME, LIVE),
    key("retry.max_tries", whole(1, 10), LIVE),
    key("mailbox.ready_shards", Kind::WholeOrAuto { max: 8, auto: "one for each core, at most 8" }, LIVE),
    key("mailbox.shard_capacity", whole(1, 65_536), PROCESS),
    key("mailbox.global_inflight", whole(1, 100_000_000), LIVE),
    key("mailbox.auto_create", Kind::Switch, LIVE),
    key("mailbox.visibility", Kind::Time { min_ms: 1, max_ms: 12 * 60 * MINUTE }, LIVE),
    key("mailbox.visibility_min", Kind::Time { min_ms: 1, max_ms: 12 * 60 * MINUTE }, LIVE),
    key("mailbox.max_attempts", whole(0, 1_000), LIVE),
    key("mailbox.replay_window", Kind::Time { min_ms: 1, max_ms: 14 * DAY }, LIVE),
    key("mailbox.retention", Kind::Time { min_ms: SECOND, max_ms: 14 * DAY }, LIVE),
    key("mailbox.backoff_base", Kind::Time { min_ms: 1, max_ms: 12 * 60 * MINUTE }, LIVE),
    key("mailbox.backoff_max", Kind::Time { min_ms: 1, max_ms: 12 * 60 * MINUTE }, LIVE),
    key("mailbox.disk_bytes_max", size(16 * MIB, 1024 * 1024 * GIB), PROCESS),
    key("mailbox.segment_bytes", size(2 * MIB, GIB), PROCESS),
    key("mailbox.tenant_sends_per_second", whole(0, 10_000_000), LIVE),
    key("mailbox.upkeep_bytes_per_second", size(KIB, 1024 * GIB), LIVE),
    key("sqs.account_id", Kind::AccountId, PROCESS),
    key("sqs.base_url", Kind::Origin, PROCESS),
    key("sqs.deleted_name_cooldown", Kind::Time { min_ms: 0, max_ms: 60 * MINUTE }, PROCESS),
    key("sqs.presigned", Kind::Switch, PROCESS),
    key("auth.sqs", Kind::Choice(&["sigv4", "off"]), PROCESS),
    flagged("log.format", "--log", Kind::Choice(&["pretty", "json"]), PROCESS),
    key("log.filter", Kind::Filter, LIVE),
];

impl Key {
    /// The key with this path.
    pub fn find(path: &str) -> Option<&'static Key> {
        KEYS.iter().find(|key| key.path == path)
    }

    /// The environment variable that sets it.
    pub fn env_name(&self) -> String {
        format!("MACRO_{}", self.path.replace('.', "__").to_uppercase())
    }

    /// Its section; empty for the keys at the top.
    pub fn section(&self) -> &'static str {
        self.path.split_once('.').map_or("", |(section, _)| section)
    }

    /// Its name within the section.
    pub fn name(&self) -> &'static str {
        self.path.rsplit('.').next().unwrap_or(self.path)
    }

    /// The value at this key's path in a table.
    pub fn value_in<'a>(&self, table: &'a toml::Table) -> Option<&'a toml::Value> {
        match self.section() {
            "" => table.get(self.path),
            section => table.get(section)?.as_table()?.get(self.name()),
        }
    }

    /// Puts a value at this key's path.
    pub fn put(&self, table: &mut toml::Table, value: toml::Value) {
        let place = match self.section() {
            "" => Some(table),
            section => table.entry(section).or_insert_with(|| toml::Value::Table(toml::Table::new())).as_table_mut(),
        };
        if let Some(place) = place {
            place.insert(self.name().to_owned(), value);
        }
    }
}

/// The names of the sections, in the order of the documentation; the top is the empty name.
pub fn sections() -> Vec<&'static str> {
    let mut names: Vec<&'static str> = KEYS.iter().map(Key::section).collect();
    names.dedup();
    names
}
