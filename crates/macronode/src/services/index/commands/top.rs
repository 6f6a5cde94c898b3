//! The index in `macronode top`: its last lookups, whom they asked, and what it holds.

use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use http::{Method, StatusCode};
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Style};
use ratatui::widgets::{Cell, Row, Table};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use svc_index::specs;

use super::words::{Ask, milliseconds, short};
use crate::client::PATIENCE;
use crate::commands::table::{row, table};
use crate::commands::text::{bytes, counted, one_line, time_of_day};
use crate::commands::top::{Looked, NodeClients, NodeSample, Pane, PaneState, PaneView, head_row, right};

const STATS_PATH: &str = "/index/stats";
const LOOKUPS_PATH: &str = "/index/lookups";
const KEYS: &str = "up/down scroll";
const HELP: &str = "\x20up, down         scroll the lookups
 PgUp, PgDn       scroll a page
 Home             back to the top

 outcome  found; absent: all nearest answered without it;
          unknown: the time was over first; degraded: some
          were not asked because they keep failing
 asked    targets that were asked, and hedges among them
 left     targets that were left out";
/// Columns of numbers between the time of a lookup and its id.
const COLUMNS: [&str; 5] = ["outcome", "took", "asked", "left", "found"];
const WIDTHS: [u16; 5] = [9, 9, 7, 5, 6];

/// Asks for the last lookups and for what the index holds.
struct IndexPane;

/// Panes of `macronode top` that show the index.
pub fn panes() -> Vec<Box<dyn Pane>> {
    vec![Box::new(IndexPane)]
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Stats {
    peer_id: String,
    cached: u64,
    cached_bytes: u64,
    records: u64,
    flights: u64,
    watchers: u64,
    targets: Vec<Target>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Target {
    target: String,
    breaker: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Lookups {
    lookups: Vec<Lookup>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Lookup {
    id: String,
    outcome: String,
    open_targets: u64,
    found: u64,
    at_ms: u64,
    took_ms: f64,
    course: Vec<Ask>,
}

/// The index, as it is shown.
#[derive(Clone, Debug, Default, Serialize)]
struct IndexView {
    #[serde(flatten)]
    stats: Stats,
    lookups: Vec<Lookup>,
    /// The token does not allow to see the index.
    #[serde(skip)]
    is_hidden: bool,
}

impl IndexPane {
    async fn look(clients: &mut NodeClients) -> Looked {
        let api = clients.api()?;
        let answer = api.ask(Method::GET, STATS_PATH, None, PATIENCE).await?;
        if answer.status == StatusCode::FORBIDDEN {
            // Somebody who looks after the queues may know nothing of the index, and sees the rest of the node.
            return Ok(Arc::new(IndexView { is_hidden: true, ..IndexView::default() }));
        }
        let stats: Stats = api.accepted(STATS_PATH, answer)?.read(STATS_PATH)?;
        let answer = api.get(LOOKUPS_PATH).await?;
        let lookups: Lookups = answer.read(LOOKUPS_PATH)?;
        Ok(Arc::new(IndexView { stats, lookups: lookups.lookups, is_hidden: false }))
    }
}

impl Pane for IndexPane {
    fn service(&self) -> &'static str {
        specs::INDEX.name
    }

    fn look<'a>(&'a mut self, clients: &'a mut NodeClients, _sample: &'a NodeSample) -> LocalBoxFuture<'a, Looked> {
        Box::pin(IndexPane::look(clients))
    }

    fn forget(&mut self) {}
}

impl Lookup {
    /// The columns of numbers.
    fn cells(&self) -> [String; COLUMNS.len()] {
        let asked = self.course.iter().filter(|ask| ask.end != "skipped").count();
        let hedges = self.course.iter().filter(|ask| ask.hedge).count();
        let asked = if hedges > 0 { format!("{asked} ({hedges}h)") } else { asked.to_string() };
        let (took, left, found) = (milliseconds(self.took_ms), self.open_targets.to_string(), self.found.to_string());
        [one_line(&self.outcome), took, asked, left, found]
    }

    fn style(&self) -> Style {
        Style::new().fg(match self.outcome.as_str() {
            "found" => Color::Reset,
            "absent" => Color::DarkGray,
            _ => Color::Yellow,
        })
    }
}

impl IndexView {
    fn left_out(&self) -> usize {
        self.stats.targets.iter().filter(|target| target.breaker != "closed").count()
    }
}

impl PaneView for IndexView {
    fn headline(&self) -> String {
        if self.is_hidden {
            return "index not shown".to_owned();
        }
        let left = match self.left_out() {
            0 => String::new(),
            left => format!(", {left} of {} targets left out", self.stats.targets.len()),
        };
        format!("{}{left}", counted(self.stats.records, "record"))
    }

    fn plain(&self) -> String {
        if self.is_hidden {
            return "this token may not see the index (index:admin)\n".to_owned();
        }
        let cache = format!("{}, {}", counted(self.stats.cached, "answer"), bytes(self.stats.cached_bytes));
        let facts = [
            row(["peer", &self.stats.peer_id]),
            row(["records", &self.stats.records.to_string()]),
            row(["memory", &cache]),
            row(["under way", &self.stats.flights.to_string()]),
            row(["watchers", &self.stats.watchers.to_string()]),
        ];
        let mut rows = vec![[&["lookup"], &COLUMNS[..], &["id"]].concat().iter().map(ToString::to_string).collect()];
        rows.extend(self.lookups.iter().map(|lookup| {
            let ends = [time_of_day(lookup.at_ms), one_line(&lookup.id)];
            let [first, last] = ends;
            [first].into_iter().chain(lookup.cells()).chain([last]).collect()
        }));
        table(0, &facts) + &table(0, &rows)
    }

    fn json(&self) -> Map<String, Value> {
        let fields = serde_json::to_value(self).unwrap_or_default();
        Map::from_iter([("index".to_owned(), fields)])
    }

    fn height_wanted(&self) -> u16 {
        u16::try_from(self.lookups.len()).unwrap_or(u16::MAX).saturating_add(1)
    }

    fn draw(&self, frame: &mut Frame<'_>, area: Rect, state: &mut PaneState) {
        state.fit(self.lookups.len(), usize::from(area.height.saturating_sub(1)));
        let rows = self.lookups.iter().skip(state.offset).take(state.page).map(|lookup| {
            let time = Cell::from(format!(" {}", time_of_day(lookup.at_ms)));
            let id = Cell::from(format!(" {}", short(&lookup.id)));
            Row::new([time].into_iter().chain(lookup.cells().map(right)).chain([id])).style(lookup.style())
        });
        let widths =
            [Constraint::Length(10)].into_iter().chain(WIDTHS.map(Constraint::Length)).chain([Constraint::Min(12)]);
        frame.render_widget(Table::new(rows, widths).header(head_row(" lookup", &COLUMNS, " id")), area);
    }

    fn position(&self, state: &PaneState) -> String {
        state.seen("lookups", self.lookups.len(), 0)
    }

    fn keys(&self) -> &'static str {
        KEYS
    }

    fn help(&self) -> &'static str {
        HELP
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_look_is_shown_in_plain_text_and_json() {
        let stats: Stats = serde_json::from_value(json!({
            "peer_id": "12D3", "records": 3, "cached": 1, "cached_bytes": 2048, "flights": 0, "watchers": 2,
            "targets": [{"target": "a", "breaker": "closed"}, {"target": "b", "breaker": "open"}],
        }))
        .expect("the shape of the answer");
        let lookup: Lookup = serde_json::from_value(json!({
            "id": "name:a", "outcome": "found", "open_targets": 1, "found": 2, "at_ms": 3_723_000, "took_ms": 12.34,
            "course": [{"target": "a", "end": "won"}, {"target": "c", "end": "empty", "hedge": true},
                       {"target": "b", "end": "skipped"}],
        }))
        .expect("the shape of the answer");
        let view = IndexView { stats, lookups: vec![lookup], is_hidden: false };
        assert_eq!(view.headline(), "3 records, 1 of 2 targets left out");
        let expected = "peer       12D3\nrecords    3\nmemory     1 answer, 2.0 KiB\nunder way  0\nwatchers   2\n\
            lookup    outcome  took   asked   left  found  id\n\
            01:02:03  found    12 ms  2 (1h)  1     2      name:a\n";
        assert_eq!(view.plain(), expected);
        assert_eq!(view.json()["index"]["lookups"][0]["found"], 2);
    }
}
