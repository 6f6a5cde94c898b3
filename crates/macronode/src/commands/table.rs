//! Rows of cells as lines of text.

/// The rows with their columns lined up and indented; the last column is as long as it likes.
pub fn table(indent: usize, rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let line = |row: &Vec<String>| {
        let cells = row.iter().enumerate().map(|(column, cell)| format!("{cell:<0$}", width(column).unwrap_or(0)));
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
}
