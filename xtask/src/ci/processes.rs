//! Processes with all that they have started, as Linux lists them.

use rustix::process::{Pid, Signal, kill_process};
use std::thread;
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Looks at processes that are being held still, and the time between two.
const STOP_LOOKS_MAX: usize = 500;
const STOP_LOOK_EVERY: Duration = Duration::from_millis(2);

/// A process and all that descend from it. What has another parent by now, because its own has ended, is not found.
pub fn family(process: u32) -> Vec<u32> {
    let parents = parents();
    let mut family = vec![process];
    let mut next = 0;
    while let Some(parent) = family.get(next).copied() {
        family.extend(parents.iter().filter(|(_, its_parent)| *its_parent == parent).map(|(process, _)| *process));
        next += 1;
    }
    family
}

/// Asks processes to end, and kills those that have not after a while. They are looked up anew each time, because they
/// go on starting others until they have ended.
pub fn end(within: Duration, mut processes: impl FnMut() -> Vec<u32>) {
    let mut waited = Duration::ZERO;
    let mut seen = Vec::new();
    loop {
        let alive = stop_all(|| known(&mut seen, processes()));
        if alive.is_empty() {
            return;
        }
        let signal_to_end = if waited < within { Signal::TERM } else { Signal::KILL };
        for process in alive {
            signal(process, signal_to_end);
            signal(process, Signal::CONT);
        }
        if waited > within + within {
            return;
        }
        thread::sleep(LOOK_EVERY);
        waited += LOOK_EVERY;
    }
}

/// What is found now, and all that was found before with what it has started: one that ends more slowly than its parent
/// has another parent since.
fn known(seen: &mut Vec<(u32, u64)>, found: Vec<u32>) -> Vec<u32> {
    let same = |(process, started): &(u32, u64)| stat(*process).is_some_and(|stat| stat.started == *started);
    seen.retain(same);
    let before = seen.iter().flat_map(|(process, _)| family(*process));
    let mut all: Vec<u32> = found.into_iter().chain(before).collect();
    all.sort_unstable();
    all.dedup();
    let new = all.iter().filter(|process| !seen.iter().any(|(known, _)| known == *process));
    let new: Vec<(u32, u64)> = new.filter_map(|process| Some((*process, stat(*process)?.started))).collect();
    seen.extend(new);
    all
}

/// Those of them that have not ended, each held still, so that none starts another one behind our back: what a process
/// has started just before it ends has another parent then, and would be found by nobody.
fn stop_all(mut processes: impl FnMut() -> Vec<u32>) -> Vec<u32> {
    for _ in 0..STOP_LOOKS_MAX {
        let alive: Vec<u32> = processes().into_iter().filter(|process| is_alive(*process)).collect();
        let moving = alive.iter().copied().filter(|process| !is_stopped(*process));
        if moving.map(|process| signal(process, Signal::STOP)).count() == 0 {
            return alive;
        }
        thread::sleep(STOP_LOOK_EVERY);
    }
    // One that waits for a disk cannot be held; it starts nothing meanwhile.
    processes().into_iter().filter(|process| is_alive(*process)).collect()
}

fn signal(process: u32, signal: Signal) {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    // It may have ended since.
    let _ = process.map(|process| kill_process(process, signal));
}

/// Each process with its parent.
fn parents() -> Vec<(u32, u32)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    processes.filter_map(|process| Some((process, stat(process)?.parent))).collect()
}

/// Ended, but not yet waited for by its parent, is not alive.
fn is_alive(process: u32) -> bool {
    stat(process).is_some_and(|stat| stat.state != 'Z')
}

fn is_stopped(process: u32) -> bool {
    stat(process).is_none_or(|stat| matches!(stat.state, 'T' | 't' | 'Z'))
}

/// What Linux says of a process.
struct Stat {
    state: char,
    parent: u32,
    /// Ticks after the machine was started: tells processes apart that had the same number.
    started: u64,
}

/// The fields stand behind the name in brackets, which may hold anything.
fn stat(process: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_family_is_found_and_ended_whole() {
        let mut child = Command::new("sh").args(["-c", "sleep 600 & sleep 600; true"]).spawn().expect("a shell");
        let process = child.id();
        while family(process).len() < 3 {
            thread::sleep(LOOK_EVERY);
        }
        let all = family(process);
        end(Duration::from_secs(5), || all.clone());
        assert!(!child.wait().expect("it has ended").success());
        assert!(!all.iter().any(|process| is_alive(*process)));
    }

    /// A shell that starts the next program all the time: one started between the look and the signal would stay.
    #[test]
    fn what_is_started_meanwhile_is_ended_too() {
        let marked = format!("86400.{}", std::process::id());
        let script = format!("while :; do sleep {marked} & sleep 0.001; done");
        for _ in 0..5 {
            let mut child = Command::new("sh").args(["-c", &script]).spawn().expect("a shell");
            let process = child.id();
            while family(process).len() < 3 {
                thread::sleep(STOP_LOOK_EVERY);
            }
            end(Duration::from_secs(5), || family(process));
            child.wait().expect("it has ended");
        }
        let left: Vec<u32> = parents()
            .into_iter()
            .map(|(process, _)| process)
            .filter(|process| {
                let words = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
                is_alive(*process)
                    && words.starts_with(b"sleep\0")
                    && words.windows(marked.len()).any(|word| word == marked.as_bytes())
            })
            .collect();
        left.iter().for_each(|process| signal(*process, Signal::KILL));
        assert_eq!(left, Vec::<u32>::new());
    }

    /// The shell ends at the first signal, its child at the one that nothing withstands.
    #[test]
    fn what_ends_more_slowly_than_its_parent_is_ended_too() {
        let script = "sh -c 'trap \"\" TERM; while :; do sleep 0.05; done' & sleep 600; true";
        let mut child = Command::new("sh").args(["-c", script]).spawn().expect("a shell");
        let process = child.id();
        while family(process).len() < 4 {
            thread::sleep(LOOK_EVERY);
        }
        let all = family(process);
        end(Duration::from_millis(200), || family(process));
        child.wait().expect("it has ended");
        assert!(!all.iter().any(|process| is_alive(*process)));
    }

    #[test]
    fn what_does_not_listen_is_killed() {
        let mut child =
            Command::new("sh").args(["-c", "trap '' TERM; while :; do sleep 0.05; done"]).spawn().expect("a shell");
        let process = child.id();
        end(Duration::from_millis(200), || family(process));
        assert_eq!(child.wait().expect("it has ended").code(), None);
    }
}
