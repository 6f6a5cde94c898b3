//! The gate `sanitizers`: tests of kernel, log, mailbox, transport and overlay under ThreadSanitizer, and Miri where a
//! toolchain has it.
//!
//! ThreadSanitizer needs a standard library that is instrumented too, or it reports races where there are none. The
//! compiler, its sources and the runtime come from Debian packages of one version, unpacked beside the build.

use crate::debian::Unpacked;
use crate::runner::{CommandLine, Session};
use crate::tree;
use anyhow::{Result, ensure};
use std::path::PathBuf;

/// The compiler with its sources, and LLVM's runtime and symbolizer of the same major version. Without the symbolizer
/// suppressions do not match.
const PACKAGES: [&str; 7] = [
    "rustc-web",
    "libstd-rust-web-1.96",
    "libstd-rust-web-dev",
    "rust-web-src",
    "libllvm22",
    "libclang-rt-22-dev",
    "llvm-22",
];
const RUNTIME: &str = "usr/lib/llvm-22/lib/clang/22/lib/linux/libclang_rt.tsan-x86_64.a";
const SYMBOLIZER: &str = "usr/lib/llvm-22/bin/llvm-symbolizer";
const COMPILER: &str = "usr/bin/rustc";
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Reports that are known to be wrong, by name and with a reason.
const SUPPRESSIONS: &str = "xtask/thread-sanitizer.txt";
/// A test that races on purpose: a sanitizer that does not see it sees nothing.
const PLANTED_RACE: &str = "-p ron-amnesia --run-ignored only";
/// What CI can afford in three minutes: one crate, because building is most of it. With the log it was six minutes of
/// core time for half a minute of tests; the kernel is the crate whose tests share most between threads.
const SAMPLE: &str = "-p ron-kernel";
const WHOLE: &str = "-p ron-kernel -p ron-log -p svc-mailbox -p oap -p ron-transport -p svc-overlay";
/// Crates small enough for an interpreter.
const MIRI: &str = "-p ron-amnesia -p ron-cells";

/// Fetches the compiler with its sources: a step that only waits.
pub fn fetch(session: &mut Session) -> Result<()> {
    Unpacked::with(session, &PACKAGES).map(|_tools| ())
}

/// A part of the tests, for every change.
pub fn sample(session: &mut Session) -> Result<()> {
    threads(session, SAMPLE)
}

/// All the tests, and Miri.
pub fn whole(session: &mut Session) -> Result<()> {
    threads(session, WHOLE)?;
    miri(session)
}

fn threads(session: &mut Session, tests: &str) -> Result<()> {
    let tools = Unpacked::with(session, &PACKAGES)?;
    let planted = instrumented(session, &tools, PLANTED_RACE);
    let outcome = session.outcome(&planted)?;
    ensure!(
        outcome.code == Some(NEXTEST_TESTS_FAILED) && outcome.tally.failed == 1,
        "the planted race was not found: {planted}"
    );
    println!("the planted race was found");
    session.run_tests(&instrumented(session, &tools, tests))
}

/// Profile of nextest with time for tests that are slowed down.
const PROFILE: &str = "sanitizers";
/// Exit code of nextest when tests ran and some failed.
const NEXTEST_TESTS_FAILED: i32 = 100;

fn instrumented(session: &Session, tools: &Unpacked, tests: &str) -> CommandLine {
    let runtime = tools.file(RUNTIME).display().to_string();
    let mut flags = vec!["-Zsanitizer=thread".to_owned(), "-Zexternal-clangrt".to_owned()];
    // The runtime stands before all libraries, because it takes the place of functions in them.
    let before =
        ["-Wl,--whole-archive", &runtime, "-Wl,--no-whole-archive", &format!("-Wl,--dynamic-list={runtime}.syms")];
    flags.extend(before.map(|argument| format!("-Zpre-link-arg={argument}")));
    flags.extend(["rt", "dl", "m", "pthread", "resolv", "c"].map(|library| format!("-Clink-arg=-l{library}")));
    let suppressions = session.root.join(SUPPRESSIONS);
    let symbolizer = tools.file(SYMBOLIZER);
    let options = format!("external_symbolizer_path={} suppressions={}", symbolizer.display(), suppressions.display());
    let folder = tree::target_folder(&session.root).join("sanitizers");
    let line = format!(
        "cargo nextest run --profile {PROFILE} -Zbuild-std --target {TARGET} --target-dir {} {tests}",
        folder.display()
    );
    tools
        .command(CommandLine::new(&line))
        .env("RUSTC", &tools.file(COMPILER).display().to_string())
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", &flags.join(" "))
        .env("TSAN_OPTIONS", &options)
}

/// Miri is asked for by looking at files: asking `cargo miri` would have rustup fetch it.
fn miri(session: &mut Session) -> Result<()> {
    let toolchain = ["", "+nightly "].into_iter().find(|toolchain| {
        let sysroot = CommandLine::new(&format!("rustc {toolchain}--print sysroot")).env("RUSTUP_AUTO_INSTALL", "0");
        let sysroot = if sysroot.is_ok(&session.root) { sysroot.output(&session.root) } else { return false };
        sysroot.map(PathBuf::from).is_ok_and(|sysroot| sysroot.join("bin/miri").is_file())
    });
    let Some(toolchain) = toolchain else {
        println!("SKIP SKIP SKIP Miri: no toolchain on this machine has it");
        return Ok(());
    };
    session.run_tests(&CommandLine::new(&format!("cargo {toolchain}miri test {MIRI}")).env("RUSTUP_AUTO_INSTALL", "0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests of the usual profiles are killed after six minutes, which an instrumented one may need.
    #[test]
    fn instrumented_tests_have_a_profile_with_an_hour_for_each() {
        let text = std::fs::read_to_string(crate::tree::root().join(".config/nextest.toml")).expect("the profiles");
        let profile = text.split_once(&format!("[profile.{PROFILE}]")).expect("the profile is there").1;
        let profile = profile.split("\n[").next().unwrap_or_default();
        assert!(profile.contains(r#"slow-timeout = { period = "600s", terminate-after = 6 }"#), "{profile}");
    }

    /// Frames that every task has: suppressing one of them hides every race.
    const FRAMES_OF_EVERYTHING: [&str; 6] = ["std", "core", "alloc", "test", "tokio::runtime", "tokio"];

    fn suppressions() -> String {
        std::fs::read_to_string(crate::tree::root().join(SUPPRESSIONS)).expect("the file of suppressions")
    }

    #[test]
    fn each_suppression_is_narrow_and_has_its_reason_before_it() {
        let text = suppressions();
        let lines: Vec<&str> = text.lines().collect();
        let entries = lines.iter().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        for (number, entry) in entries {
            let name = entry.strip_prefix("race:").expect("only races are suppressed");
            assert!(!FRAMES_OF_EVERYTHING.contains(&name.trim_end_matches("::").trim_end_matches('*')), "{entry}");
            let before = number.checked_sub(1).map(|number| lines[number]).unwrap_or_default();
            assert!(before.starts_with("# ") && before.len() > 20, "{entry} has no reason");
        }
    }
}
