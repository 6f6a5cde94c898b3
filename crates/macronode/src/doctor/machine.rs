//! What the machine offers: file handles, memory, clocks, randomness and a disk that keeps its word.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use ron_kernel::clock;
use rustix::process::{Resource, getrlimit};

use super::Finding;
use super::probe::{self, ScratchFile};
use crate::config::{Config, Size};
use crate::descriptors;

/// Memory the node needs besides what waits in its queues.
const MEMORY_RESERVE: u64 = 128 << 20;
/// 2024-01-01, before which no build of this node existed.
const BUILT_AFTER_UNIX_MS: u64 = 1_704_067_200_000;

const SYNC_ROUNDS: usize = 100;
const SYNC_BYTES: usize = 4096;
const SYNC_SLOW: Duration = Duration::from_millis(50);

/// Whether every connection the configuration allows can have a file handle. The node raises the soft limit itself.
pub fn file_limit(config: &Config) -> Finding {
    let (listeners, limit) = (config.public_listeners(), getrlimit(Resource::Nofile).maximum);
    let fixed = descriptors::reserved(config) + descriptors::admin_connections_max(limit) as u64;
    // A quarter more than it may accept are on their way out.
    let needed = (config.connections.max as u64).div_ceil(4) * 5 * listeners as u64 + fixed;
    match limit {
        None => Finding::ok("file limit", "unlimited"),
        Some(limit) if limit >= needed => Finding::ok("file limit", format!("{limit}, {needed} needed")),
        Some(limit) => {
            let advice = format!("`ulimit -n {needed}`, LimitNOFILE={needed} in systemd, or lower `connections.max`");
            let each = descriptors::connections_max(
                config.connections.max,
                listeners,
                Some(limit),
                descriptors::reserved(config),
            );
            let finding = format!("{limit} of {needed}: each of {listeners} listeners takes {each} connections only");
            match limit < fixed {
                true => Finding::fail("file limit", finding, &advice),
                false => Finding::warn("file limit", finding, &advice),
            }
        }
    }
}

/// Whether full queues fit into memory.
pub fn memory(config: &Config) -> Finding {
    let needed = config.queues.work_bytes_max.bytes() as u64 * 2 + MEMORY_RESERVE;
    let Some(available) = available_memory() else { return Finding::ok("memory", "not known on this system") };
    let mib = |bytes: u64| Size((bytes >> 20 << 20) as usize).to_string();
    let finding = format!("{} available, {} needed with full queues", mib(available), mib(needed));
    match available >= needed {
        true => Finding::ok("memory", finding),
        false => Finding::warn("memory", finding, "give it more memory, or lower `queues.work_bytes_max`"),
    }
}

/// Free memory of the system in bytes, or of the control group if that is less.
fn available_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let system = line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024;
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let group = number("/sys/fs/cgroup/memory.max")
        .map(|limit| limit.saturating_sub(number("/sys/fs/cgroup/memory.current").unwrap_or(0)));
    Some(group.map_or(system, |group| group.min(system)))
}

/// Whether time passes in small steps, and whether the date can be true.
pub fn clock() -> Vec<Finding> {
    let step = smallest_step();
    let steps = format!("smallest step {step:?}");
    let monotonic = match step <= Duration::from_millis(1) {
        true => Finding::ok("clock", steps),
        false => Finding::warn("clock", steps, "deadlines will be coarse; use a better clock source"),
    };
    let wall = match clock::unix_millis() {
        now if now < BUILT_AFTER_UNIX_MS => {
            Finding::fail("date", "before 2024", "set the clock; TLS and leases depend on it")
        }
        _ => synchronization(Path::new("/run/systemd/timesync")),
    };
    vec![monotonic, wall]
}

fn smallest_step() -> Duration {
    let step = |_| {
        let start = clock::now();
        loop {
            let passed = clock::now().saturating_duration_since(start);
            if !passed.is_zero() {
                return passed;
            }
        }
    };
    (0..100).map(step).min().unwrap_or_default()
}

fn synchronization(state: &Path) -> Finding {
    match (state.exists(), state.join("synchronized").exists()) {
        (_, true) => Finding::ok("date", "synchronized by systemd-timesyncd"),
        (true, false) => Finding::warn("date", "systemd-timesyncd has not synchronized yet", "`timedatectl status`"),
        (false, _) => Finding::ok("date", "plausible; whether it is synchronized cannot be told here"),
    }
}

/// Whether the system gives random bytes, and soon.
pub fn entropy() -> Finding {
    let start = clock::now();
    let mut bytes = [0; 32];
    if let Err(error) = getrandom::fill(&mut bytes) {
        return Finding::fail("randomness", error.to_string(), "tokens and keys cannot be made without it");
    }
    let took = clock::now().saturating_duration_since(start);
    let finding = format!("32 bytes in {took:?}");
    match took < Duration::from_millis(100) {
        true => Finding::ok("randomness", finding),
        false => Finding::warn("randomness", finding, "give a virtual machine a virtio-rng device"),
    }
}

/// How long the disk of the data directory takes to keep 4 KiB for good.
pub fn disk(data_dir: &Path) -> Finding {
    match measure_sync(data_dir) {
        Err(error) => {
            let finding = probe::unwritable(data_dir, &error).message;
            Finding::fail("disk", finding, "choose another `data_dir`; see docs/errors/MN0012.md")
        }
        Ok((p50, p99)) => {
            let finding = format!("4 KiB kept in {p50:?} (p50), {p99:?} (p99)");
            match p99 < SYNC_SLOW {
                true => Finding::ok("disk", finding),
                false => Finding::warn("disk", finding, "a faster disk gives faster durable writes"),
            }
        }
    }
}

fn measure_sync(data_dir: &Path) -> std::io::Result<(Duration, Duration)> {
    let mut scratch = ScratchFile::beside(data_dir)?;
    let mut times = Vec::with_capacity(SYNC_ROUNDS);
    for _ in 0..SYNC_ROUNDS {
        let start = clock::now();
        scratch.file.write_all(&[0x5a; SYNC_BYTES])?;
        scratch.file.sync_data()?;
        times.push(clock::now().saturating_duration_since(start));
    }
    times.sort_unstable();
    Ok((times[SYNC_ROUNDS / 2], times[SYNC_ROUNDS * 99 / 100]))
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn more_connections_than_handles_is_a_warning() {
        let mut config = Config::default();
        config.connections.max = 1;
        assert_eq!(file_limit(&config).level, Level::Ok);
        config.connections.max = usize::MAX >> 8;
        let finding = file_limit(&config);
        assert!(finding.level == Level::Warn || finding.finding == "unlimited", "{finding:?}");
    }

    #[test]
    fn queues_beyond_memory_are_a_warning() {
        let mut config = Config::default();
        config.queues.work_bytes_max = Size(1 << 50);
        let finding = memory(&config);
        assert!(finding.level == Level::Warn || available_memory().is_none(), "{finding:?}");
    }

    #[test]
    fn synchronization_is_read_from_its_mark() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        assert_eq!(synchronization(folder.path()).level, Level::Warn);
        fs::write(folder.path().join("synchronized"), "").expect("written");
        assert_eq!(synchronization(folder.path()).level, Level::Ok);
    }

    #[test]
    fn the_clock_moves_and_randomness_comes() {
        assert!(smallest_step() < Duration::from_secs(1));
        assert_ne!(entropy().level, Level::Fail);
    }
}
