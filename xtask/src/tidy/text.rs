//! Rules for every text file: size, trailing spaces, leftovers, paths of somebody's own machine.

use crate::finding::Finding;
use crate::source::is_word_at;

const FILE_BYTES_MAX: u64 = 1_000_000;

/// Leftover markers; spelled in halves so that this file does not find itself.
const LEFTOVERS: [&str; 2] = [concat!("FIX", "ME"), concat!("XX", "X")];

/// Folders that exist on one machine only; spelled in halves for the same reason.
const PRIVATE_FOLDERS: [&str; 3] = [concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/wo", "rk/")];

/// A file that is too large for a repository of source text.
pub fn size(path: &str, bytes: u64) -> Vec<Finding> {
    if bytes <= FILE_BYTES_MAX {
        return Vec::new();
    }
    vec![Finding::whole(path, format!("{bytes} bytes; the limit is {FILE_BYTES_MAX}"))]
}

/// Every rule that holds line by line in any text.
pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let numbered = text.split('\n').zip(1..);
    numbered.flat_map(|(line, number)| messages(line).into_iter().map(move |m| Finding::at(path, number, m))).collect()
}

fn messages(line: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if line.ends_with([' ', '\t', '\r']) {
        messages.push("trailing space".to_owned());
    }
    for leftover in LEFTOVERS {
        if line.match_indices(leftover).any(|(start, _)| is_word_at(line, start, leftover)) {
            messages.push(format!("{leftover}: do it now or write it in the plan"));
        }
    }
    for folder in PRIVATE_FOLDERS {
        if line.match_indices(folder).any(|(start, _)| starts_a_path(line, start)) {
            messages.push(format!("{folder} exists on one machine only: say it relative to the repository"));
        }
    }
    messages
}

/// Whether a slash begins an absolute path, and does not just go on in a relative one or in a URL.
fn starts_a_path(line: &str, slash: usize) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || "._-/}~*$".contains(c);
    !line[..slash].chars().next_back().is_some_and(goes_on)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_files_are_found() {
        assert_eq!(size("a.bin", FILE_BYTES_MAX + 1).len(), 1);
        assert_eq!(size("a.bin", FILE_BYTES_MAX).len(), 0);
    }

    #[test]
    fn bad_lines_are_found_and_good_ones_are_not() {
        for (line, expected) in [
            ("let a = 1;".to_owned(), 0),
            ("let a = 1; ".to_owned(), 1),
            ("windows\r".to_owned(), 1),
            (format!("// {}: later", LEFTOVERS[0]), 1),
            (format!("// {} later", LEFTOVERS[1]), 1),
            (format!("mktemp run.{}{}", LEFTOVERS[1], LEFTOVERS[1]), 0),
            (format!("see {}me/notes", PRIVATE_FOLDERS[0]), 1),
            (format!("\"{}me\"", PRIVATE_FOLDERS[1]), 1),
            (format!("`{}main`", PRIVATE_FOLDERS[2]), 1),
            (format!("target{}main", PRIVATE_FOLDERS[2]), 0),
            (format!("https://example.org{}page", PRIVATE_FOLDERS[1]), 0),
        ] {
            assert_eq!(messages(&line).len(), expected, "{line}");
        }
    }

    #[test]
    fn the_line_number_is_told() {
        assert_eq!(check("a.md", "one\ntwo \nthree\n"), [Finding::at("a.md", 2, "trailing space")]);
    }
}
