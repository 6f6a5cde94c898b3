//! The rules between values, and what is allowed but worth a warning.

use std::net::SocketAddr;

use toml::{Table, Value};

use super::Config;
use super::error::{ConfigError, Setting};
use super::keys::Key;
use super::layers::Origins;
use crate::errors::Code;
use crate::services;

/// Every rule between values that does not hold.
pub fn broken(config: &Config, origins: &Origins) -> Vec<ConfigError> {
    let table = config.to_table();
    let rules = Rules { config, origins, table };
    let mut errors = rules.orders();
    errors.extend(rules.tls_halves());
    errors.extend(rules.public_admin());
    errors.extend(rules.public_chaos());
    errors.extend(rules.of_services());
    errors.extend(rules.shared_addresses());
    errors
}

impl Config {
    /// Sentences on settings that are allowed but probably not meant; logged once at the start.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.runs("http") && !self.api.addr.ip().is_loopback() && self.api.tls_cert.is_none() {
            warnings.push(format!(
                "`api.addr` = {} is public without TLS: everything on it can be read on the way; \
                 set `api.tls_cert` and `api.tls_key`, or put a TLS proxy in front",
                self.api.addr
            ));
        }
        if self.chaos {
            warnings.push("`chaos` is on: the admin plane can kill and freeze tasks".to_owned());
        }
        warnings.extend(self.notes());
        let served: Vec<&str> =
            services::chosen(self).filter(|one| !one.surfaces().is_empty()).map(|one| one.spec().name).collect();
        if !served.is_empty() && self.public_listeners() == 0 {
            warnings.push(format!(
                "`services` has neither http nor oap: no client can reach {}; add one of them",
                served.join(", ")
            ));
        }
        if self.http.request_deadline >= self.io.drain_deadline {
            warnings.push(format!(
                "`http.request_deadline` = {} is not shorter than `io.drain_deadline` = {}: \
                 a drain may abort requests that are still in time",
                self.http.request_deadline, self.io.drain_deadline
            ));
        }
        if self.connections.per_ip_max > self.connections.max {
            warnings.push(format!(
                "`connections.per_ip_max` = {} is above `connections.max` = {}: one address can take every connection",
                self.connections.per_ip_max, self.connections.max
            ));
        }
        warnings
    }

    /// Sentences an operator should read though the node is well; shown on /readyz while they hold.
    pub fn notes(&self) -> Vec<String> {
        services::chosen(self).flat_map(|service| service.notes(self)).collect()
    }

    /// The three listeners by key, in the order they are bound.
    pub fn addresses(&self) -> [(&'static str, SocketAddr); 3] {
        [("admin.addr", self.admin.addr), ("api.addr", self.api.addr), ("oap.addr", self.oap.addr)]
    }
}

/// Two values of which a service says that they cannot stand together: `key relation other advice`.
pub struct BrokenRule {
    /// Error code of the rule.
    pub code: Code,
    /// Path of the key at fault.
    pub key: &'static str,
    /// Forbidden relation to the other key, in words that the name of that key completes.
    pub relation: &'static str,
    /// Path of the key it contradicts.
    pub other: &'static str,
    /// The end of the sentence: why, and what to do.
    pub advice: &'static str,
}

struct Rules<'a> {
    config: &'a Config,
    origins: &'a Origins,
    table: Table,
}

impl Rules<'_> {
    fn setting(&self, key: &str) -> Setting {
        let value = Key::find(key).and_then(|key| key.value_in(&self.table));
        let value = value.map_or_else(|| "(not set)".to_owned(), Value::to_string);
        Setting { key: key.to_owned(), value, origin: self.origins.of(key) }
    }

    fn orders(&self) -> Vec<ConfigError> {
        let Config { io, http, retry, queues, .. } = self.config;
        let rules = [
            (
                io.drain_deadline > io.drain_deadline_max,
                ("io.drain_deadline", "io.drain_deadline_max"),
                "raise the ceiling too if such a long drain is meant",
            ),
            (
                http.request_deadline > http.request_deadline_max,
                ("http.request_deadline", "http.request_deadline_max"),
                "the usual deadline must be one a caller could ask for",
            ),
            (
                retry.initial_jitter_ms[1] > retry.cap.0,
                ("retry.initial_jitter_ms", "retry.cap"),
                "the first wait must fit under the cap of all waits",
            ),
            (
                http.max_body_bytes > queues.work_bytes_max,
                ("http.max_body_bytes", "queues.work_bytes_max"),
                "the largest body must fit into the work queue",
            ),
        ];
        let broken = rules.into_iter().filter(|(broken, ..)| *broken);
        broken
            .map(|(_, (key, other), rule)| ConfigError::Contradiction {
                setting: self.setting(key),
                other: self.setting(other),
                rule,
            })
            .collect()
    }

    fn tls_halves(&self) -> Vec<ConfigError> {
        let Config { api, admin, .. } = self.config;
        let planes = [("api", &api.tls_cert, &api.tls_key), ("admin", &admin.tls_cert, &admin.tls_key)];
        let half = |(plane, cert, key): (&str, &Option<_>, &Option<_>)| {
            let (cert_key, key_key) = (format!("{plane}.tls_cert"), format!("{plane}.tls_key"));
            match (cert, key) {
                (Some(_), None) => Some(ConfigError::TlsHalf { setting: self.setting(&cert_key), missing: key_key }),
                (None, Some(_)) => Some(ConfigError::TlsHalf { setting: self.setting(&key_key), missing: cert_key }),
                _ => None,
            }
        };
        planes.into_iter().filter_map(half).collect()
    }

    fn public_admin(&self) -> Option<ConfigError> {
        let admin = &self.config.admin;
        let in_the_clear = admin.tls_cert.is_none() && admin.tls_key.is_none();
        let refused = !admin.addr.ip().is_loopback() && in_the_clear;
        refused.then(|| ConfigError::PublicAdmin { setting: self.setting("admin.addr") })
    }

    fn public_chaos(&self) -> Vec<ConfigError> {
        let public = self.config.addresses().into_iter().filter(|(_, address)| !address.ip().is_loopback());
        let refusal = |(key, _)| ConfigError::PublicChaos { setting: self.setting(key), chaos: self.setting("chaos") };
        public.filter(|_| self.config.chaos).map(refusal).collect()
    }

    fn of_services(&self) -> Vec<ConfigError> {
        let broken = services::all().flat_map(|service| service.broken_rules(self.config));
        let error = |rule: BrokenRule| {
            let (setting, other) = (self.setting(rule.key), self.setting(rule.other));
            ConfigError::OfService { setting, relation: rule.relation, other, advice: rule.advice, code: rule.code }
        };
        broken.map(error).collect()
    }

    fn shared_addresses(&self) -> Vec<ConfigError> {
        let addresses = self.config.addresses();
        let mut errors = Vec::new();
        for (index, (key, address)) in addresses.iter().enumerate() {
            for (other, other_address) in &addresses[..index] {
                if overlap(*address, *other_address) {
                    errors.push(ConfigError::SharedAddress { setting: self.setting(key), other: self.setting(other) });
                }
            }
        }
        errors
    }
}

/// Whether two listeners would fight for a port: the same port on the same address, or on all addresses.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let same_ip = one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && one.port() != 0 && same_ip
}
