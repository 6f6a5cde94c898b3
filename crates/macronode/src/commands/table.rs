//! Rows of cells as lines of text.

/// The rows with their columns lined up and indented; the last column is as long as it likes.
pub fn table(indent: usize, rows: &[Vec<String>]) -> String {
    // Once for all rows: there may be a hundred thousand.
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        widths.resize(widths.len().max(row.len()), 0);
        widths.iter_mut().zip(row).for_each(|(width, cell)| *width = cell.chars().count().max(*width));
    }
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        format!("{}{}\n", " ".repeat(indent), line.trim_end())
    };
    rows.iter().map(line).collect()
}

/// One row of a table, from its cells.
pub fn row<const COLUMNS: usize>(cells: [&str; COLUMNS]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

/// The first characters, with a mark if there are more.
pub fn shortened(text: &str, width_max: usize) -> String {
    match text.char_indices().nth(width_max) {
        None => text.to_owned(),
        Some(_) => text.chars().take(width_max.saturating_sub(1)).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_have_no_tail() {
        let rows = [row(["service", "state"]), row(["a", "ready"]), row(["bb", ""])];
        assert_eq!(table(1, &rows), " service  state\n a        ready\n bb\n");
    }

    /// Measuring all rows for each row would take minutes here.
    #[test]
    fn a_table_of_all_topics_of_a_node_is_written_at_once() {
        let rows: Vec<_> = (0..100_000).map(|number| row([&format!("topic {number}"), "fair", "5s"])).collect();
        let text = table(0, &rows);
        assert!(text.starts_with("topic 0      fair  5s\n") && text.ends_with("topic 99999  fair  5s\n"));
        assert_eq!(text.lines().count(), rows.len());
    }
}
