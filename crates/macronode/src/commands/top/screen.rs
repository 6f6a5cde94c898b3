//! Draws a look on the terminal: the head, the panes, the queues, and what the keys do.

use std::collections::BTreeMap;

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table};

use super::figures::count;
use super::node::QueueRow;
use super::pane::{PaneState, PaneView};
use super::watch::{ShownPane, TopView};
use super::widgets::{GAUGE_WIDTH, gauge, head_row, right};
use crate::commands::table::shortened;

/// Columns of a pane beside the queues; a pane is at its best from here on.
const PANE_WIDTH_MIN: u16 = 80;
/// Columns of the queues beside a pane.
const QUEUES_WIDTH: u16 = 56;
/// Queues that are shown beneath the panes however much these want.
const QUEUES_MIN: u16 = 4;
const KEYS: &str = " q quit  p pause  ? help";
const HELP: &str = "\x20q, Esc, Ctrl-C   leave
 p                pause; the numbers stand still
 ?                this help";
const HELP_OF_SEVERAL: &str = "
 Tab, 1 to 9      the next pane, or the one of this number";

/// Choices of the person at the terminal.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    /// Index of the pane that takes the keys.
    focus: usize,
    /// By service, since a pane is made anew with each look.
    states: BTreeMap<&'static str, PaneState>,
    /// Whether the display is frozen.
    pub is_paused: bool,
    is_help: bool,
}

impl Chosen {
    /// Does what a key says; false if it says to leave.
    pub fn obey(&mut self, key: KeyEvent, view: &TopView) -> bool {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        let panes = view.panes.len();
        match key.code {
            KeyCode::Char('c' | 'd') if is_control => return false,
            KeyCode::Esc if self.is_help => self.is_help = false,
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('?' | 'h') => self.is_help = !self.is_help,
            KeyCode::Tab if panes > 1 => self.focus = (self.focus + 1) % panes,
            KeyCode::BackTab if panes > 1 => self.focus = (self.focus + panes - 1) % panes,
            KeyCode::Char(digit @ '1'..='9') if panes > 1 => {
                let index = digit as usize - '1' as usize;
                self.focus = if index < panes { index } else { self.focus };
            }
            code => {
                if let Some((service, pane)) = self.focused(view) {
                    pane.obey(code, self.states.entry(service).or_default());
                }
            }
        }
        true
    }

    /// The pane that takes the keys, unless it has nothing to show yet.
    fn focused<'a>(&self, view: &'a TopView) -> Option<(&'static str, &'a dyn PaneView)> {
        let pane = view.panes.get(self.focus)?;
        Some((pane.service, pane.view.as_deref()?))
    }
}

/// Draws the whole screen.
pub fn draw(frame: &mut Frame<'_>, view: &TopView, chosen: &mut Chosen) {
    chosen.focus = chosen.focus.min(view.panes.len().saturating_sub(1));
    let names = u16::from(view.panes.len() > 1);
    // The head ends with an empty line.
    let parts = [Constraint::Length(2 + names), Constraint::Fill(1), Constraint::Length(1)];
    let [head, mut body, foot] = Layout::vertical(parts).areas(frame.area());
    draw_head(frame, head, view);
    if names > 0 {
        draw_names(frame, head, view, chosen.focus);
    }
    if !view.panes.is_empty() {
        let is_wide = body.width >= PANE_WIDTH_MIN + QUEUES_WIDTH;
        let queues_wanted = if is_wide { 0 } else { QUEUES_MIN.min(frame.area().height / 5) + 1 };
        let shown = share(view, chosen.focus, body.height.saturating_sub(queues_wanted));
        let height = shown.iter().map(|(_, height)| height).sum();
        let (panes, queues) = match is_wide {
            true => beside(body),
            false => beneath(body, height),
        };
        draw_panes(frame, panes, view, &shown, chosen);
        body = queues;
    }
    draw_queues(frame, body, &view.node.queues);
    draw_foot(frame, foot, view, chosen);
    if chosen.is_help {
        draw_help(frame, frame.area(), view, chosen);
    }
}

fn beside(body: Rect) -> (Rect, Rect) {
    let [panes, queues] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(QUEUES_WIDTH)]).areas(body);
    (panes, queues)
}

fn beneath(body: Rect, height: u16) -> (Rect, Rect) {
    let [panes, queues] = Layout::vertical([Constraint::Length(height), Constraint::Fill(1)]).areas(body);
    (panes, queues)
}

/// The panes that are drawn, with their lines: all of them if they have room below each other, else only the one
/// that takes the keys, since a slice of each would show nothing of use.
fn share(view: &TopView, focus: usize, room: u16) -> Vec<(usize, u16)> {
    let all: Vec<(usize, u16)> = view.panes.iter().map(height_wanted).enumerate().collect();
    let sum = all.iter().fold(0_u16, |sum, (_, height)| sum.saturating_add(*height));
    match sum <= room {
        true => all,
        false => all.into_iter().skip(focus).take(1).map(|(index, height)| (index, height.min(room))).collect(),
    }
}

/// Lines of a pane with the empty one that ends it.
fn height_wanted(pane: &ShownPane) -> u16 {
    let view = pane.view.as_ref().map_or(0, |view| view.height_wanted());
    view.saturating_add(u16::from(pane.trouble.is_some())).saturating_add(1)
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, view: &TopView) {
    let color = match (&view.trouble, view.node.state.as_str()) {
        (Some(_), _) => Color::Red,
        (None, "ready") => Color::Green,
        (None, "degraded") => Color::Yellow,
        _ => Color::Red,
    };
    let stands = view.trouble.clone().unwrap_or_else(|| view.node.standing());
    let room = usize::from(area.width).saturating_sub(14 + view.node.address.len());
    let line = Line::from(vec![
        Span::styled(" macronode ", Style::new().add_modifier(Modifier::BOLD)),
        Span::raw(format!("{}  ", view.node.address)),
        Span::styled(shortened(&stands, room), Style::new().fg(color)),
    ]);
    frame.render_widget(line, area);
}

/// The names of the panes with their numbers; the one that takes the keys is marked.
fn draw_names(frame: &mut Frame<'_>, head: Rect, view: &TopView, focus: usize) {
    let marked = Style::new().add_modifier(Modifier::REVERSED);
    let name = |(index, pane): (usize, &ShownPane)| {
        let style = if index == focus { marked } else { Style::new() };
        [Span::raw(" "), Span::styled(format!(" {} {} ", index + 1, pane.service), style)]
    };
    let names = Line::from_iter(view.panes.iter().enumerate().flat_map(name));
    let [_, line, _] = Layout::vertical([Constraint::Length(1); 3]).areas(head);
    frame.render_widget(names, line);
}

fn draw_panes(frame: &mut Frame<'_>, area: Rect, view: &TopView, shown: &[(usize, u16)], chosen: &mut Chosen) {
    let areas = Layout::vertical(shown.iter().map(|(_, height)| Constraint::Length(*height))).split(area);
    for ((index, _), area) in shown.iter().zip(areas.iter()) {
        let pane = &view.panes[*index];
        let trouble_lines = u16::from(pane.trouble.is_some());
        let parts = [Constraint::Length(trouble_lines), Constraint::Fill(1), Constraint::Length(1)];
        let [trouble, numbers, _] = Layout::vertical(parts).areas(*area);
        if let Some(text) = &pane.trouble {
            let text = shortened(&format!(" {}: {text}", pane.service), usize::from(area.width));
            frame.render_widget(Line::styled(text, Style::new().fg(Color::Red)), trouble);
        }
        if let Some(view) = &pane.view {
            view.draw(frame, numbers, chosen.states.entry(pane.service).or_default());
        }
    }
}

fn draw_queues(frame: &mut Frame<'_>, area: Rect, queues: &[QueueRow]) {
    let name_width = area.width.saturating_sub(GAUGE_WIDTH + 16).clamp(10, 28);
    let rows = queues.iter().take(usize::from(area.height.saturating_sub(1))).map(|queue| {
        let name = shortened(&queue.name, usize::from(name_width) - 1);
        let numbers = [queue.high_water as u64, queue.busy].map(|number| right(count(number)));
        Row::new([Cell::from(format!(" {name}"))].into_iter().chain(numbers).chain([Cell::from(gauge(queue))]))
    });
    let widths = [name_width, 6, 6, GAUGE_WIDTH].map(Constraint::Length);
    frame.render_widget(Table::new(rows, widths).header(head_row(" queue", &["high", "busy"], " fill")), area);
}

fn draw_foot(frame: &mut Frame<'_>, area: Rect, view: &TopView, chosen: &Chosen) {
    let mut keys = KEYS.to_owned();
    if view.panes.len() > 1 {
        keys += "  Tab pane";
    }
    let mut position = String::new();
    if let Some((service, pane)) = chosen.focused(view) {
        keys = format!("{keys}  {}", pane.keys());
        position = pane.position(&chosen.states.get(service).copied().unwrap_or_default()) + " ";
    }
    if chosen.is_paused {
        keys += "  PAUSED";
    }
    let style = Style::new().add_modifier(Modifier::REVERSED);
    let taken = keys.len();
    frame.render_widget(Paragraph::new(keys).style(style), area);
    if usize::from(area.width) > taken + position.len() {
        // Only as wide as its text: what stands to the left of it must not be overdrawn.
        let width = u16::try_from(position.len()).unwrap_or(0);
        let place = Rect { x: area.x + area.width - width, width, ..area };
        frame.render_widget(Paragraph::new(position).style(style).alignment(Alignment::Right), place);
    }
}

fn draw_help(frame: &mut Frame<'_>, area: Rect, view: &TopView, chosen: &Chosen) {
    let several = if view.panes.len() > 1 { HELP_OF_SEVERAL } else { "" };
    let pane = chosen.focused(view).map_or_else(String::new, |(_, pane)| format!("\n{}", pane.help()));
    let help = format!("{HELP}{several}{pane}");
    let lines = u16::try_from(help.lines().count()).unwrap_or(u16::MAX);
    let (width, height) = (60.min(area.width), lines.saturating_add(2).min(area.height));
    let (x, y) = (area.x + (area.width - width) / 2, area.y + (area.height - height) / 2);
    let place = Rect { x, y, width, height };
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(help).block(Block::bordered().title(" help ")), place);
}

#[cfg(test)]
mod tests;
