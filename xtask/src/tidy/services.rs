//! The rule on names of services: what is shared by all of them knows none of them.
//!
//! The names are those of the list in `services.rs` of the binary, so a new service is guarded from its first line.

use crate::finding::Finding;
use crate::source::code_only;
use crate::tree::SourceFile;

/// Where the list of services stands.
const LIST_FILE: &str = "crates/macronode/src/services.rs";
const LIST: &str = "static SERVICES:";

/// Surfaces that a service has beside its own name.
const SURFACES: [&str; 1] = ["sqs"];

/// Services whose names are everyday words of code (`for (index, item) in …`): only as a package or at the
/// beginning of a string do they mean the service.
const EVERYDAY_WORDS: [&str; 4] = ["index", "feed", "graph", "search"];

/// Crates that every service stands on or is reached through.
const SHARED_CRATES: [&str; 7] = ["types", "cells", "policy", "kernel", "auth", "log", "admin"];

/// Every mention of a service where none may be; nothing while the list is not there.
pub fn check(files: &[SourceFile]) -> Vec<Finding> {
    let Some(list) = files.iter().find(|file| file.path == LIST_FILE) else { return Vec::new() };
    let services = names(list.text.as_deref().unwrap_or_default());
    if services.is_empty() {
        return vec![Finding::whole(LIST_FILE, format!("no service found after `{LIST}`"))];
    }
    let names: Vec<&str> = services.iter().map(String::as_str).chain(SURFACES).collect();
    files.iter().flat_map(|file| mentions(file, &names)).collect()
}

/// The module before `::` of each entry of the list.
fn names(text: &str) -> Vec<String> {
    let code = code_only(text);
    let Some(list) = code.split_once(LIST).and_then(|(_, rest)| rest.split_once('=')) else { return Vec::new() };
    let entries = list.1.split(';').next().unwrap_or_default();
    let module = |entry: &str| Some(entry.trim().rsplit_once("::")?.0.rsplit("::").next()?.to_owned());
    entries
        .trim_matches(['&', '[', ']', ' ', '\n'])
        .split(',')
        .filter_map(|e| module(e.trim_start_matches('&')))
        .collect()
}

fn mentions(file: &SourceFile, names: &[&str]) -> Vec<Finding> {
    let Some(text) = file.text.as_deref().filter(|_| is_shared(&file.path, names)) else { return Vec::new() };
    let mut findings = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        if declares_a_module(&file.path, line) {
            continue;
        }
        for name in names.iter().filter(|name| is_named(line, name)) {
            let message = format!("names the service or surface {name}: what is shared knows none of them");
            findings.push(Finding::at(&file.path, number, message));
        }
    }
    findings
}

/// Whether the rule holds for a file.
fn is_shared(path: &str, names: &[&str]) -> bool {
    let Some((folder, rest)) = path.strip_prefix("crates/").and_then(|rest| rest.split_once('/')) else { return false };
    match folder {
        // Limits prove each other across services at compile time, so they stand together.
        "types" => rest != "src/limits.rs" && !rest.starts_with("src/limits/"),
        "api" => rest.strip_prefix("src/").is_some_and(|file| !file.contains('/')) && !is_surface(rest, names),
        "macronode" => rest.strip_prefix("src/").is_some_and(|file| !belongs_to_a_service(file)),
        _ => SHARED_CRATES.contains(&folder),
    }
}

/// `src/mailbox.rs` is the door to the folder `src/mailbox/`.
fn is_surface(rest: &str, names: &[&str]) -> bool {
    names.iter().any(|name| rest == format!("src/{name}.rs"))
}

/// The list, and the room of each service: its file with its commands and panes beneath.
fn belongs_to_a_service(file: &str) -> bool {
    file == "services.rs" || file.starts_with("services/")
}

/// The plane has to say that a surface exists; what it may not do is know what is in it.
fn declares_a_module(path: &str, line: &str) -> bool {
    let code = line.trim_start().trim_start_matches("pub(crate) ").trim_start_matches("pub ");
    path == "crates/api/src/lib.rs" && (code.starts_with("mod ") || line.starts_with("pub use "))
}

/// Whether a line has the name as a word of its own or as a word of an identifier: `svc_mailbox`, `MailboxOptions`.
fn is_named(line: &str, name: &str) -> bool {
    if EVERYDAY_WORDS.contains(&name) {
        let line = line.to_lowercase();
        return [format!("svc_{name}"), format!("svc-{name}")].iter().any(|package| line.contains(package))
            || begins_a_string(&line, name);
    }
    words(line).iter().any(|word| word.eq_ignore_ascii_case(name))
}

/// `"index"`, `"index:resolve"`, `"index.max"`, `"index_ingest"`, but not `"indexes"`.
fn begins_a_string(line: &str, name: &str) -> bool {
    let quoted = format!("\"{name}");
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == ' ');
    line.match_indices(&quoted).any(|(start, _)| ends(&line[start + quoted.len()..]))
}

/// The words of a line, those inside identifiers too: cut at what is no letter and before a capital after a small one.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for run in line.split(|c: char| !c.is_ascii_alphabetic()) {
        let is_cut = |pair: &[u8]| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase();
        let mut start = 0;
        for (_, end) in run.as_bytes().windows(2).zip(1..).filter(|(pair, _)| is_cut(pair)) {
            words.push(&run[start..end]);
            start = end;
        }
        words.push(&run[start..]);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICES: &str = "/// All.\npub static SERVICES: &[&dyn Service] = &[\n    &mailbox::Mailbox,\n    \
                            &super::index::Index, // one line\n];\n";

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.into(), bytes: text.len() as u64, text: Some(text.into()) }
    }

    fn found(path: &str, text: &str) -> usize {
        check(&[file(LIST_FILE, SERVICES), file(path, text)]).len()
    }

    #[test]
    fn the_names_are_those_of_the_list() {
        assert_eq!(names(SERVICES), ["mailbox", "index"]);
        assert_eq!(names("pub static SERVICES: &[&dyn Service] = &[&mailbox::Mailbox];"), ["mailbox"]);
        assert_eq!(check(&[file("crates/kernel/src/a.rs", "mailbox")]), [], "no list, no rule");
        assert_eq!(check(&[file(LIST_FILE, "nothing")]).len(), 1, "a list that cannot be read");
    }

    #[test]
    fn a_planted_name_is_found_in_code_comments_and_strings() {
        for text in [
            "use svc_mailbox::X;",
            "// the mailbox waits",
            "\"mailbox\"",
            "struct MailboxGate;",
            "SQS",
            "fn mailbox_ops() {}",
            "svc_index",
            "\"index:resolve\"",
        ] {
            assert_eq!(found("crates/kernel/src/a.rs", text), 1, "{text}");
        }
        for text in ["mailboxes", "for (index, item) in", "\"indexes\"", "\"index of a list\""] {
            assert_eq!(found("crates/kernel/src/a.rs", text), 0, "{text}");
        }
    }

    #[test]
    fn the_rule_holds_where_things_are_shared() {
        for (path, expected) in [
            ("crates/types/src/values.rs", 1),
            ("crates/types/src/limits.rs", 0),
            ("crates/types/src/limits/queues.rs", 0),
            ("crates/auth/tests/a.rs", 1),
            ("crates/admin/src/page.html", 1),
            ("crates/api/src/serve.rs", 1),
            ("crates/api/src/mailbox.rs", 0),
            ("crates/api/src/sqs/json.rs", 0),
            ("crates/macronode/src/run.rs", 1),
            ("crates/macronode/src/services/mailbox.rs", 0),
            ("crates/macronode/src/services/mailbox/commands/send.rs", 0),
            ("crates/macronode/src/commands/mailbox/send.rs", 1),
            ("crates/macronode/src/commands/token.rs", 1),
            ("crates/macronode/tests/it/mailbox.rs", 0),
            ("crates/mailbox/src/lib.rs", 0),
            ("README.md", 0),
        ] {
            assert_eq!(found(path, "mailbox"), expected, "{path}");
        }
    }

    #[test]
    fn a_module_may_be_declared_and_no_more() {
        assert_eq!(found("crates/api/src/lib.rs", "pub mod mailbox;\npub use mailbox::A;"), 0);
        assert_eq!(found("crates/api/src/lib.rs", "let a = mailbox::A;"), 1);
        assert_eq!(found("crates/macronode/src/commands.rs", "pub(crate) mod sqs;"), 1);
        assert_eq!(found("crates/macronode/src/run.rs", "mod sqs;"), 1);
    }
}
