//! The TLA+ models under TLC: the true one must hold, and each planted bug must be found.

use crate::ci::tools;
use crate::runner::{CommandLine, Session};
use anyhow::{Context, Result, ensure};
use std::path::Path;

const SPECS_FOLDER: &str = "specs";
const WORK_FOLDER: &str = "target/tlc";

/// TLC's exit codes for a deadlock, a broken invariant and a broken liveness property; others are its own troubles.
const VIOLATIONS: std::ops::RangeInclusive<i32> = 11..=13;

/// What a model's name promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    Holds,
    IsViolated,
}

impl Promise {
    fn complaint(self) -> &'static str {
        match self {
            Promise::Holds => "the model does not hold",
            Promise::IsViolated => "the planted bug was not found",
        }
    }
}

/// Checks every configuration in the folder of models.
pub fn check(session: &mut Session) -> Result<()> {
    let names = configurations(&session.root.join(SPECS_FOLDER))?;
    ensure!(names.iter().any(|name| promise(name) == Promise::Holds), "no model in {SPECS_FOLDER}/");
    ensure!(names.iter().any(|name| promise(name) == Promise::IsViolated), "no planted bug in {SPECS_FOLDER}/");
    let jar = tools::tlc_jar(session)?;
    for name in &names {
        let command = tlc(&jar.to_string_lossy(), name);
        let outcome = session.outcome(&command)?;
        println!("TLC {name}: exit code {:?}", outcome.code);
        ensure!(keeps(promise(name), outcome.code), "{}: {command}", promise(name).complaint());
    }
    // The states TLC leaves are large and say nothing more.
    std::fs::remove_dir_all(session.root.join(WORK_FOLDER)).context(WORK_FOLDER)
}

fn configurations(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let file = entry?.file_name();
        names.extend(file.to_string_lossy().strip_suffix(".cfg").map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

fn promise(name: &str) -> Promise {
    if name.contains("Bug") { Promise::IsViolated } else { Promise::Holds }
}

fn keeps(promise: Promise, code: Option<i32>) -> bool {
    match promise {
        Promise::Holds => code == Some(0),
        Promise::IsViolated => code.is_some_and(|code| VIOLATIONS.contains(&code)),
    }
}

/// `LifecycleBugLostWakeup.cfg` is a configuration of `Lifecycle.tla`.
fn module(name: &str) -> &str {
    name.split_once("Bug").map_or(name, |(module, _)| module)
}

fn tlc(jar: &str, name: &str) -> CommandLine {
    let module = module(name);
    CommandLine::new(&format!(
        "java -XX:+UseParallelGC -cp {jar} tlc2.TLC -workers 2 -metadir {WORK_FOLDER}/{name} \
         -config {SPECS_FOLDER}/{name}.cfg {SPECS_FOLDER}/{module}.tla"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_says_what_must_happen() {
        assert_eq!((promise("Lifecycle"), module("Lifecycle")), (Promise::Holds, "Lifecycle"));
        assert_eq!((promise("LifecycleBugDrain"), module("LifecycleBugDrain")), (Promise::IsViolated, "Lifecycle"));
    }

    #[test]
    fn a_bug_must_be_found_and_not_merely_fail() {
        for (promise, code, expected) in [
            (Promise::Holds, Some(0), true),
            (Promise::Holds, Some(12), false),
            (Promise::Holds, None, false),
            (Promise::IsViolated, Some(12), true),
            (Promise::IsViolated, Some(13), true),
            (Promise::IsViolated, Some(0), false),
            (Promise::IsViolated, Some(151), false),
            (Promise::IsViolated, None, false),
        ] {
            assert_eq!(keeps(promise, code), expected, "{promise:?} {code:?}");
        }
    }
}
