//! The rewarder in `macronode top`: its last epochs, how they stand, and which payouts wait.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use http::{Method, StatusCode};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row, Table};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use svc_rewarder::specs;
use svc_rewarder::store::EpochStatus;

use crate::client::PATIENCE;
use crate::commands::table::{row, shortened, table};
use crate::commands::top::{Looked, NodeClients, NodeSample, Pane, PaneState, PaneView, count, head_row, right};

/// Epochs that are shown, the last ids first: one request, whatever the node keeps.
const EPOCHS_SHOWN: usize = 100;
const NAME_WIDTH_MIN: u16 = 12;
const NAME_WIDTH_MAX: u16 = 40;
const COLUMNS: [&str; 4] = ["state", "actors", "payouts", "waiting"];
const WIDTHS: [u16; 4] = [11, 7, 7, 7];

const KEYS: &str = "up/down scroll";
const HELP: &str = "\x20up, down         scroll the epochs
 PgUp, PgDn       scroll a page
 Home             back to the top

 state    held: somebody must release it; released: being
          paid; settled; quarantined: look at it
 payouts  payouts of the epoch, all assets together
 waiting  payouts that the ledger has not answered for
 paid     units that the epoch pays, by asset";

/// Asks for the numbers of the rewarder and its last epochs.
struct RewarderPane;

/// Panes of `macronode top` that show the rewarder.
pub fn panes() -> Vec<Box<dyn Pane>> {
    vec![Box::new(RewarderPane)]
}

/// Epochs by how they stand.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Stats {
    computing: u64,
    epochs: BTreeMap<String, u64>,
    ledger_waits: bool,
    inputs_bytes: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Page {
    epochs: Vec<Epoch>,
}

/// One epoch of the list.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Epoch {
    epoch: String,
    state: String,
    actors: u64,
    intents: u64,
    sent: u64,
    paid: BTreeMap<String, String>,
}

/// Contents of the pane.
#[derive(Clone, Debug, Default)]
struct RewarderView {
    stats: Stats,
    epochs: Vec<Epoch>,
    /// The token does not allow to read every epoch.
    is_hidden: bool,
}

impl RewarderPane {
    async fn look(clients: &mut NodeClients) -> Looked {
        let api = clients.api()?;
        let path = "/rewarder/stats";
        let answer = api.ask(Method::GET, path, None, PATIENCE).await?;
        if answer.status == StatusCode::FORBIDDEN {
            // Somebody who looks after the queues may know nothing of payouts, and sees the rest of the node.
            return Ok(Arc::new(RewarderView { is_hidden: true, ..RewarderView::default() }));
        }
        let stats = api.accepted(path, answer)?.read(path)?;
        let path = format!("/rewarder/epochs?last_first=true&limit={EPOCHS_SHOWN}");
        let page: Page = api.get(&path).await?.read("/rewarder/epochs")?;
        Ok(Arc::new(RewarderView { stats, epochs: page.epochs, is_hidden: false }))
    }
}

impl Pane for RewarderPane {
    fn service(&self) -> &'static str {
        specs::REWARDER.name
    }

    fn look<'a>(&'a mut self, clients: &'a mut NodeClients, _: &'a NodeSample) -> LocalBoxFuture<'a, Looked> {
        Box::pin(Self::look(clients))
    }

    /// Nothing is counted between two looks.
    fn forget(&mut self) {}
}

impl Epoch {
    fn waiting(&self) -> u64 {
        self.intents.saturating_sub(self.sent)
    }

    fn paid(&self) -> String {
        let units: Vec<String> = self.paid.iter().map(|(asset, units)| format!("{units} {asset}")).collect();
        units.join(", ")
    }

    fn color(&self) -> Color {
        match self.state.as_str() {
            "quarantined" => Color::Red,
            "held" | "released" => Color::Yellow,
            _ => Color::Reset,
        }
    }
}

impl RewarderView {
    fn number_of(&self, status: EpochStatus) -> u64 {
        self.stats.epochs.get(status.as_str()).copied().unwrap_or(0)
    }

    fn total(&self) -> u64 {
        self.stats.epochs.values().sum()
    }

    /// Epochs by how they stand, in the order of an epoch's life.
    fn summary(&self) -> String {
        if self.is_hidden {
            return "this token may not read every epoch (rewarder:read)".to_owned();
        }
        let sealed = EpochStatus::ALL.map(|status| format!("{} {}", count(self.number_of(status)), status.as_str()));
        let waits = if self.stats.ledger_waits { "; payouts wait for the ledger" } else { "" };
        format!("{} computing, {}{waits}", count(self.stats.computing), sealed.join(", "))
    }

    fn draw_epochs(&self, frame: &mut Frame<'_>, area: Rect, state: &mut PaneState) {
        state.fit(self.epochs.len(), usize::from(area.height.saturating_sub(1)));
        let longest = self.epochs.iter().map(|epoch| epoch.epoch.len() + 2).max().unwrap_or(0);
        let name_width = u16::try_from(longest).unwrap_or(u16::MAX).clamp(NAME_WIDTH_MIN, NAME_WIDTH_MAX);
        let rows = self.epochs.iter().skip(state.offset).take(state.page).map(|epoch| {
            let name = Cell::from(format!(" {}", shortened(&epoch.epoch, usize::from(name_width) - 1)));
            let standing = right(epoch.state.clone()).style(Style::new().fg(epoch.color()));
            let numbers = [epoch.actors, epoch.intents, epoch.waiting()].map(|number| right(count(number)));
            Row::new([name, standing].into_iter().chain(numbers).chain([Cell::from(format!(" {}", epoch.paid()))]))
        });
        let widths = std::iter::once(name_width).chain(WIDTHS).map(Constraint::Length).chain([Constraint::Fill(1)]);
        frame.render_widget(Table::new(rows, widths).header(head_row(" epoch", &COLUMNS, " paid")), area);
    }
}

impl PaneView for RewarderView {
    fn headline(&self) -> String {
        if self.is_hidden {
            return "epochs not shown".to_owned();
        }
        let noun = if self.total() == 1 { "epoch" } else { "epochs" };
        format!("{} {noun}", self.total())
    }

    fn plain(&self) -> String {
        let mut rows = vec![row(["epoch", "state", "actors", "payouts", "waiting", "paid"])];
        rows.extend(self.epochs.iter().map(|epoch| {
            let [actors, intents, waiting] = [epoch.actors, epoch.intents, epoch.waiting()].map(count);
            row([&epoch.epoch, &epoch.state, &actors, &intents, &waiting, &epoch.paid()])
        }));
        format!("{}\n{}", self.summary(), table(0, &rows))
    }

    fn json(&self) -> Map<String, Value> {
        Map::from_iter([("rewarder".to_owned(), json!({"stats": self.stats, "epochs": self.epochs}))])
    }

    fn height_wanted(&self) -> u16 {
        u16::try_from(self.epochs.len()).unwrap_or(u16::MAX).saturating_add(3)
    }

    fn draw(&self, frame: &mut Frame<'_>, area: Rect, state: &mut PaneState) {
        let [summary, epochs] = Layout::vertical([Constraint::Length(2), Constraint::Min(2)]).areas(area);
        let is_bad = self.stats.ledger_waits || self.number_of(EpochStatus::Quarantined) > 0;
        let style = Style::new().fg(if is_bad { Color::Red } else { Color::Reset });
        frame.render_widget(Line::styled(format!(" {}", self.summary()), style), summary);
        self.draw_epochs(frame, epochs, state);
    }

    fn position(&self, state: &PaneState) -> String {
        state.seen("epochs", self.epochs.len(), self.total())
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
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyCode;

    use super::*;

    fn epoch(name: &str, state: &str, sent: u64) -> Value {
        let paid = json!({"RON": "1000003", "PTS": "77"});
        json!({"epoch": name, "state": state, "actors": 301, "intents": 300, "sent": sent, "paid": paid})
    }

    /// As a node answers it.
    fn view() -> RewarderView {
        let epochs = json!([
            epoch("2026-12", "released", 100),
            epoch("2026-11", "settled", 300),
            epoch("2026-10", "quarantined", 0),
        ]);
        let stats = json!({"computing": 2, "ledger_waits": true, "inputs_bytes": 5,
            "epochs": {"held": 0, "released": 1, "settled": 12, "quarantined": 1}});
        let page: Page = serde_json::from_value(json!({"epochs": epochs, "next": "x"})).expect("a page");
        RewarderView { stats: serde_json::from_value(stats).expect("counts"), epochs: page.epochs, is_hidden: false }
    }

    fn shown(width: u16, height: u16, view: &RewarderView, state: &mut PaneState) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
        terminal.draw(|frame| view.draw(frame, frame.area(), state)).expect("drawn");
        let buffer = terminal.backend().buffer();
        let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    #[test]
    fn the_last_epochs_are_shown_with_what_waits() {
        let view = view();
        let lines = shown(80, view.height_wanted(), &view, &mut PaneState::default());
        let expected = "
 2 computing, 0 held, 1 released, 12 settled, 1 quarantined; payouts wait for t

 epoch             state  actors payouts waiting  paid
 2026-12        released     301     300     200  77 PTS, 1000003 RON
 2026-11         settled     301     300       0  77 PTS, 1000003 RON
 2026-10     quarantined     301     300     300  77 PTS, 1000003 RON";
        let expected: Vec<&str> = expected.lines().skip(1).collect();
        assert_eq!(lines[1..], expected[1..]);
        assert!(lines[0].starts_with(expected[0]), "{}", lines[0]);
        let plain = view.plain();
        assert!(plain.contains("2026-12  released     301     300      200      77 PTS, 1000003 RON\n"), "{plain}");
        assert_eq!(
            (view.headline(), view.json()["rewarder"]["stats"]["computing"].clone()),
            ("14 epochs".into(), json!(2))
        );
    }

    #[test]
    fn keys_scroll_and_no_size_is_too_small() {
        let view = view();
        let mut state = PaneState::default();
        view.obey(KeyCode::Down, &mut state);
        assert!(shown(80, 6, &view, &mut state)[3].starts_with(" 2026-11"));
        assert_eq!(view.position(&state), "epochs 2-3 of 14");
        for (width, height) in [(1, 1), (10, 3), (20, 6), (40, 10), (300, 8)] {
            shown(width, height, &view, &mut PaneState::default());
            shown(width, height, &RewarderView::default(), &mut PaneState::default());
        }
    }
}
