//! Draws the mailbox: its log, its shards, its topics.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row, Table};

use super::plain::{log_line, outward};
use super::view::{MailboxView, Sort, TopicRow};
use crate::commands::table::shortened;
use crate::commands::top::{GAUGE_WIDTH, PaneState, age, count, gauge, head_row, head_style, rate, right};

/// From this width on, the columns of the topics are wide.
const WIDE: u16 = 110;
const NAME_WIDTH_MAX: u16 = 40;
const NAME_WIDTH_MIN: u16 = 12;
/// The columns of the topics after their name, in the order of [`Sort::ALL`].
const COLUMNS: [&str; 8] = ["ready", "leased", "delayed", "in/s", "out/s", "ack/s", "dead", "oldest"];

/// Lines that show every shard and every topic.
pub fn height_wanted(view: &MailboxView) -> u16 {
    let topics = u16::try_from(view.topics.len()).unwrap_or(u16::MAX);
    topics.saturating_add(1).saturating_add(shard_lines(view)).saturating_add(2)
}

/// Draws all parts; the topics get what the others leave.
pub fn draw(frame: &mut Frame<'_>, area: Rect, view: &MailboxView, state: &mut PaneState) {
    // Each part ends with an empty line. However many shards there are, some topics are seen.
    let parts = [Constraint::Length(2), Constraint::Length(shard_lines(view)), Constraint::Min(3)];
    let [log, shards, topics] = Layout::vertical(parts).areas(area);
    draw_log(frame, log, view);
    draw_shards(frame, shards, view);
    draw_topics(frame, topics, view, state);
}

/// Lines of the shards with their head and the empty line that ends them.
fn shard_lines(view: &MailboxView) -> u16 {
    u16::try_from(view.shards.len()).unwrap_or(u16::MAX).saturating_add(2)
}

fn draw_log(frame: &mut Frame<'_>, area: Rect, view: &MailboxView) {
    let is_failed = view.log.as_ref().is_some_and(|log| log.failed.is_some());
    let style = Style::new().fg(if is_failed { Color::Red } else { Color::Reset });
    let line = format!(" {}  {}", view.durability, log_line(view.log.as_ref()));
    frame.render_widget(Line::styled(line, style), area);
}

fn draw_shards(frame: &mut Frame<'_>, area: Rect, view: &MailboxView) {
    let rows = view.shards.iter().map(|shard| {
        let numbers = [shard.ready, shard.leased, shard.delayed, shard.waiters].map(|number| right(count(number)));
        let queue = Cell::from(shard.queue.as_ref().map(gauge).unwrap_or_default());
        Row::new([Cell::from(format!(" {}", shard.shard))].into_iter().chain(numbers).chain([queue]))
    });
    let widths = [7, 7, 7, 7, 7, GAUGE_WIDTH].map(Constraint::Length);
    let head = head_row(" shard", &["ready", "leased", "delayed", "waiters"], " queue");
    frame.render_widget(Table::new(rows, widths).header(head), area);
}

fn draw_topics(frame: &mut Frame<'_>, area: Rect, view: &MailboxView, state: &mut PaneState) {
    state.fit(view.topics.len(), usize::from(area.height.saturating_sub(1)));
    let sort = Sort::at(state.sort);
    let mut topics = view.topics.clone();
    sort.apply(&mut topics);
    let longest = topics.iter().map(|topic| topic.name.len() + 2).max().unwrap_or(0);
    let cell = if area.width >= WIDE { 10 } else { 7 };
    // What has no room is left out whole, from the right.
    let columns = (area.width.saturating_sub(NAME_WIDTH_MIN) / (cell + 1)).clamp(1, COLUMNS.len() as u16);
    let room = area.width.saturating_sub(columns * (cell + 1)).clamp(NAME_WIDTH_MIN, NAME_WIDTH_MAX);
    let name_width = u16::try_from(longest).unwrap_or(u16::MAX).clamp(16.min(room), room);
    let rows = topics.iter().skip(state.offset).take(state.page);
    let rows = rows.map(|topic| topic_row(topic, name_width, usize::from(columns)));
    let widths = std::iter::once(name_width).chain(std::iter::repeat_n(cell, usize::from(columns)));
    let head = topics_head(sort, usize::from(columns));
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
