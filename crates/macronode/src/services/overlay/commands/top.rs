//! The overlay in `macronode top`: its peers, what waits for them, and how they take part in lanes.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use http::{Method, StatusCode};
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Style};
use ratatui::widgets::{Cell, Row, Table};
use ron_kernel::clock;
use serde::Serialize;
use serde_json::{Map, Value};
use svc_overlay::specs;
use tokio::time::Instant;

use super::peers::{PATH, Peer, Peers};
use super::short;
use crate::client::PATIENCE;
use crate::commands::table::{row, table};
use crate::commands::text::{bytes, counted, one_line};
use crate::commands::top::{Looked, NodeClients, NodeSample, Pane, PaneState, PaneView, count, head_row, rate, right};

const KEYS: &str = "up/down scroll";
const HELP: &str = "\x20up, down         scroll the peers
 PgUp, PgDn       scroll a page
 Home             back to the top

 rtt      time to the peer and back
 queue    bytes that wait for the peer
 busy/s   messages a second that its full queue refused
 eager    lanes in which messages are pushed to it
 lazy     lanes in which it is only told of messages";
/// Columns of numbers between the name of a peer and its address.
const COLUMNS: [&str; 6] = ["state", "rtt", "queue", "busy/s", "eager", "lazy"];

/// Asks for the peers.
#[derive(Default)]
struct OverlayPane {
    /// Refusals by peer at the last look.
    before: Option<(Instant, HashMap<String, u64>)>,
}

/// The peers, as they are shown.
#[derive(Clone, Debug, Serialize)]
struct OverlayView {
    node_id: String,
    listen: Option<String>,
    peers: Vec<PeerRow>,
    /// The token does not allow to see peers.
    #[serde(skip)]
    is_hidden: bool,
}

#[derive(Clone, Debug, Serialize)]
struct PeerRow {
    #[serde(flatten)]
    peer: Peer,
    /// Refusals a second since the last look.
    busy_per_second: Option<f64>,
}

/// Panes of `macronode top` that show the overlay.
pub fn panes() -> Vec<Box<dyn Pane>> {
    vec![Box::new(OverlayPane::default())]
}

impl OverlayPane {
    async fn look(&mut self, clients: &mut NodeClients) -> Looked {
        let api = clients.api()?;
        let answer = api.ask(Method::GET, PATH, None, PATIENCE).await?;
        if answer.status == StatusCode::FORBIDDEN {
            // Somebody who looks after the queues may know nothing of peers, and sees the rest of the node.
            let (node_id, listen, peers) = (String::new(), None, Vec::new());
            return Ok(Arc::new(OverlayView { node_id, listen, peers, is_hidden: true }));
        }
        let peers: Peers = api.accepted(PATH, answer)?.read(PATH)?;
        Ok(Arc::new(self.view(peers, clock::now())))
    }

    fn view(&mut self, peers: Peers, now: Instant) -> OverlayView {
        let refusals = peers.peers.iter().map(|peer| (peer.node_id.clone(), peer.busy_total)).collect();
        let before = self.before.replace((now, refusals));
        let busy_per_second = |peer: &Peer| {
            let (taken, refusals) = before.as_ref()?;
            let seconds = (now - *taken).as_secs_f64();
            // A session that was opened anew counts from zero again.
            let more = peer.busy_total.checked_sub(*refusals.get(&peer.node_id)?)?;
            (seconds > 0.0).then(|| more as f64 / seconds)
        };
        let rows =
            peers.peers.iter().map(|peer| PeerRow { busy_per_second: busy_per_second(peer), peer: peer.clone() });
        OverlayView { peers: rows.collect(), node_id: peers.node_id, listen: peers.listen, is_hidden: false }
    }
}

impl Pane for OverlayPane {
    fn service(&self) -> &'static str {
        specs::OVERLAY.name
    }

    fn look<'a>(&'a mut self, clients: &'a mut NodeClients, _sample: &'a NodeSample) -> LocalBoxFuture<'a, Looked> {
        Box::pin(self.look(clients))
    }

    fn forget(&mut self) {
        self.before = None;
    }
}

impl PeerRow {
    /// The columns of numbers.
    fn cells(&self) -> [String; COLUMNS.len()] {
        let rtt = self.peer.rtt_ms.map_or_else(|| "-".to_owned(), |rtt| format!("{rtt:.1} ms"));
        let (eager, lazy) = (self.peer.links("eager") as u64, self.peer.links("lazy") as u64);
        let queue = bytes(self.peer.queued_bytes);
        [self.peer.state.clone(), rtt, queue, rate(self.busy_per_second), count(eager), count(lazy)]
    }
}

impl OverlayView {
    fn connected(&self) -> usize {
        self.peers.iter().filter(|row| row.peer.is_connected()).count()
    }
}

impl PaneView for OverlayView {
    fn headline(&self) -> String {
        if self.is_hidden {
            return "peers not shown".to_owned();
        }
        format!("{}, {} connected", counted(self.peers.len() as u64, "peer"), self.connected())
    }

    fn plain(&self) -> String {
        if self.is_hidden {
            return "this token may not see peers (overlay:admin)\n".to_owned();
        }
        let mut rows = vec![[&["peer"], &COLUMNS[..], &["address"]].concat().iter().map(ToString::to_string).collect()];
        rows.extend(self.peers.iter().map(|row| {
            let ends = [short(&row.peer.node_id).to_owned(), one_line(&row.peer.addr)];
            let [first, last] = ends;
            [first].into_iter().chain(row.cells()).chain([last]).collect()
        }));
        let listen = self.listen.as_deref().unwrap_or("nowhere");
        table(0, &[row(["node", &self.node_id]), row(["listens", listen])]) + &table(0, &rows)
    }

    fn json(&self) -> Map<String, Value> {
        let fields = serde_json::to_value(self).unwrap_or_default();
        Map::from_iter([("overlay".to_owned(), fields)])
    }

    fn height_wanted(&self) -> u16 {
        u16::try_from(self.peers.len()).unwrap_or(u16::MAX).saturating_add(1)
    }

    fn draw(&self, frame: &mut Frame<'_>, area: Rect, state: &mut PaneState) {
        state.fit(self.peers.len(), usize::from(area.height.saturating_sub(1)));
        let rows = self.peers.iter().skip(state.offset).take(state.page).map(|row| {
            let style = Style::new().fg(if row.peer.is_connected() { Color::Reset } else { Color::Yellow });
            let name = Cell::from(format!(" {}", short(&row.peer.node_id)));
            let address = Cell::from(format!(" {}", one_line(&row.peer.addr)));
            Row::new([name].into_iter().chain(row.cells().map(right)).chain([address])).style(style)
        });
        let widths = [Constraint::Length(10)]
            .into_iter()
            .chain([10, 9, 10, 7, 6, 6].map(Constraint::Length))
            .chain([Constraint::Min(12)]);
        frame.render_widget(Table::new(rows, widths).header(head_row(" peer", &COLUMNS, " address")), area);
    }

    fn position(&self, state: &PaneState) -> String {
        state.seen("peers", self.peers.len(), 0)
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
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn peers(busy_total: u64) -> Peers {
        let peer = json!({
            "node_id": "0123456789", "addr": "127.0.0.1:9", "state": "connected", "direction": "in", "rtt_ms": 1.25,
            "queued_bytes": 4096, "busy_total": busy_total,
            "lanes": [{"lane": "a", "link": "eager"}, {"lane": "b", "link": "lazy"}],
        });
        serde_json::from_value(json!({"node_id": "me", "listen": null, "peers": [peer]}))
            .expect("the shape of the answer")
    }

    #[test]
    fn refusals_are_shown_by_the_second_and_never_below_zero() {
        let (mut pane, now) = (OverlayPane::default(), clock::now());
        assert_eq!(pane.view(peers(10), now).peers[0].busy_per_second, None);
        let after = now + Duration::from_secs(2);
        assert_eq!(pane.view(peers(30), after).peers[0].busy_per_second, Some(10.0));
        let later = after + Duration::from_secs(1);
        assert_eq!(pane.view(peers(5), later).peers[0].busy_per_second, None, "a new session");
    }

    #[test]
    fn a_look_is_shown_in_plain_text_and_json() {
        let view = OverlayPane::default().view(peers(1), clock::now());
        assert_eq!(view.headline(), "1 peer, 1 connected");
        let expected = "node     me\nlistens  nowhere\n\
            peer      state      rtt     queue    busy/s  eager  lazy  address\n\
            01234567  connected  1.2 ms  4.0 KiB  -       1      1     127.0.0.1:9\n";
        assert_eq!(view.plain(), expected);
        assert_eq!(view.json()["overlay"]["peers"][0]["queued_bytes"], 4096);
    }
}
