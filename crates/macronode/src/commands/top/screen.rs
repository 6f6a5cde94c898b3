//! Draws a view on the terminal.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table};

use super::figures::{age, count, rate};
use super::plain::{fill, log_line, outward, standing};
use super::view::{QueueRow, Sort, TopicRow, View};
use crate::commands::mailbox::types::shortened;

/// From this width on, shards and queues stand side by side.
const WIDE: u16 = 110;
/// Queues below each other on a narrow terminal.
const QUEUES_NARROW: u16 = 4;
/// Lines for queues beside the shards on a wide one.
const QUEUES_WIDE: u16 = 7;
/// Columns of the shards.
const SHARDS_WIDTH: u16 = 64;
/// Cells of a bar.
const BAR: usize = 8;
const NAME_WIDTH_MAX: u16 = 40;
const NAME_WIDTH_MIN: u16 = 12;
/// The columns of the topics after their name, in the order of [`Sort::ALL`].
const COLUMNS: [&str; 8] = ["ready", "leased", "delayed", "in/s", "out/s", "ack/s", "dead", "oldest"];
const KEYS: &str = " q quit  s sort  p pause  up/down scroll  ? help";
const HELP: &str = "\x20q, Esc, Ctrl-C   leave
 s                sort the topics by the next column
 p                pause; the numbers stand still
 up, down         scroll the topics
 PgUp, PgDn       scroll a page
 Home             back to the top
 ?                this help

 in/s     messages taken in a second
 out/s    messages delivered a second; while the breaker is
          open: held, and probe when it tries with one
 ack/s    messages acknowledged a second
 dead     messages that became dead letters
 oldest   age of the oldest message
 waiters  receivers waiting for a message
 queue    jobs waiting for the shard";

/// What the person at the terminal has chosen.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    /// The order of the topics.
    pub sort: Sort,
    /// Topics scrolled past.
    pub offset: usize,
    /// The numbers stand still.
    pub is_paused: bool,
    /// The help is shown.
    pub is_help: bool,
    /// Topics that fitted at the last draw.
    pub page: usize,
}

/// Draws everything. `trouble` is why the numbers are not fresh.
pub fn draw(frame: &mut Frame<'_>, view: &View, trouble: Option<&str>, chosen: &mut Chosen) {
    let area = frame.area();
    let shard_rows = u16::try_from(view.shards.len()).unwrap_or(u16::MAX).saturating_add(1);
    let is_wide = area.width >= WIDE;
    // Each part ends with an empty line.
    let queue_rows = QUEUES_NARROW.min(area.height / 5) + 2;
    let (first_rows, second_rows) =
        if is_wide { (shard_rows.max(QUEUES_WIDE) + 1, 0) } else { (shard_rows + 1, queue_rows) };
    let parts = Layout::vertical([
        Constraint::Length(3),
        Constraint::Length(first_rows),
        Constraint::Length(second_rows),
        Constraint::Min(3),
        Constraint::Length(1),
    ]);
    let [head, shards, queues, topics, foot] = parts.areas(area);
    draw_head(frame, head, view, trouble);
    if is_wide {
        let [left, right] = Layout::horizontal([Constraint::Length(SHARDS_WIDTH), Constraint::Min(20)]).areas(shards);
        draw_shards(frame, left, view);
        draw_queues(frame, right, &view.queues);
    } else {
        draw_shards(frame, shards, view);
        draw_queues(frame, queues, &view.queues);
    }
    draw_topics(frame, topics, view, chosen);
    draw_foot(frame, foot, view, chosen);
    if chosen.is_help {
        draw_help(frame, area);
    }
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, view: &View, trouble: Option<&str>) {
    let color = match (trouble, view.state.as_str()) {
        (Some(_), _) => Color::Red,
        (None, "ready") => Color::Green,
        (None, "degraded") => Color::Yellow,
        _ => Color::Red,
    };
    let stands = trouble.map_or_else(|| standing(view), str::to_owned);
    let width = usize::from(area.width);
    let first = Line::from(vec![
        Span::styled(" macronode ", Style::new().add_modifier(Modifier::BOLD)),
        Span::raw(format!("{}  ", view.address)),
        Span::styled(shortened(&stands, width.saturating_sub(14 + view.address.len())), Style::new().fg(color)),
    ]);
    let safety = if view.durability.is_empty() { String::new() } else { format!("{}  ", view.durability) };
    let log = Style::new().fg(if view.log.as_ref().is_some_and(|log| log.failed.is_some()) {
        Color::Red
    } else {
        Color::Reset
    });
    let second = Line::styled(format!(" {safety}{}", log_line(view.log.as_ref())), log);
    frame.render_widget(Text::from(vec![first, second]), area);
}

fn draw_shards(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let rows = view.shards.iter().map(|shard| {
        let numbers = [shard.ready, shard.leased, shard.delayed, shard.waiters].map(|number| right(count(number)));
        let queue = Cell::from(shard.queue.as_ref().map(gauge).unwrap_or_default());
        Row::new([Cell::from(format!(" {}", shard.shard))].into_iter().chain(numbers).chain([queue]))
    });
    let widths = [7, 7, 7, 7, 7, 8 + BAR as u16 + 3].map(Constraint::Length);
    let head = head_row(" shard", &["ready", "leased", "delayed", "waiters"], " queue");
    frame.render_widget(Table::new(rows, widths).header(head), area);
}

fn draw_queues(frame: &mut Frame<'_>, area: Rect, queues: &[QueueRow]) {
    let name_width = area.width.saturating_sub(8 + BAR as u16 + 3 + 16).clamp(10, 28);
    let rows = queues.iter().take(usize::from(area.height.saturating_sub(2))).map(|queue| {
        let name = shortened(&queue.name, usize::from(name_width) - 1);
        let numbers = [queue.high_water as u64, queue.busy].map(|number| right(count(number)));
        Row::new([Cell::from(format!(" {name}"))].into_iter().chain(numbers).chain([Cell::from(gauge(queue))]))
    });
    let widths = [name_width, 6, 6, 8 + BAR as u16 + 3].map(Constraint::Length);
    frame.render_widget(Table::new(rows, widths).header(head_row(" queue", &["high", "busy"], " fill")), area);
}

fn draw_topics(frame: &mut Frame<'_>, area: Rect, view: &View, chosen: &mut Chosen) {
    chosen.page = usize::from(area.height.saturating_sub(1)).max(1);
    chosen.offset = chosen.offset.min(view.topics.len().saturating_sub(1));
    let mut topics = view.topics.clone();
    chosen.sort.apply(&mut topics);
    let longest = topics.iter().map(|topic| topic.name.len() + 2).max().unwrap_or(0);
    let cell = if area.width >= WIDE { 10 } else { 7 };
    // What has no room is left out whole, from the right.
    let columns = (area.width.saturating_sub(NAME_WIDTH_MIN) / (cell + 1)).clamp(1, COLUMNS.len() as u16);
    let room = area.width.saturating_sub(columns * (cell + 1)).clamp(NAME_WIDTH_MIN, NAME_WIDTH_MAX);
    let name_width = u16::try_from(longest).unwrap_or(u16::MAX).clamp(16.min(room), room);
    let rows = topics.iter().skip(chosen.offset).take(chosen.page);
    let rows = rows.map(|topic| topic_row(topic, name_width, usize::from(columns)));
    let widths = std::iter::once(name_width).chain(std::iter::repeat_n(cell, usize::from(columns)));
    let head = topics_head(chosen.sort, usize::from(columns));
    frame.render_widget(Table::new(rows, widths.map(Constraint::Length)).header(head), area);
}

fn topic_row(topic: &TopicRow, name_width: u16, columns: usize) -> Row<'static> {
    let dead = Style::new().fg(if topic.dead > 0 { Color::Yellow } else { Color::Reset });
    let held = Style::new().fg(if topic.held().is_some() { Color::Red } else { Color::Reset });
    let cells = [
        right(count(topic.ready)),
        right(count(topic.leased)),
        right(count(topic.delayed)),
        right(rate(topic.in_per_second)),
        right(outward(topic)).style(held),
        right(rate(topic.acked_per_second)),
        right(count(topic.dead)).style(dead),
        right(age(topic.oldest_age_ms)),
    ];
    let name = shortened(&topic.name, usize::from(name_width) - 1);
    Row::new([Cell::from(format!(" {name}"))].into_iter().chain(cells.into_iter().take(columns)))
}

/// The names of the columns, with a mark at the one that sorts.
fn topics_head(sort: Sort, columns: usize) -> Row<'static> {
    let chosen = Sort::ALL.iter().position(|known| *known == sort).unwrap_or(0);
    let marked = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
    let style = |index: usize| if index == chosen { marked } else { Style::new() };
    let names =
        COLUMNS.iter().take(columns).enumerate().map(|(index, name)| right((*name).to_owned()).style(style(index)));
    let topic = Cell::from(" topic").style(style(COLUMNS.len()));
    Row::new([topic].into_iter().chain(names)).style(head_style())
}

fn draw_foot(frame: &mut Frame<'_>, area: Rect, view: &View, chosen: &Chosen) {
    let shown = view.topics.len().saturating_sub(chosen.offset).min(chosen.page);
    let (first, all) = (chosen.offset + usize::from(shown > 0), view.topics_total.max(view.topics.len() as u64));
    let place = format!("topics {first}-{} of {all} ", chosen.offset + shown);
    let pause = if chosen.is_paused { "  PAUSED" } else { "" };
    let keys = format!("{KEYS}{pause}");
    let style = Style::new().add_modifier(Modifier::REVERSED);
    frame.render_widget(Paragraph::new(keys.clone()).style(style), area);
    if usize::from(area.width) > keys.len() + place.len() {
        frame.render_widget(Paragraph::new(place).style(style).alignment(Alignment::Right), right_part(area));
    }
}

/// The right half, so that what stands on the left is not overdrawn.
fn right_part(area: Rect) -> Rect {
    let width = 30.min(area.width);
    Rect { x: area.x + area.width - width, width, ..area }
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let lines = u16::try_from(HELP.lines().count()).unwrap_or(u16::MAX);
    let (width, height) = (60.min(area.width), (lines + 2).min(area.height));
    let (x, y) = (area.x + (area.width - width) / 2, area.y + (area.height - height) / 2);
    let place = Rect { x, y, width, height };
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(HELP).block(Block::bordered().title(" help ")), place);
}

fn head_row(first: &'static str, numbers: &[&'static str], last: &'static str) -> Row<'static> {
    let numbers = numbers.iter().map(|name| right((*name).to_owned()));
    Row::new([Cell::from(first)].into_iter().chain(numbers).chain([Cell::from(last)])).style(head_style())
}

fn head_style() -> Style {
    Style::new().fg(Color::Cyan)
}

fn right(text: String) -> Cell<'static> {
    Cell::from(Line::from(text).alignment(Alignment::Right))
}

/// A bar that fills up, and the figures of it.
fn gauge(queue: &QueueRow) -> Line<'static> {
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
        Span::raw(format!(" {}", fill(Some(queue)))),
    ])
}

#[cfg(test)]
mod tests;
