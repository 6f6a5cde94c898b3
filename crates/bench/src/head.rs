//! The first page: ten rows a person wants, copied from the pages they were measured for, and nothing else of its own.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};

use crate::report;

const BEGIN: &str = "<!-- macronode-bench rows: begin -->";
const END: &str = "<!-- macronode-bench rows: end -->";

/// A row of the first page.
struct Chosen {
    /// Name of the page that the row was measured for.
    page: &'static str,
    /// Name of the row in that page's table of targets.
    measure: &'static str,
    /// Words for the measured thing that a newcomer understands.
    called: &'static str,
}

const fn chosen(page: &'static str, measure: &'static str, called: &'static str) -> Chosen {
    Chosen { page, measure, called }
}

/// The rows, in the order in which people ask.
const ROWS: [Chosen; 10] = [
    chosen(
        "mailbox",
        "durable send, Rust client, against JetStream synced, 64 in flight",
        "Durable sends, 64 tasks sharing the Rust client, beside NATS that syncs too",
    ),
    chosen(
        "mailbox",
        "durable send, Rust client, against JetStream default, shared connections, 64 in flight",
        "The same beside NATS at its fastest, which syncs every two minutes",
    ),
    chosen(
        "mailbox",
        "durable send, Rust client, against Redis synced, shared connections, 64 in flight",
        "The same beside Redis streams at their fastest that sync too",
    ),
    chosen("mailbox", "durable send, Rust client, against RabbitMQ quorum, 64 in flight", "The same beside RabbitMQ"),
    chosen("mailbox", "durable send, Rust client, against PostgreSQL, 64 in flight", "The same beside PostgreSQL"),
    chosen(
        "mailbox",
        "durable send, one request a message, against JetStream synced, 64 in flight",
        "Durable sends over plain HTTP, one request a message, 64 connections",
    ),
    chosen("mailbox", "durable send over HTTP, one client", "One client alone: answer after its sync"),
    chosen("sqs", "durable SendMessage, 64 connections", "SQS SendMessage, signed, durable, beside the native surface"),
    chosen("mailbox", "memory with 10000000 waiting", "Memory with ten million messages waiting"),
    chosen("mailbox", "restart with 10000000 waiting, killed", "Ready again with them after kill -9"),
];

/// Writes a page of the folder, and the first page anew.
pub fn write_page(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let path = page_in(folder, name);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    let first = first_page(folder);
    let kept = std::fs::read_to_string(&first).with_context(|| format!("cannot read {}", first.display()))?;
    std::fs::write(&first, with_rows(&kept, &rows(folder)?)?)?;
    println!("wrote {} and {}", path.display(), first.display());
    Ok(())
}

/// docs/benchmarks.md beside docs/benchmarks/.
fn first_page(folder: &Path) -> PathBuf {
    folder.with_extension("md")
}

fn page_in(folder: &Path, name: &str) -> PathBuf {
    folder.join(name).with_extension("md")
}

/// The chosen rows as a table, each figure as its own page has it.
fn rows(folder: &Path) -> anyhow::Result<String> {
    let mut lines =
        vec![["what", "macronode", "beside", "ratio (min to max)", "target", "met"].map(str::to_owned).to_vec()];
    for Chosen { page, measure, called } in &ROWS {
        let path = page_in(folder, page);
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut cells = row(&text, measure).with_context(|| format!("{}: no row `{measure}`", path.display()))?;
        cells[0] = format!("[{called}](benchmarks/{page}.md)");
        lines.push(cells);
    }
    Ok(report::markdown_lines(&lines))
}

/// The cells of the row with this name.
fn row(page: &str, measure: &str) -> anyhow::Result<Vec<String>> {
    let line =
        page.lines().find(|line| line.strip_prefix("| ").is_some_and(|rest| rest.starts_with(&format!("{measure} |"))));
    let line = line.context("not measured")?.trim_matches(['|', ' ']);
    Ok(line.split(" | ").map(str::to_owned).collect())
}

/// Puts the rows between their markers.
fn with_rows(page: &str, rows: &str) -> anyhow::Result<String> {
    let (Some(begin), Some(end)) = (page.find(BEGIN), page.find(END)) else { bail!("the first page lacks a marker") };
    ensure!(begin < end, "the markers of the first page are in the wrong order");
    Ok(format!("{}{BEGIN}\n{rows}{}", &page[..begin], &page[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_page_has_the_figures_of_the_others() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks");
        let kept = std::fs::read_to_string(first_page(&folder)).expect("the first page");
        let rows = rows(&folder).expect("every row was measured");
        assert_eq!(with_rows(&kept, &rows).expect("its markers"), kept, "put these rows there:\n{rows}");
    }

    #[test]
    fn a_row_is_found_by_its_whole_name() {
        let page = "| send, more | 1/s | - |\n| send | 2/s | - |\n";
        assert_eq!(row(page, "send").expect("there"), ["send", "2/s", "-"]);
        assert!(row(page, "sen").is_err());
    }

    #[test]
    fn rows_stand_between_their_markers_and_nothing_else_changes() {
        let page = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        assert_eq!(with_rows(&page, "new\n").expect("both"), format!("before\n{BEGIN}\nnew\n{END}\nafter\n"));
        for page in [BEGIN.to_owned(), END.to_owned(), format!("{END}\n{BEGIN}")] {
            assert!(with_rows(&page, "new\n").is_err(), "{page}");
        }
    }
}
