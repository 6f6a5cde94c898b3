//! Rules for Markdown files: exactly one title, and links that lead somewhere.

use crate::finding::Finding;

/// Every rule for one Markdown file; `exists` answers for a path from the root.
pub fn check(path: &str, text: &str, exists: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let prose = prose_lines(text);
    let mut findings = titles(path, &prose);
    findings.extend(links(path, &prose, exists));
    findings
}

/// The numbered lines outside fenced code, with inline code blanked.
fn prose_lines(text: &str) -> Vec<(usize, String)> {
    let mut fence: Option<&str> = None;
    let mut prose = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let trimmed = line.trim_start();
        let marker = ["```", "~~~"].into_iter().find(|marker| trimmed.starts_with(marker));
        match (fence, marker) {
            (None, Some(_)) => fence = marker,
            (Some(open), Some(marker)) if open == marker => fence = None,
            (Some(_), _) => {}
            (None, None) => prose.push((number, without_inline_code(line))),
        }
    }
    prose
}

fn without_inline_code(line: &str) -> String {
    let pieces: Vec<&str> = line.split('`').collect();
    let last = pieces.len() - 1;
    // An odd piece is inside backticks, unless its closing one is missing.
    let outside = |index: usize| index.is_multiple_of(2) || index == last;
    pieces.iter().enumerate().map(|(index, piece)| if outside(index) { piece } else { "code" }).collect()
}

fn titles(path: &str, prose: &[(usize, String)]) -> Vec<Finding> {
    let titles: Vec<usize> =
        prose.iter().filter(|(_, line)| line.starts_with("# ")).map(|(number, _)| *number).collect();
    match titles.as_slice() {
        [_] => Vec::new(),
        [] => vec![Finding::at(path, 1, "no `# ` title")],
        [_, more @ ..] => more.iter().map(|line| Finding::at(path, *line, "a second `# ` title")).collect(),
    }
}

fn links(path: &str, prose: &[(usize, String)], exists: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in prose {
        for target in targets(line) {
            let broken = match resolve(path, target) {
                Link::Elsewhere => false,
                Link::Outside => true,
                Link::Inside(file) => !exists(&file),
            };
            if broken {
                findings.push(Finding::at(path, *number, format!("link to {target}: no such file here")));
            }
        }
    }
    findings
}

/// What stands in `](…)` and after `[name]:`, without a title.
fn targets(line: &str) -> Vec<&str> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let definition =
        line.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("]:")).map(|(_, target)| target);
    let first_word = |target: &'_ str| target.split_whitespace().next().map(|word| word.trim_matches(['<', '>']).len());
    let trimmed = inline.chain(definition).map(|target| target.trim().trim_start_matches('<'));
    trimmed.filter_map(|target| first_word(target).map(|length| &target[..length])).collect()
}

enum Link {
    /// A URL, or a place on the same page.
    Elsewhere,
    /// A path that leaves the repository.
    Outside,
    /// A path from the root.
    Inside(String),
}

fn resolve(from: &str, target: &str) -> Link {
    let file = target.split(['#', '?']).next().unwrap_or_default();
    if file.is_empty() || target.contains("://") || target.starts_with("mailto:") {
        return Link::Elsewhere;
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    if file.starts_with('/') {
        parts.clear();
    }
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.pop().is_none() => return Link::Outside,
            ".." => {}
            name => parts.push(name),
        }
    }
    Link::Inside(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_title() {
        for (text, expected) in [
            ("# Title\n\n## Part\n", 0),
            ("## Part\n", 1),
            ("# One\n\n# Two\n", 1),
            ("# One\n\n```sh\n# a comment\n```\n", 0),
            ("# One\n\n~~~\n```\n# still code\n~~~\n", 0),
        ] {
            assert_eq!(titles("a.md", &prose_lines(text)).len(), expected, "{text}");
        }
    }

    #[test]
    fn links_lead_to_files() {
        let exists = |path: &str| ["README.md", "docs/a.md", "docs/b c.md", "docs"].contains(&path);
        for (text, expected) in [
            ("see [a](a.md), [top](../README.md#part) and [self](#here)", 0),
            ("see [gone](gone.md)", 1),
            ("see [one](gone.md) and [two](also-gone.md \"title\")", 2),
            ("see [web](https://example.org/gone.md) or [post](mailto:a@example.org)", 0),
            ("see [root](/README.md) and [folder](../docs/)", 0),
            ("see [outside](../../other/README.md)", 1),
            ("[name]: gone.md", 1),
            ("[name]: a.md \"title\"", 0),
            ("`[code](gone.md)` and ![image](gone.png)", 1),
            ("```\n[fenced](gone.md)\n```", 0),
        ] {
            assert_eq!(links("docs/x.md", &prose_lines(text), &exists).len(), expected, "{text}");
        }
    }
}
