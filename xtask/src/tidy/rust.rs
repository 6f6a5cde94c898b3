//! Rules for Rust files: columns, lines, tabs, names, the opening sentence, forbidden macros, ignored tests.

use crate::finding::Finding;
use crate::source::{code_only, is_word_at, line_of};

const COLUMNS_MAX: usize = 120;
const LINES_MAX: usize = 600;

/// Code around the literals of an over-long line; more than this and the line could have been broken.
const COLUMNS_AROUND_LITERALS_MAX: usize = 40;

const FORBIDDEN_MACROS: [(&str, &str); 3] = [
    ("todo!", "unfinished code does not get in"),
    ("unimplemented!", "unfinished code does not get in"),
    ("dbg!", "use tracing"),
];

/// Every rule for one Rust file.
pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let code = code_only(text);
    let mut findings = name(path);
    findings.extend(length(path, text));
    findings.extend(opening_sentence(path, text));
    findings.extend(columns(path, text, &code));
    findings.extend(forbidden_macros(path, &code));
    findings.extend(ignored_tests(path, &code));
    findings
}

fn name(path: &str) -> Vec<Finding> {
    if path.rsplit('/').next() != Some("mod.rs") {
        return Vec::new();
    }
    vec![Finding::whole(path, "no mod.rs: put foo.rs beside foo/")]
}

fn length(path: &str, text: &str) -> Vec<Finding> {
    let count = text.lines().count();
    if count <= LINES_MAX {
        return Vec::new();
    }
    vec![Finding::whole(path, format!("{count} lines; the limit is {LINES_MAX}: split it where its subject splits"))]
}

fn opening_sentence(path: &str, text: &str) -> Vec<Finding> {
    let opening: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect();
    let paragraph = opening.split(|line| line.is_empty()).next().unwrap_or_default().join(" ");
    if paragraph.split_whitespace().count() >= 2 && paragraph.ends_with(['.', ':', '?', '!']) {
        return Vec::new();
    }
    vec![Finding::at(path, 1, "the file must start with a `//!` sentence that says what the module owns")]
}

fn columns(path: &str, text: &str, code: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for ((line, code_line), number) in text.lines().zip(code.lines()).zip(1..) {
        if line.contains('\t') {
            findings.push(Finding::at(path, number, "tab: use spaces, or \\t inside a literal"));
        }
        let width = line.chars().count();
        if width > COLUMNS_MAX && !may_be_long(line, code_line) {
            findings.push(Finding::at(path, number, format!("{width} columns; the limit is {COLUMNS_MAX}")));
        }
    }
    findings
}

/// URLs cannot be broken, and rows of a string table read better unbroken.
fn may_be_long(line: &str, code_line: &str) -> bool {
    let is_comment = code_line.trim().is_empty() && line.trim_start().starts_with("//");
    let code_columns: usize = code_line.split_whitespace().map(|word| word.chars().count()).sum();
    line.contains("://") || (!is_comment && code_columns <= COLUMNS_AROUND_LITERALS_MAX)
}

fn forbidden_macros(path: &str, code: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, instead) in FORBIDDEN_MACROS {
        for (start, _) in code.match_indices(name) {
            if is_word_at(code, start, name.trim_end_matches('!')) {
                findings.push(Finding::at(path, line_of(code, start), format!("{name}: {instead}")));
            }
        }
    }
    findings
}

fn ignored_tests(path: &str, code: &str) -> Vec<Finding> {
    let is_bare = |start: &usize| code[*start..].trim_start_matches("#[ignore").trim_start().starts_with(']');
    let bare = code.match_indices("#[ignore").map(|(start, _)| start).filter(is_bare);
    bare.map(|start| Finding::at(path, line_of(code, start), "say why: #[ignore = \"reason\"]")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mod_rs_is_found() {
        assert_eq!(name("crates/a/src/b/mod.rs").len(), 1);
        assert_eq!(name("crates/a/src/b.rs").len(), 0);
        assert_eq!(name("crates/a/src/mymod.rs").len(), 0);
    }

    #[test]
    fn long_files_are_found() {
        assert_eq!(length("a.rs", &"\n".repeat(LINES_MAX + 1)).len(), 1);
        assert_eq!(length("a.rs", &"\n".repeat(LINES_MAX)).len(), 0);
    }

    #[test]
    fn a_module_starts_with_a_sentence() {
        for (text, expected) in [
            ("//! What this owns.\n\nuse a;\n", 0),
            ("//! What this owns, told\n//! over two lines.\n//!\n//! More\n", 0),
            ("//! Words without an end\n", 1),
            ("//! Word.\n", 1),
            ("use a;\n//! Too late, dear.\n", 1),
            ("// Not a doc comment.\n", 1),
            ("", 1),
        ] {
            assert_eq!(opening_sentence("a.rs", text).len(), expected, "{text}");
        }
    }

    #[test]
    fn long_lines_and_tabs_are_found() {
        let check = |line: &str| columns("a.rs", line, &code_only(line)).len();
        let long = "x".repeat(COLUMNS_MAX);
        assert_eq!(check(&long), 0);
        assert_eq!(check(&format!("{long}y")), 1);
        assert_eq!(check(&format!("// {long}")), 1, "a comment can be broken");
        assert_eq!(check(&format!("// https://example.org/{long}")), 0);
        assert_eq!(check(&format!("    (\"name\", \"{long}\", 3),")), 0, "row of a table");
        assert_eq!(check(&format!("    call_with_a_long_name(first_argument, second_argument, \"{long}\");")), 1);
        assert_eq!(check("\tlet a;"), 1);
        assert_eq!(check("let a = '\\t';"), 0);
    }

    #[test]
    fn forbidden_macros_are_found_in_code_only() {
        for (text, expected) in [
            ("fn f() { todo!() }", 1),
            ("fn f() { unimplemented!(\"x\") }", 1),
            ("let a = dbg!(b);", 1),
            ("// todo!() is forbidden", 0),
            ("let a = \"dbg!\";", 0),
            ("my_todo!()", 0),
        ] {
            assert_eq!(forbidden_macros("a.rs", &code_only(text)).len(), expected, "{text}");
        }
    }

    #[test]
    fn an_ignored_test_says_why() {
        assert_eq!(
            ignored_tests("a.rs", "#[test]\n#[ignore]\nfn f() {}"),
            [Finding::at("a.rs", 2, "say why: #[ignore = \"reason\"]")]
        );
        assert_eq!(ignored_tests("a.rs", "#[ignore = \"needs a disk\"]"), []);
        assert_eq!(ignored_tests("a.rs", &code_only("// #[ignore]")), []);
    }
}
