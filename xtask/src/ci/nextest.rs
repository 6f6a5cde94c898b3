//! Which tests to run, as commands of nextest.

use crate::runner::{CommandLine, Session};

/// Tests to run.
#[derive(Clone, Copy)]
pub enum Tests {
    /// Every test of the workspace.
    All,
    /// Those that run the binary.
    BlackBox,
    /// Those that try what one thread changes; their profile chooses them.
    OneThread,
    /// Those of these packages.
    Of(&'static [&'static str]),
}

/// Filter for the tests that run the binary.
const BLACK_BOX: &str = "package(macronode) & kind(test)";
/// Profile whose default filter chooses the tests that try what one thread changes.
const ONE_THREAD_PROFILE: &str = "current-thread";

/// The command that runs these tests, or those of them that a change can touch. It builds the whole workspace and then
/// filters: `-p macronode` would choose other features of its dependencies, and build almost everything again.
pub fn test_command(session: &Session, tests: Tests, profile: &str) -> CommandLine {
    let filter = match tests {
        Tests::All => None,
        Tests::BlackBox => Some(BLACK_BOX.to_owned()),
        Tests::OneThread => {
            let command = CommandLine::new(&format!("cargo nextest run --workspace --profile {ONE_THREAD_PROFILE}"));
            return on_one_thread(command);
        }
        Tests::Of(packages) => {
            let each: Vec<String> = packages.iter().map(|package| format!("package(={package})")).collect();
            Some(each.join(" | "))
        }
    };
    let filters = [filter, session.touched_tests.clone()].into_iter().flatten().map(|filter| format!("({filter})"));
    let filter = filters.collect::<Vec<_>>().join(" & ");
    let command = CommandLine::new(&format!("cargo nextest run --workspace --profile {profile}"));
    if filter.is_empty() { command } else { command.arg("-E").arg(&filter) }
}

/// The same tests with nodes on the one-thread runtime.
pub fn on_one_thread(command: CommandLine) -> CommandLine {
    command.env("MACRO_TEST_RUNTIME", "current")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_joined() {
        let mut session = Session::of_a_test();
        let line = |session: &Session, tests| test_command(session, tests, "ci").to_string();
        assert_eq!(line(&session, Tests::All), "cargo nextest run --workspace --profile ci");
        session.touched_tests = Some("rdeps(=a) | rdeps(=b)".to_owned());
        assert!(line(&session, Tests::All).ends_with(" -E (rdeps(=a) | rdeps(=b))"));
        let both = line(&session, Tests::Of(&["a", "c"]));
        assert!(both.ends_with(" -E (package(=a) | package(=c)) & (rdeps(=a) | rdeps(=b))"), "{both}");
    }
}
