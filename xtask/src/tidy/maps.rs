//! The rule on Mermaid maps: the small part of the flowchart grammar that our maps need, checked without Mermaid.
//!
//! `cargo xtask ci --only maps` asks the real parser; this finds the usual mistakes where no packages are installed.

use crate::finding::Finding;

/// Statements whose rest is not ours to judge.
const STYLING: [&str; 5] = ["%%", "classDef ", "class ", "style ", "linkStyle "];
const DIRECTIONS: [&str; 5] = ["LR", "RL", "TB", "TD", "BT"];
const BRACKETS: [(char, char); 3] = [('[', ']'), ('(', ')'), ('{', '}')];

/// Every line of a Mermaid block that is no statement of a flowchart.
pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut map: Option<Map> = None;
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        match &mut map {
            None if line == "```mermaid" => map = Some(Map::default()),
            None => {}
            Some(open) if line == "```" => {
                let complaint = open.complaint_at_end();
                findings.extend(complaint.map(|complaint| Finding::at(path, number, complaint)));
                map = None;
            }
            Some(open) => findings.extend(open.complaint(line).map(|complaint| Finding::at(path, number, complaint))),
        }
    }
    findings
}

/// What has been read of one map.
#[derive(Default)]
struct Map {
    has_begun: bool,
    open_subgraphs: usize,
}

impl Map {
    fn complaint(&mut self, line: &str) -> Option<String> {
        if line.is_empty() || STYLING.iter().any(|styling| line.starts_with(styling)) {
            return None;
        }
        if !self.has_begun {
            self.has_begun = true;
            let direction = line.strip_prefix("flowchart ").is_some_and(|word| DIRECTIONS.contains(&word));
            return (!direction).then(|| format!("mermaid: a map begins with `flowchart LR`, not `{line}`"));
        }
        let is_good = match line.split_once(' ') {
            Some(("subgraph", name)) => {
                self.open_subgraphs += 1;
                node(&without_strings(name)).is_some_and(str::is_empty)
            }
            Some(("direction", word)) => DIRECTIONS.contains(&word),
            None if line == "end" => match self.open_subgraphs.checked_sub(1) {
                Some(fewer) => {
                    self.open_subgraphs = fewer;
                    true
                }
                None => false,
            },
            _ => is_chain(&without_strings(line)),
        };
        (!is_good).then(|| format!("mermaid: `{line}` is no statement; ids are letters, digits and _"))
    }

    fn complaint_at_end(&self) -> Option<String> {
        match (self.has_begun, self.open_subgraphs) {
            (false, _) => Some("mermaid: an empty map".to_owned()),
            (true, 0) => None,
            (true, open) => Some(format!("mermaid: {open} subgraphs without an end")),
        }
    }
}

/// Labels in quotes may hold anything: one letter stands for each.
fn without_strings(line: &str) -> String {
    line.split('"').enumerate().map(|(index, piece)| if index % 2 == 0 { piece } else { "s" }).collect()
}

/// A node, or several with links between them.
fn is_chain(line: &str) -> bool {
    let Some(mut rest) = node(line) else { return false };
    while !rest.is_empty() {
        let Some(after) = link(rest).and_then(node) else { return false };
        rest = after;
    }
    true
}

/// What follows an id and the shape behind it.
fn node(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let rest = text.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    if rest.len() == text.len() || &text[..text.len() - rest.len()] == "end" {
        return None;
    }
    Some(shape(rest)?.trim_start())
}

/// What follows the brackets of a shape, which must close in order and stand once; all of it if there are none.
fn shape(text: &str) -> Option<&str> {
    let mut open = Vec::new();
    for (index, c) in text.char_indices() {
        if let Some((_, closing)) = BRACKETS.iter().find(|(opening, _)| *opening == c) {
            open.push(*closing);
        } else if BRACKETS.iter().any(|(_, closing)| *closing == c) {
            if open.pop() != Some(c) {
                return None;
            }
            if open.is_empty() {
                let rest = &text[index + 1..];
                return (!rest.starts_with(['[', '(', '{'])).then_some(rest);
            }
        } else if open.is_empty() {
            return Some(text);
        }
    }
    open.is_empty().then_some("")
}

/// What follows a link: `-->`, `---`, `-.->`, `==>`, with words as in `-- words -->` or `-->|words|`.
fn link(text: &str) -> Option<&str> {
    let heads = ["-->", "---", "-.->", "==>"];
    let rest = match heads.iter().find_map(|head| text.strip_prefix(head)) {
        Some(rest) => rest,
        None => [("-. ", ".->"), ("-- ", "-->"), ("== ", "==>")]
            .iter()
            .find_map(|(begin, end)| Some(text.strip_prefix(begin)?.split_once(end)?.1))?,
    };
    match rest.strip_prefix('|') {
        Some(words) => words.split_once('|').map(|(_, rest)| rest),
        None => Some(rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(map: &str) -> usize {
        check("a.md", &format!("# A\n\n```mermaid\n{map}```\n\n[words] in (prose)\n")).len()
    }

    #[test]
    fn a_valid_map_passes() {
        let map = "flowchart LR\n  %% words\n  subgraph a\n    b\n  end\n  subgraph c[\"A name\"]\n    direction TB\n  end\n\
                   q_0([\"q[0] (4)\"])\n  b -. needs .-> c\n  b --> q_0 --> d[[x]]\n  b -->|often| e{\"?\"}\n\
                   b -- words --> e\n  classDef x fill:#fff\n";
        assert_eq!(found(map), 0);
    }

    #[test]
    fn planted_mistakes_are_found() {
        for map in [
            "",
            "graph\n",
            "flowchart LR\n  q_b[0]([\"b (4)\"])\n",
            "flowchart LR\n  a --> q_b[0](x)\n",
            "flowchart LR\n  subgraph a\n    b\n",
            "flowchart LR\n  a\n  end\n",
            "flowchart LR\n  a -->\n",
            "flowchart LR\n  a b\n",
            "flowchart LR\n  a([\"x\")]\n",
            "flowchart LR\n  a --> end\n",
            "flowchart LR\n  a-b\n",
        ] {
            assert_eq!(found(map), 1, "{map}");
        }
    }
}
