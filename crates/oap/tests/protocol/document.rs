//! The document and the vectors cannot drift apart: its table of frames is made from the file.

use std::fmt::Write as _;
use std::path::Path;

use crate::vectors::{FRAMES, rows, text};

const BEGIN: &str = "<!-- vectors: begin -->\n";
const END: &str = "<!-- vectors: end -->\n";

/// The header's fields, set apart for reading, and the rest.
fn spaced(hex: &str) -> String {
    let mut rest = hex;
    let mut parts = Vec::new();
    for digits in [8, 4, 4, 4, 4, 32, 4, 16] {
        let (field, later) = rest.split_at(digits.min(rest.len()));
        parts.push(field);
        rest = later;
    }
    parts.push(rest);
    parts.retain(|part| !part.is_empty());
    parts.join(" ")
}

fn table() -> String {
    let mut out = String::new();
    for row in rows(FRAMES) {
        let verdict = match (row.get("refused"), row.get("frame")) {
            (Some(_), _) => format!("refused: `{}`, {}", text(&row, "refused"), row["code"]),
            (None, Some(frame)) => format!("`{}`", text(frame, "flags")),
            (None, None) => "incomplete".to_owned(),
        };
        writeln!(out, "`{}`: {verdict}. {}", text(&row, "name"), text(&row, "why")).expect("a string takes text");
        writeln!(out, "```text\n{}\n```", spaced(text(&row, "hex"))).expect("a string takes text");
    }
    out
}

#[test]
fn the_document_shows_the_vectors() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/oap-1.md");
    let document = std::fs::read_to_string(&path).expect("the document is there");
    let (before, rest) = document.split_once(BEGIN).expect("the document has a place for the vectors");
    let (shown, after) = rest.split_once(END).expect("and the place has an end");
    let expected = table();
    if shown != expected {
        std::fs::write(&path, format!("{before}{BEGIN}{expected}{END}{after}")).expect("the document is repaired");
        panic!("docs/oap-1.md did not show the vectors; it does now: look at it and commit it");
    }
}
