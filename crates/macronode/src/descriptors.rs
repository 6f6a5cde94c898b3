//! File descriptors: the limit is raised as far as it goes, and connections leave enough of them to the logs and
//! the operator.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Config;
use crate::services;

/// Descriptors that the node needs beside its log and its connections: standard streams, runtimes, listeners and locks
/// (28 counted on an idle node), and for moments files of the configuration, the keys and /proc.
const OWN: u64 = 36;
/// Connections of the admin plane: the operator always gets in, and never takes more than a sixteenth.
const ADMIN_CONNECTIONS: std::ops::RangeInclusive<u64> = 4..=64;
/// Connections that every listener has, however few descriptors there are.
const CONNECTIONS_MIN: u64 = 3;

/// Descriptors that are not left to connections of the public planes: the node's own and those of the services it runs.
pub fn reserved(config: &Config) -> u64 {
    OWN + services::chosen(config).map(|service| service.descriptors()).sum::<u64>()
}

/// Raises the soft limit to the hard one. A limit that cannot be raised is no reason not to run.
pub fn raise_limit() {
    let before = getrlimit(Resource::Nofile);
    if before.current == before.maximum {
        return tracing::info!(limit = before.current, "file descriptors: the limit is as high as it may be");
    }
    let (from, to) = (before.current, before.maximum);
    match setrlimit(Resource::Nofile, Rlimit { current: to, maximum: to }) {
        Ok(()) => tracing::info!(from, to, "file descriptors: the soft limit was raised to the hard one"),
        Err(error) => tracing::warn!(from, to, %error, "file descriptors: the soft limit could not be raised"),
    }
}

/// Descriptors the process may have; `None` if there is no bound.
pub fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Connections of the admin plane under a limit of descriptors.
pub fn admin_connections_max(limit: Option<u64>) -> usize {
    let share = limit.map_or(u64::MAX, |limit| limit / 16);
    share.clamp(*ADMIN_CONNECTIONS.start(), *ADMIN_CONNECTIONS.end()) as usize
}

/// Connections of one of the public listeners under a limit of descriptors: what is configured, or an even share of
/// what is left beside those reserved. A fifth of a share is kept for connections that are being refused.
pub fn connections_max(configured: usize, listeners: usize, limit: Option<u64>, reserved: u64) -> usize {
    let Some(limit) = limit else { return configured };
    let left = limit.saturating_sub(reserved + admin_connections_max(Some(limit)) as u64);
    let share = left / listeners.max(1) as u64;
    configured.min(usize::try_from((share / 5 * 4).max(CONNECTIONS_MIN)).unwrap_or(usize::MAX))
}

/// What the operator is told at the start where the descriptors do not allow the connections that are configured.
pub fn warning(config: &Config) -> Option<String> {
    shortage(config.connections.max, config.public_listeners(), limit(), reserved(config))
}

fn shortage(configured: usize, listeners: usize, limit: Option<u64>, reserved: u64) -> Option<String> {
    let allowed = connections_max(configured, listeners, limit, reserved);
    let limit = limit.filter(|_| listeners > 0 && allowed < configured)?;
    Some(format!(
        "`connections.max` = {configured}, but with {limit} file descriptors each listener takes {allowed} connections: \
         raise the limit (`ulimit -n`, LimitNOFILE in systemd; `doctor` says how many are needed) or lower the setting"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many as a node with one log has.
    const RESERVED: u64 = OWN + ron_log::DESCRIPTORS_RESERVED as u64;

    #[test]
    fn all_together_stay_below_the_limit() {
        for limit in [96_u64, 128, 256, 1024, 4096, 65_536, 1 << 20] {
            for listeners in 1..=2 {
                let each = connections_max(usize::MAX >> 1, listeners, Some(limit), RESERVED) as u64;
                let refused = each / 4;
                let admin = admin_connections_max(Some(limit)) as u64;
                let all = RESERVED + admin + (each + refused) * listeners as u64;
                assert!(all <= limit, "{all} of {limit} with {listeners} listeners");
                assert!(
                    all + 8 * listeners as u64 > limit,
                    "{all} of {limit} with {listeners} listeners: some are wasted"
                );
            }
        }
    }

    #[test]
    fn the_configured_number_holds_where_there_are_enough() {
        assert_eq!(connections_max(4096, 2, Some(1 << 20), RESERVED), 4096);
        assert_eq!(connections_max(4096, 2, None, RESERVED), 4096);
        assert_eq!(connections_max(4096, 2, Some(10), RESERVED), 3, "never none");
        assert_eq!((admin_connections_max(Some(64)), admin_connections_max(None)), (4, 64));
    }

    #[test]
    fn what_the_descriptors_do_not_allow_is_said() {
        for (configured, listeners, limit) in [(4096, 2, Some(1 << 20)), (4096, 2, None), (4096, 0, Some(1024))] {
            assert_eq!(shortage(configured, listeners, limit, RESERVED), None);
        }
        let allowed = connections_max(4096, 2, Some(1024), RESERVED);
        let said = shortage(4096, 2, Some(1024), RESERVED).expect("too few");
        assert!(said.contains(&format!("takes {allowed} connections")) && said.contains("1024 file"), "{said}");
    }
}
