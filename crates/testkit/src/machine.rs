//! What the machine did for a while, and how much of it was done for others than this test.

use std::collections::BTreeMap;
use std::fs;

/// Parent of the kernel's own threads, whose number and name are the same on every machine; a container may show
/// another process by that number. What they do is mostly done for the test, and what others do shows elsewhere.
const KERNEL_THREADS: u32 = 2;
const KERNEL_THREADS_NAME: &str = "kthreadd";

/// Ticks of all cores since the machine was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticks {
    all: u64,
    /// Spent on programs and on other machines of the same host. Interrupts are left out: a test that uses the network
    /// makes them, and nobody tells whose they are.
    busy: u64,
    /// Part of `busy` that was this process, its descendants and the kernel's threads.
    own: u64,
}

impl Ticks {
    /// Zeros where there is no `/proc`: then every test counts as alone.
    pub fn now() -> Ticks {
        let (all, busy) = fs::read_to_string("/proc/stat").ok().and_then(|text| machine(&text)).unwrap_or((0, 0));
        Ticks { all, busy, own: own_of(&processes(), &[Some(std::process::id()), kernel_threads()]) }
    }

    /// Share of the machine that others have used since, from 0 to 1.
    pub fn share_of_others_until(self, now: Ticks) -> f64 {
        let since = |now: u64, before: u64| now.saturating_sub(before) as f64;
        let others = (since(now.busy, self.busy) - since(now.own, self.own)).max(0.0);
        others / since(now.all, self.all).max(1.0)
    }
}

/// All ticks and the busy ones in the text of `/proc/stat`.
fn machine(stat: &str) -> Option<(u64, u64)> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = fields.split_whitespace().filter_map(|field| field.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, _irq, _softirq, steal] = *fields.first_chunk::<8>()?;
    // Guests, which follow, are counted among the users already.
    Some((fields[..8].iter().sum(), user + nice + system + steal))
}

/// Parent of a process, and its ticks with those of its children that have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessTicks {
    parent: u32,
    ticks: u64,
}

fn processes() -> BTreeMap<u32, ProcessTicks> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let read = |pid: u32| process(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?);
    numbers.filter_map(|pid| Some((pid, read(pid)?))).collect()
}

/// The text of `/proc/PID/stat`: the name, in brackets, may hold anything.
fn process(stat: &str) -> Option<ProcessTicks> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let ticks = number(11)? + number(12)? + number(13)? + number(14)?;
    Some(ProcessTicks { parent: fields.get(1)?.parse().ok()?, ticks })
}

fn kernel_threads() -> Option<u32> {
    let name = fs::read_to_string(format!("/proc/{KERNEL_THREADS}/comm")).ok()?;
    (name.trim_end() == KERNEL_THREADS_NAME).then_some(KERNEL_THREADS)
}

/// Ticks of these processes and of all that descend from them.
fn own_of(processes: &BTreeMap<u32, ProcessTicks>, roots: &[Option<u32>]) -> u64 {
    let is_own = |pid: u32| {
        let above = |pid: &u32| processes.get(pid).map(|process| process.parent);
        // A process that ended while the list was read may leave a circle of reused numbers behind.
        std::iter::successors(Some(pid), above).take(64).any(|pid| roots.contains(&Some(pid)))
    };
    processes.iter().filter(|(pid, _)| is_own(**pid)).map(|(_, process)| process.ticks).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn what_the_kernel_writes_is_read() {
        let stat = "cpu  10 20 30 400 50 6 7 8 9 0\ncpu0 5 10 15 200 25 3 3 4 4 0\n";
        assert_eq!(machine(stat), Some((531, 68)));
        assert_eq!(machine("cpu  10 20\n"), None);
        let line = "42 (a ) b) S 7 42 42 0 -1 4194304 1 2 3 4 100 20 3 4 20 0 1 0 9 9 9";
        assert_eq!(process(line), Some(ProcessTicks { parent: 7, ticks: 127 }));
        assert_eq!(process("42 (cut off) S 7"), None);
    }

    #[test]
    fn descendants_and_the_kernels_threads_are_own() {
        let process = |pid, parent, ticks| (pid, ProcessTicks { parent, ticks });
        let processes = [(1, 0, 1), (2, 0, 2), (3, 2, 4), (10, 1, 8), (11, 10, 16), (12, 11, 32), (20, 1, 64)];
        let processes = processes.map(|(pid, parent, ticks)| process(pid, parent, ticks)).into();
        assert_eq!(own_of(&processes, &[Some(10), Some(2)]), 2 + 4 + 8 + 16 + 32);
        assert_eq!(own_of(&processes, &[Some(10), None]), 8 + 16 + 32, "in a container");
    }

    #[test]
    fn others_have_what_is_busy_and_not_own() {
        let before = Ticks { all: 1_000, busy: 500, own: 100 };
        let share = |busy, own| before.share_of_others_until(Ticks { all: 1_200, busy, own });
        assert_eq!(share(600, 200), 0.0);
        assert_eq!(share(700, 200), 0.5);
        assert_eq!(share(500, 100), 0.0);
        assert_eq!(share(600, 300), 0.0, "the two are not read in the same moment");
    }

    /// What this process does is not taken for somebody else's.
    #[test]
    fn own_work_is_found_in_proc() {
        let before = Ticks::now();
        let end = Instant::now() + Duration::from_secs(30);
        while Ticks::now().own < before.own + 10 {
            assert!(Instant::now() < end, "ten ticks of work are not seen");
        }
        assert!(Ticks::now().all >= before.all + 10);
    }
}
