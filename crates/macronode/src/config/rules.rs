//! The rules between values, and what is allowed but worth a warning.

use std::net::SocketAddr;

use toml::{Table, Value};

use super::error::{ConfigError, Setting};
use super::keys::Key;
use super::layers::Origins;
use super::{Config, SqsAuth};

/// Every rule between values that does not hold.
pub fn broken(config: &Config, origins: &Origins) -> Vec<ConfigError> {
    let table = config.to_table();
    let rules = Rules { config, origins, table };
    let mut errors = rules.orders();
    errors.extend(rules.tls_halves());
    errors.extend(rules.public_admin());
    errors.extend(rules.public_chaos());
    errors.extend(rules.public_sqs());
    errors.extend(rules.shared_addresses());
    errors
}

impl Config {
    /// What is allowed but probably not meant; said once at the start.
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

    /// What whoever looks at the node should know, though it is well; shown on /readyz as long as it is so.
    pub fn notes(&self) -> Vec<String> {
        let is_open = self.auth.sqs == SqsAuth::Off && self.runs("http") && self.runs("mailbox");
        let open = || {
            let address = self.api.addr;
            format!(
                "`auth.sqs` is off: whoever reaches {address} may do everything to every queue, without a signature"
            )
        };
        is_open.then(open).into_iter().collect()
    }

    /// The three listeners by key, in the order they are bound.
    pub fn addresses(&self) -> [(&'static str, SocketAddr); 3] {
        [("admin.addr", self.admin.addr), ("api.addr", self.api.addr), ("oap.addr", self.oap.addr)]
    }
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

    fn public_sqs(&self) -> Option<ConfigError> {
        let refused = self.config.auth.sqs == SqsAuth::Off && !self.config.api.addr.ip().is_loopback();
        refused.then(|| ConfigError::PublicSqs { setting: self.setting("api.addr"), auth: self.setting("auth.sqs") })
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
