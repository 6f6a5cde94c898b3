//! The rule on long functions: found by counting braces in code without comments and literals.

use crate::finding::Finding;
use crate::source::{code_only, is_word_at, line_of};
use crate::tidy::allowed::LongFunction;
use crate::tree::SourceFile;

const FUNCTION_LINES_MAX: usize = 90;

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
struct Function {
    name: String,
    line: usize,
    line_count: usize,
}

/// Functions past the limit that no allowance covers.
pub fn check(path: &str, text: &str, allowed: &[LongFunction]) -> Vec<Finding> {
    let is_allowed =
        |function: &Function| allowed.iter().any(|entry| entry.path == path && entry.name == function.name);
    let long = long_functions(text).into_iter().filter(|function| !is_allowed(function));
    long.map(|function| {
        let Function { name, line, line_count } = function;
        Finding::at(path, line, format!("fn {name}: {line_count} lines; the limit is {FUNCTION_LINES_MAX}"))
    })
    .collect()
}

/// Allowances whose function is gone or short again.
pub fn stale_allowances(files: &[SourceFile], allowed: &[LongFunction]) -> Vec<Finding> {
    let is_needed = |entry: &&LongFunction| {
        let text = files.iter().find(|file| file.path == entry.path).and_then(|file| file.text.as_deref());
        text.is_some_and(|text| long_functions(text).iter().any(|function| function.name == entry.name))
    };
    let stale = allowed.iter().filter(|entry| !is_needed(entry));
    stale
        .map(|entry| {
            let LongFunction { path, name, reason } = entry;
            Finding::whole(path, format!("fn {name} needs its allowance no more (it was: {reason})"))
        })
        .collect()
}

fn long_functions(text: &str) -> Vec<Function> {
    let mut functions = functions(&code_only(text));
    functions.retain(|function| function.line_count > FUNCTION_LINES_MAX);
    functions
}

fn functions(code: &str) -> Vec<Function> {
    let keywords = code.match_indices("fn ").map(|(start, _)| start).filter(|start| is_word_at(code, *start, "fn"));
    keywords.filter_map(|start| function_at(code, start)).collect()
}

/// The function whose keyword is at `start`; `None` for a declaration without a body.
fn function_at(code: &str, start: usize) -> Option<Function> {
    let after_keyword = code[start + 2..].trim_start();
    let name: String = after_keyword.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let open = body_start(code, start)?;
    let end = body_end(code, open)?;
    let line = line_of(code, start);
    Some(Function { name, line, line_count: line_of(code, end) - line + 1 })
}

/// The first brace outside parentheses and brackets, unless a semicolon comes first.
fn body_start(code: &str, start: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (offset, c) in code[start..].char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ';' if depth == 0 => return None,
            '{' if depth == 0 => return Some(start + offset),
            _ => {}
        }
    }
    None
}

fn body_end(code: &str, open: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (offset, c) in code[open..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(open + offset);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function_of(line_count: usize) -> String {
        format!("fn long() {{\n{}}}\n", "step();\n".repeat(line_count - 2))
    }

    #[test]
    fn functions_are_measured() {
        let code = "fn a() {}\ntrait T {\n fn b(x: [u8; 4]);\n fn c(\n  x: u8,\n ) -> u8 {\n  { x }\n }\n}\ntype F = fn(u8);\n";
        let measured: Vec<_> = functions(code).into_iter().map(|f| (f.name, f.line, f.line_count)).collect();
        assert_eq!(measured, [("a".to_owned(), 1, 1), ("c".to_owned(), 4, 5)]);
    }

    #[test]
    fn long_functions_are_found() {
        assert_eq!(check("a.rs", &function_of(FUNCTION_LINES_MAX + 1), &[]).len(), 1);
        assert_eq!(check("a.rs", &function_of(FUNCTION_LINES_MAX), &[]).len(), 0);
    }

    #[test]
    fn a_brace_in_a_literal_ends_nothing() {
        let text = function_of(FUNCTION_LINES_MAX + 1).replacen("step();", "step(\"}}\"); // }", 1);
        assert_eq!(check("a.rs", &text, &[]).len(), 1);
    }

    #[test]
    fn an_allowance_is_used_or_stale() {
        let allowed = [LongFunction { path: "a.rs", name: "long", reason: "one table" }];
        let file = |lines| {
            let text = function_of(lines);
            [SourceFile { path: "a.rs".into(), bytes: 0, text: Some(text) }]
        };
        assert_eq!(check("a.rs", &function_of(FUNCTION_LINES_MAX + 1), &allowed).len(), 0);
        assert_eq!(check("b.rs", &function_of(FUNCTION_LINES_MAX + 1), &allowed).len(), 1);
        assert_eq!(stale_allowances(&file(FUNCTION_LINES_MAX + 1), &allowed).len(), 0);
        assert_eq!(stale_allowances(&file(FUNCTION_LINES_MAX), &allowed).len(), 1);
    }
}
