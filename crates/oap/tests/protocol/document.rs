//! The document and the vectors cannot drift apart: its table of frames is made from the file.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use oap::{AppId, Flags, Frame, Step, StreamError, Streams, status};

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

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/oap-1.md")
}

fn document() -> String {
    std::fs::read_to_string(path()).expect("the document is there")
}

/// The rows of the table whose first column has this title, without its head.
fn rows_of<'a>(document: &'a str, title: &str) -> Vec<Vec<&'a str>> {
    let cells = |line: &'a str| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>();
    let lines = document.lines().skip_while(|line| !line.starts_with(&format!("| {title} |")));
    lines.take_while(|line| line.starts_with('|')).skip(2).map(cells).collect()
}

#[test]
fn the_document_shows_the_vectors() {
    let (path, document) = (path(), document());
    let (before, rest) = document.split_once(BEGIN).expect("the document has a place for the vectors");
    let (shown, after) = rest.split_once(END).expect("and the place has an end");
    let expected = table();
    if shown != expected {
        std::fs::write(&path, format!("{before}{BEGIN}{expected}{END}{after}")).expect("the document is repaired");
        panic!("docs/oap-1.md did not show the vectors; it does now: look at it and commit it");
    }
}

#[test]
fn flags_codes_and_applications_are_those_of_the_code() {
    let document = document();
    for row in rows_of(&document, "flag") {
        let bit = row[1].parse().ok().and_then(Flags::from_bits).expect("a known bit");
        assert_eq!(bit.to_string(), row[0]);
    }
    assert_eq!(rows_of(&document, "flag").len(), 8);
    let codes: Vec<u16> = rows_of(&document, "code").iter().filter_map(|row| row[0].parse().ok()).collect();
    assert_eq!(
        codes,
        [
            status::OK,
            status::ACCEPTED,
            status::BAD_REQUEST,
            status::UNAUTHENTICATED,
            status::FORBIDDEN,
            status::NOT_FOUND,
            status::TIMEOUT,
            status::CONFLICT,
            status::TOO_LARGE,
            status::UNPROCESSABLE,
            status::BUSY,
            status::INTERNAL,
            status::UNAVAILABLE,
            status::DEADLINE,
            status::VERSION_UNKNOWN,
        ]
    );
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let apps = rows_of(&document, "`app_proto_id`");
    let named = apps.iter().filter_map(|row| Some((AppId(number(row[0])?).name()?, row[1])));
    assert_eq!(named.filter(|(known, shown)| known == shown).count(), 5);
}

/// Number 1 in the state that a column of the table is about.
fn in_state(column: usize) -> Streams {
    let mut streams = Streams::new(8);
    let first = match column {
        1 => return streams,
        3 => Frame::request(AppId::ECHO, 1, ""),
        _ => Frame::open(AppId::ECHO, 1, ""),
    };
    streams.accept(&first).expect("a new number");
    if column == 4 {
        streams.finished(1);
    }
    streams
}

#[test]
fn every_cell_of_the_table_of_streams_is_what_happens() {
    let document = document();
    let table = rows_of(&document, "frame");
    assert_eq!(table.len(), 5);
    for row in table {
        let named =
            |bit: &u16| row[0].split(", ").any(|name| Flags::from_bits(*bit).is_some_and(|f| f.to_string() == name));
        let bits = (0..8).map(|bit| 1 << bit).filter(named).sum();
        let flags = Flags::from_bits(bits).expect("known flags");
        for (column, cell) in row.iter().enumerate().skip(1) {
            let mut streams = in_state(column);
            let found = streams.accept(&Frame { flags, ..Frame::event(AppId::ECHO, 1, "") });
            let (step, rest) = cell.split_once("; ").unwrap_or((cell, ""));
            let expected = match step {
                "a whole request" => Ok(Step::Whole),
                "opens a stream" => Ok(Step::Opens),
                "continues the stream" => Ok(Step::Continues),
                "closes the stream" => Ok(Step::Closes),
                "dropped" => Ok(Step::Ignored),
                "400, close" => Err((400, true)),
                other => panic!("{other}"),
            };
            let told = found.map_err(|error: StreamError| (error.code(), error.closes()));
            assert_eq!(told, expected, "{} in column {column}", row[0]);
            // After an error there is no next frame.
            let is_free = found.is_ok() && streams.accept(&Frame::request(AppId::ECHO, 1, "")) == Ok(Step::Whole);
            assert_eq!(is_free, rest == "the number is free", "{} in column {column}", row[0]);
        }
    }
}
