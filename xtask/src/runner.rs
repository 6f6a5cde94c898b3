//! Running other programs: output is passed on line by line while the test counts and build times in it are added up.

use crate::tally::{self, Tally};
use anyhow::{Context, Result, bail, ensure};
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long the output may stay open after the program has ended before somebody is called a leftover.
const OUTPUT_CLOSE_MAX: Duration = Duration::from_secs(10);
const OUTPUT_CLOSE_POLL: Duration = Duration::from_millis(10);

/// A command line with its extra environment, as a person would type it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    program: String,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

/// How a program ended.
pub struct Outcome {
    /// Exit code; `None` after a signal.
    pub code: Option<i32>,
    /// The tests it ran, as its output tells.
    pub tally: Tally,
    /// Time it spent building, as its output tells.
    pub building: Duration,
}

/// What the output of a program has told so far.
#[derive(Default)]
struct Told {
    tally: Tally,
    building: Duration,
}

/// Held while something is printed that must not be torn apart by the lines of a program.
static PRINTING: Mutex<()> = Mutex::new(());

/// Prints a text as one piece.
pub fn print_whole(text: &[u8]) {
    let _printing = PRINTING.lock().unwrap_or_else(PoisonError::into_inner);
    // A closed output of ours is no reason to stop.
    let _ = std::io::stdout().write_all(text).and_then(|()| std::io::stdout().flush());
}

impl CommandLine {
    /// A command line whose words hold no spaces.
    pub fn new(line: &str) -> Self {
        let mut words = line.split_whitespace().map(str::to_owned);
        CommandLine { program: words.next().unwrap_or_default(), arguments: words.collect(), environment: Vec::new() }
    }

    /// The same with one more environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same with one more argument, which may hold spaces.
    pub fn arg(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Whether it succeeds, without a word; for questions such as "is this tool here?".
    pub fn is_ok(&self, root: &Path) -> bool {
        let status = self.command(root).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    }

    /// What it prints on standard output, trimmed.
    pub fn output(&self, root: &Path) -> Result<String> {
        let output = self.command(root).stderr(Stdio::inherit()).output().with_context(|| self.to_string())?;
        ensure!(output.status.success(), "{self}: {}", output.status);
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Runs it to its end, passing its output on.
    pub fn run(&self, root: &Path) -> Result<Outcome> {
        println!("$ {self}");
        let mut command = self.command(root);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().with_context(|| self.to_string())?;
        let told = Arc::new(Mutex::new(Told::default()));
        let mut readers = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            readers.push(pass_on(stdout, std::io::stdout(), Arc::clone(&told)));
        }
        if let Some(stderr) = child.stderr.take() {
            readers.push(pass_on(stderr, std::io::stderr(), Arc::clone(&told)));
        }
        let status = child.wait().with_context(|| self.to_string())?;
        ensure!(all_end(&readers), "{self} ended, but a process it started is still running and holds its output");
        let told = told.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Outcome { code: status.code(), tally: told.tally, building: told.building })
    }

    fn command(&self, root: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(root).stdin(Stdio::null()).env("CARGO_TERM_COLOR", "never");
        // `cargo run` describes this very package in the environment; a nested cargo must not see that.
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
                command.env_remove(name);
            }
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

impl fmt::Display for CommandLine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.environment {
            let quote = if value.contains(' ') { "\"" } else { "" };
            write!(formatter, "{name}={quote}{value}{quote} ")?;
        }
        write!(formatter, "{}", self.program)?;
        self.arguments.iter().try_for_each(|argument| write!(formatter, " {argument}"))
    }
}

fn pass_on<R, W>(from: R, mut to: W, told: Arc<Mutex<Told>>) -> JoinHandle<()>
where
    R: Read + Send + 'static,
    W: Write + Send + 'static,
{
    thread::spawn(move || {
        let mut reader = BufReader::new(from);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            {
                let _printing = PRINTING.lock().unwrap_or_else(PoisonError::into_inner);
                // A closed output of ours is no reason to stop counting.
                let _ = to.write_all(&line).and_then(|()| to.flush());
            }
            take_note(&told, &String::from_utf8_lossy(&line));
            line.clear();
        }
    })
}

fn take_note(told: &Mutex<Told>, line: &str) {
    if let Some(counts) = tally::parse_line(line) {
        told.lock().unwrap_or_else(PoisonError::into_inner).tally += counts;
    } else if let Some(time) = tally::parse_build_time(line.trim_end()) {
        told.lock().unwrap_or_else(PoisonError::into_inner).building += time;
    }
}

fn all_end(readers: &[JoinHandle<()>]) -> bool {
    let mut waited = Duration::ZERO;
    while !readers.iter().all(JoinHandle::is_finished) {
        if waited >= OUTPUT_CLOSE_MAX {
            return false;
        }
        thread::sleep(OUTPUT_CLOSE_POLL);
        waited += OUTPUT_CLOSE_POLL;
    }
    true
}

/// One run of several commands: where, and what was counted so far.
pub struct Session {
    /// The root of the repository.
    pub root: std::path::PathBuf,
    /// Tests counted so far.
    pub tally: Tally,
    /// Time spent building so far.
    pub building: Duration,
    /// nextest's filter for the tests that a change can touch; none means all of them.
    pub touched_tests: Option<String>,
}

impl Session {
    /// A session at the root of this repository.
    pub fn new() -> Self {
        Session::at(crate::tree::root())
    }

    fn at(root: std::path::PathBuf) -> Self {
        Session { root, tally: Tally::default(), building: Duration::ZERO, touched_tests: None }
    }

    /// A session in a folder for temporary files.
    #[cfg(test)]
    pub fn of_a_test() -> Self {
        Session::at(std::env::temp_dir())
    }

    /// Runs a command whose exit code and tests the caller judges.
    pub fn outcome(&mut self, command: &CommandLine) -> Result<Outcome> {
        let outcome = command.run(&self.root)?;
        self.building += outcome.building;
        Ok(outcome)
    }

    /// Runs a command that must succeed.
    pub fn run(&mut self, command: &CommandLine) -> Result<()> {
        let outcome = self.outcome(command)?;
        self.tally += outcome.tally;
        match outcome.code {
            Some(0) => Ok(()),
            Some(code) => bail!("exit code {code} from: {command}"),
            None => bail!("killed by a signal: {command}"),
        }
    }

    /// Runs tests that must pass, and of which there must be some: a flag gone wrong can leave an empty test binary.
    pub fn run_tests(&mut self, command: &CommandLine) -> Result<()> {
        let passed_before = self.tally.passed;
        self.run(command)?;
        ensure!(self.tally.passed > passed_before, "no test ran in: {command}");
        Ok(())
    }

    /// Runs a command that must succeed, given as a line of words without spaces in them.
    pub fn run_line(&mut self, line: &str) -> Result<()> {
        self.run(&CommandLine::new(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> CommandLine {
        CommandLine::new("sh -c").arg(script)
    }

    #[test]
    fn a_command_reads_as_it_is_typed() {
        let command = CommandLine::new("cargo test  -p a").env("RUSTFLAGS", "--cfg loom").env("A", "1");
        assert_eq!(command.to_string(), "RUSTFLAGS=\"--cfg loom\" A=1 cargo test -p a");
    }

    #[test]
    fn counts_on_both_outputs_are_added() {
        let mut session = Session::of_a_test();
        let result = "test result: ok. 2 passed; 0 failed; 1 ignored";
        let summary = "Summary [ 1s] 4 tests run: 3 passed, 1 failed, 0 skipped";
        session.run(&shell(&format!("echo '{result}'; echo '{result}'; echo '{summary}' >&2"))).expect("it succeeds");
        assert_eq!(session.tally, Tally { passed: 7, failed: 1, skipped: 2, left_open: 0 });
    }

    #[test]
    fn build_times_are_added() {
        let mut session = Session::of_a_test();
        let finished = |time: &str| format!("echo 'Finished `dev` profile [x] target(s) in {time}'");
        let script = format!("{} >&2; {}", finished("1m 02s"), finished("3.5s"));
        session.run(&shell(&script)).expect("it succeeds");
        assert_eq!(session.building, Duration::from_millis(65_500));
    }

    #[test]
    fn a_failure_names_the_command() {
        let error = Session::of_a_test().run(&shell("exit 3")).expect_err("it fails");
        assert_eq!(error.to_string(), "exit code 3 from: sh -c exit 3");
    }

    #[test]
    fn an_empty_test_run_is_a_failure() {
        let result = |passed: u64| shell(&format!("echo 'test result: ok. {passed} passed; 0 failed; 0 ignored'"));
        assert!(Session::of_a_test().run_tests(&result(0)).is_err());
        assert!(Session::of_a_test().run_tests(&result(1)).is_ok());
    }

    #[test]
    fn the_extra_environment_arrives_and_our_own_package_does_not() {
        let command = shell("echo ${CHORE}-${CARGO_PKG_NAME:-none}").env("CHORE", "x");
        assert_eq!(command.output(&std::env::temp_dir()).expect("it succeeds"), "x-none");
    }

    #[test]
    fn a_missing_program_is_not_ok() {
        assert!(!CommandLine::new("no-such-program-anywhere").is_ok(&std::env::temp_dir()));
        assert!(shell("true").is_ok(&std::env::temp_dir()));
    }
}
