//! Where and when a run was made.

use std::fmt;
use std::process::Command;

use ron_kernel::clock;

/// Facts about a machine that a reader needs to compare numbers.
#[derive(Debug)]
pub struct Machine {
    date: String,
    cpu: String,
    cores: usize,
    kernel: String,
    memory: String,
    rustc: String,
    load: String,
}

/// Reads the description of this machine from the system.
pub fn describe() -> Machine {
    let unknown = || "unknown".to_owned();
    let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let memory_kib: Option<u64> =
        field(&file("/proc/meminfo"), "MemTotal").and_then(|v| v.trim_end_matches("kB").trim().parse().ok());
    let rustc = Command::new("rustc").arg("--version").output().ok();
    let rustc = rustc.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    Machine {
        date: civil_date(clock::unix_millis() / 86_400_000),
        cpu: field(&file("/proc/cpuinfo"), "model name").unwrap_or_else(unknown),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        kernel: file("/proc/sys/kernel/osrelease").trim().to_owned(),
        memory: memory_kib.map_or_else(unknown, |kib| format!("{:.1} GiB", kib as f64 / 1_048_576.0)),
        rustc: rustc.filter(|text| !text.is_empty()).unwrap_or_else(unknown),
        load: file("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned(),
    }
}

impl Machine {
    /// The description as Markdown.
    pub fn markdown(&self) -> String {
        format!(
            "Measured on {} on {} cores of {}, {} of memory, Linux {}, {}; load average at the start {}.",
            self.date, self.cores, self.cpu, self.memory, self.kernel, self.rustc, self.load
        )
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> Machine {
        let text = str::to_owned;
        Machine {
            date: text("2000-01-01"),
            cpu: text("a processor"),
            cores: 2,
            kernel: text("6"),
            memory: text("1.0 GiB"),
            rustc: text("rustc 1"),
            load: text("0.00"),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.markdown())
    }
}

/// The value of the first `name : value` line.
pub fn field(text: &str, name: &str) -> Option<String> {
    let value = text.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| key.trim() == name)?.1;
    Some(value.trim().to_owned())
}

/// Days since 1970-01-01 as a date. Counts in years that begin in March, so that the leap day is the last.
pub fn civil_date(days: u64) -> String {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        for (days, date) in [
            (0, "1970-01-01"),
            (58, "1970-02-28"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (19_722, "2023-12-31"),
            (19_723, "2024-01-01"),
            (19_782, "2024-02-29"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
        ] {
            assert_eq!(civil_date(days), date, "{days}");
        }
    }

    #[test]
    fn fields_of_proc_files_are_found() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2:1\nmodel name\t: other\nVmRSS:\t  123 kB\n";
        assert_eq!(field(text, "model name").as_deref(), Some("Some CPU @ 2:1"));
        assert_eq!(field(text, "VmRSS").as_deref(), Some("123 kB"));
        assert_eq!(field(text, "VmSwap"), None);
    }
}
