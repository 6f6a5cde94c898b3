//! The DHT in `macronode top`: the nodes it knows, and how it stands with them.

use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use http::{Method, StatusCode};
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Style};
use ratatui::widgets::{Cell, Row, Table};
use serde_json::{Map, Value};
use svc_dht::specs;

use super::peers::{Network, PATH};
use super::short;
use crate::client::PATIENCE;
use crate::commands::table::{row, table};
use crate::commands::text::one_line;
use crate::commands::top::{Looked, NodeClients, NodeSample, Pane, PaneState, PaneView, head_row, right};

const KEYS: &str = "up/down scroll";
const HELP: &str = "\x20up, down         scroll the nodes
 PgUp, PgDn       scroll a page
 Home             back to the top

 bits     leading bits that the place of a node shares with this one's
 links    connections with it
 rtt      time to it and back
 failed   dials and questions in a row that came to nothing";
const COLUMNS: [&str; 4] = ["bits", "links", "rtt", "failed"];

/// Asks for the nodes.
struct DhtPane;

/// Panes of `macronode top` that show the DHT.
pub fn panes() -> Vec<Box<dyn Pane>> {
    vec![Box::new(DhtPane)]
}

/// The network; none if the token does not allow to see it.
struct DhtView(Option<Network>);

impl DhtPane {
    async fn look(clients: &mut NodeClients) -> Looked {
        let api = clients.api()?;
        let answer = api.ask(Method::GET, PATH, None, PATIENCE).await?;
        if answer.status == StatusCode::FORBIDDEN {
            // Somebody who looks after the queues may know nothing of the network, and sees the rest of the node.
            return Ok(Arc::new(DhtView(None)));
        }
        Ok(Arc::new(DhtView(Some(api.accepted(PATH, answer)?.read(PATH)?))))
    }
}

impl Pane for DhtPane {
    fn service(&self) -> &'static str {
        specs::DHT.name
    }

    fn look<'a>(&'a mut self, clients: &'a mut NodeClients, _sample: &'a NodeSample) -> LocalBoxFuture<'a, Looked> {
        Box::pin(DhtPane::look(clients))
    }

    fn forget(&mut self) {}
}

impl DhtView {
    fn count(&self) -> usize {
        self.0.as_ref().map_or(0, |network| network.peers.len())
    }
}

impl PaneView for DhtView {
    fn headline(&self) -> String {
        self.0.as_ref().map_or_else(|| "network not shown".to_owned(), Network::headline)
    }

    fn plain(&self) -> String {
        let Some(network) = &self.0 else { return "this token may not see the network (dht:read)\n".to_owned() };
        let mut rows =
            vec![[&["node"], &COLUMNS[..], &["addresses"]].concat().iter().map(ToString::to_string).collect()];
        rows.extend(network.peers.iter().map(|peer| {
            let ends = [one_line(short(&peer.peer_id)), one_line(&peer.addrs.join(" "))];
            let [first, last] = ends;
            [first].into_iter().chain(peer.cells()).chain([last]).collect()
        }));
        let listen = one_line(&network.listen.join(" "));
        table(0, &[row(["peer", &network.peer_id]), row(["listens", &listen])]) + &table(0, &rows)
    }

    fn json(&self) -> Map<String, Value> {
        let fields = serde_json::to_value(&self.0).unwrap_or_default();
        Map::from_iter([("dht".to_owned(), fields)])
    }

    fn height_wanted(&self) -> u16 {
        u16::try_from(self.count()).unwrap_or(u16::MAX).saturating_add(1)
    }

    fn draw(&self, frame: &mut Frame<'_>, area: Rect, state: &mut PaneState) {
        state.fit(self.count(), usize::from(area.height.saturating_sub(1)));
        let peers = self.0.iter().flat_map(|network| &network.peers);
        let rows = peers.skip(state.offset).take(state.page).map(|peer| {
            let style = Style::new().fg(if peer.failures == 0 { Color::Reset } else { Color::Yellow });
            let name = Cell::from(format!(" {}", one_line(short(&peer.peer_id))));
            let addrs = Cell::from(format!(" {}", one_line(&peer.addrs.join(" "))));
            Row::new([name].into_iter().chain(peer.cells().map(right)).chain([addrs])).style(style)
        });
        let widths = [Constraint::Length(10)]
            .into_iter()
            .chain([6, 6, 9, 7].map(Constraint::Length))
            .chain([Constraint::Min(12)]);
        frame.render_widget(Table::new(rows, widths).header(head_row(" node", &COLUMNS, " addresses")), area);
    }

    fn position(&self, state: &PaneState) -> String {
        state.seen("nodes", self.count(), 0)
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
    use super::super::peers::Peer;
    use super::*;

    #[test]
    fn a_look_is_shown_in_plain_text_and_json() {
        let peer = Peer { peer_id: "12D3KooW12345678".to_owned(), rtt_ms: Some(1.25), ..Peer::default() };
        let network = Network { peer_id: "me".to_owned(), peers: vec![peer], ..Network::default() };
        let view = DhtView(Some(network));
        assert_eq!(view.headline(), "only asks, knows 1 node, 0 connections");
        let expected = "peer     me\nlistens\n\
            node      bits  links  rtt     failed  addresses\n\
            12345678  0     0      1.2 ms  0\n";
        assert_eq!(view.plain(), expected);
        assert_eq!(view.json()["dht"]["peers"][0]["rtt_ms"], 1.25);
    }
}
