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
        date: testkit::civil_date(clock::unix_millis() / 86_400_000),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc_files_are_found() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2:1\nmodel name\t: other\nVmRSS:\t  123 kB\n";
        assert_eq!(field(text, "model name").as_deref(), Some("Some CPU @ 2:1"));
        assert_eq!(field(text, "VmRSS").as_deref(), Some("123 kB"));
        assert_eq!(field(text, "VmSwap"), None);
    }
}
