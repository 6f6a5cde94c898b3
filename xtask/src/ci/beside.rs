//! Steps that run beside others, each as a process of its own: its output is kept and printed whole when it has ended,
//! and its failure ends whatever else this run has started.

use crate::ci::processes;
use crate::ci::steps::now;
use crate::ci::times::StepTime;
use crate::runner::print_whole;
use crate::tally::Tally;
use anyhow::{Context, Result, anyhow};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long programs have to end by themselves before they are killed.
const END_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The steps that were started beside others.
pub struct Beside {
    /// Folder of a file for each step, where its output can be read before it ends.
    logs: PathBuf,
    parts: Vec<Part>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// The first failure; those after it may be its consequence.
    failure: Mutex<Option<anyhow::Error>>,
    /// Set when nobody starts programs any more, so that there is nothing left to end.
    is_over: AtomicBool,
    /// Set when the parts are being ended because of a failure elsewhere.
    is_stopped: AtomicBool,
}

struct Part {
    process: u32,
    thread: JoinHandle<StepTime>,
}

impl Beside {
    /// Nothing started yet.
    pub fn new(logs: PathBuf) -> Beside {
        Beside { logs, parts: Vec::new(), shared: Arc::default() }
    }

    /// Starts a step.
    pub fn start(&mut self, name: &'static str, mut command: Command) -> Result<()> {
        let (output, input) = std::io::pipe().context("a pipe")?;
        std::fs::create_dir_all(&self.logs).with_context(|| self.logs.display().to_string())?;
        let log = File::create(self.logs.join(format!("{name}.log"))).context("the log of a step")?;
        command.stdin(Stdio::null()).stdout(input.try_clone().context("a pipe")?).stderr(input);
        let child = command.spawn().with_context(|| format!("step {name} failed to start"))?;
        // The command holds this side of the pipe open, whose other side would never end.
        drop(command);
        let shared = Arc::clone(&self.shared);
        let process = child.id();
        let thread = thread::spawn(move || watch(name, child, output, log, &shared));
        self.parts.push(Part { process, thread });
        Ok(())
    }

    /// Waits until all that was started has ended.
    pub fn wait(&self) {
        while !self.parts.iter().all(|part| part.thread.is_finished()) && !self.has_failed() {
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Whether a step has failed.
    pub fn has_failed(&self) -> bool {
        self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Ends what still runs, because another step has failed.
    pub fn stop(&self) {
        self.shared.is_stopped.store(true, Ordering::SeqCst);
        let running: Vec<u32> =
            self.parts.iter().filter(|part| !part.thread.is_finished()).map(|part| part.process).collect();
        processes::end(END_WITHIN, || running.iter().flat_map(|process| processes::family(*process)).collect());
    }

    /// Waits for all; how long each took, and the first failure.
    pub fn finish(self) -> (Vec<StepTime>, Option<anyhow::Error>) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        let join = |part: Part| part.thread.join().expect("a watching thread does not panic");
        let ended = self.parts.into_iter().map(join).collect();
        let failure = self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        (ended, failure)
    }
}

fn watch(name: &'static str, mut child: Child, output: impl Read, log: File, shared: &Shared) -> StepTime {
    let started = now();
    let mut text = Vec::new();
    let status = read_to_end(output, &mut text, log).and_then(|()| child.wait());
    let text = String::from_utf8_lossy(&text);
    let (text, counts) = split_counts(&text);
    // A step that ends without its counts has not come to its end, whatever its exit code.
    let has_counts = counts.is_some();
    let (tally, building) = counts.unwrap_or_default();
    let time = StepTime {
        name: name.to_owned(),
        is_beside: true,
        building,
        total: started.elapsed(),
        tally,
        passed: status.as_ref().is_ok_and(ExitStatus::success) && has_counts,
    };
    let how = match &status {
        Ok(status) if status.success() && has_counts => "passed".to_owned(),
        Ok(status) if status.success() => "failed (it did not say what it counted)".to_owned(),
        Ok(status) => format!("failed ({status})"),
        Err(error) => format!("failed ({error})"),
    };
    let head = format!("\n=== {name}, which ran beside: {how} after {:.1} s ===\n", time.total.as_secs_f64());
    let tail = format!("=== end of {name} ===\n\n");
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    print_whole([&head, &text, end, &tail].concat().as_bytes());
    if !time.passed && !shared.is_stopped.load(Ordering::SeqCst) {
        fail(shared, anyhow!("step {name} failed: {how}; its output is above"));
    }
    time
}

/// Reads all of the output, and passes it on to the log as it comes.
fn read_to_end(mut output: impl Read, text: &mut Vec<u8>, mut log: File) -> std::io::Result<()> {
    let mut piece = [0; 8192];
    loop {
        let length = match output.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        text.extend_from_slice(&piece[..length]);
        // What is printed at the end does not depend on a disk that is full.
        let _ = log.write_all(&piece[..length]);
    }
}

/// Begins the line with the counts of a step that runs as a process of its own.
const COUNTS: &str = "counts of this step: ";

/// The last line of such a step: what it counted, for the process that started it.
pub fn counts(tally: Tally, building: Duration) -> String {
    let Tally { passed, failed, skipped, left_open } = tally;
    format!("{COUNTS}{passed} {failed} {skipped} {left_open} {}", building.as_millis())
}

/// The output without the line of counts, behind which the reason of a failure may stand.
fn split_counts(text: &str) -> (String, Option<(Tally, Duration)>) {
    let mut counts = None;
    let mut others = String::new();
    for line in text.split_inclusive('\n') {
        match line.strip_prefix(COUNTS).and_then(|numbers| parse_counts(numbers.trim_end())) {
            Some(found) => counts = Some(found),
            None => others.push_str(line),
        }
    }
    (others, counts)
}

fn parse_counts(text: &str) -> Option<(Tally, Duration)> {
    let numbers: Vec<u64> = text.split(' ').map_while(|word| word.parse().ok()).collect();
    let [passed, failed, skipped, left_open, building_ms] = numbers[..] else { return None };
    Some((Tally { passed, failed, skipped, left_open }, Duration::from_millis(building_ms)))
}

/// Notes the failure and ends all that this process has started, again and again until nothing more is started.
fn fail(shared: &Shared, error: anyhow::Error) {
    shared.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    let me = std::process::id();
    let own_children = || processes::family(me).into_iter().filter(|process| *process != me).collect();
    while !shared.is_over.load(Ordering::SeqCst) {
        processes::end(END_WITHIN, own_children);
        thread::sleep(LOOK_EVERY);
    }
    processes::end(END_WITHIN, own_children);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_they_are_written() {
        let tally = Tally { passed: 3, failed: 1, skipped: 2, left_open: 4 };
        let line = counts(tally, Duration::from_millis(1_250));
        assert_eq!(parse_counts(&line[COUNTS.len()..]), Some((tally, Duration::from_millis(1_250))));
        let text = format!("some words\n{line}\nerror: no registry\n");
        let expected = ("some words\nerror: no registry\n".to_owned(), Some((tally, Duration::from_millis(1_250))));
        assert_eq!(split_counts(&text), expected, "why it failed stands behind the counts");
        assert_eq!(parse_counts("1 2 three 4"), None);
        assert_eq!(parse_counts(""), None);
    }
}
