//! Cells and rows that all tables of the screen are made of.

use ratatui::layout::Alignment;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Row};

use super::node::QueueRow;

/// Width of a bar, in cells of the terminal.
const BAR: usize = 8;
/// Columns a gauge takes: a space, the bar, and room for a fraction.
pub const GAUGE_WIDTH: u16 = BAR as u16 + 11;

/// The head of a table: a name, columns of numbers, and a last column.
pub fn head_row(first: &'static str, numbers: &[&'static str], last: &'static str) -> Row<'static> {
    let numbers = numbers.iter().map(|name| right((*name).to_owned()));
    Row::new([Cell::from(first)].into_iter().chain(numbers).chain([Cell::from(last)])).style(head_style())
}

/// The style of the head of a table.
pub fn head_style() -> Style {
    Style::new().fg(Color::Cyan)
}

/// A cell whose text ends at its right edge.
pub fn right(text: String) -> Cell<'static> {
    Cell::from(Line::from(text).alignment(Alignment::Right))
}

/// A bar that fills up, and the figures of it.
pub fn gauge(queue: &QueueRow) -> Line<'static> {
    let full = (queue.fill() * BAR as f64).ceil().clamp(0.0, BAR as f64) as usize;
    let color = match queue.fill() {
        fill if fill >= 0.9 => Color::Red,
        fill if fill >= 0.5 => Color::Yellow,
        _ => Color::Green,
    };
    Line::from(vec![
        Span::raw(" "),
        Span::styled("■".repeat(full), Style::new().fg(color)),
        Span::styled("·".repeat(BAR - full), Style::new().add_modifier(Modifier::DIM)),
        Span::raw(format!(" {}", queue.fraction())),
    ])
}
