//! The mailbox in `macronode top`: its log, its shards, and what its topics do in a second.

mod collect;
mod plain;
mod screen;
mod view;

use std::sync::Arc;

use collect::TopicCollector;
use futures_util::future::LocalBoxFuture;
use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::Rect;
use ron_kernel::clock;
use serde_json::{Map, Value};
use svc_mailbox::specs;
use view::{MailboxSample, MailboxView, Sort};

use super::stats::NodeStats;
use super::types::counted;
use crate::commands::top::{Looked, NodeClients, NodeSample, Pane, PaneState, PaneView};

const KEYS: &str = "s sort  up/down scroll";
const HELP: &str = "\x20s                sort the topics by the next column
 up, down         scroll the topics
 PgUp, PgDn       scroll a page
 Home             back to the top

 in/s     messages taken in a second
 out/s    messages delivered a second; while the breaker
          is open: held, and probe when it tries with one
 ack/s    messages acknowledged a second
 dead     messages that became dead letters
 oldest   age of the oldest message
 waiters  receivers waiting for a message
 queue    jobs waiting for the shard";

/// Asks for the numbers of the mailbox and of its topics.
#[derive(Default)]
struct MailboxPane {
    topics: TopicCollector,
    before: Option<MailboxSample>,
}

/// Panes of `macronode top` that show the mailbox.
pub fn panes() -> Vec<Box<dyn Pane>> {
    vec![Box::new(MailboxPane::default())]
}

impl MailboxPane {
    async fn look(&mut self, clients: &mut NodeClients, sample: &NodeSample) -> Looked {
        let api = clients.api()?;
        let stats: NodeStats = api.get("/v1/stats").await?.read("/v1/stats")?;
        let taken = clock::now();
        let topics = self.topics.look(api).await?;
        let now = MailboxSample { taken, stats, topics };
        let view = MailboxView::of(&now, self.before.as_ref(), sample);
        self.before = Some(now);
        Ok(Arc::new(view))
    }
}

impl Pane for MailboxPane {
    fn service(&self) -> &'static str {
        specs::MAILBOX.name
    }

    fn look<'a>(&'a mut self, clients: &'a mut NodeClients, sample: &'a NodeSample) -> LocalBoxFuture<'a, Looked> {
        Box::pin(self.look(clients, sample))
    }

    fn forget(&mut self) {
        self.before = None;
        self.topics.forget();
    }
}

impl PaneView for MailboxView {
    fn headline(&self) -> String {
        format!("{}, {}", self.durability, counted(self.topics_total, "topic"))
    }

    fn plain(&self) -> String {
        plain::show(self)
    }

    fn json(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            _ => Map::new(),
        }
    }

    fn height_wanted(&self) -> u16 {
        screen::height_wanted(self)
    }

    fn draw(&self, frame: &mut Frame<'_>, area: Rect, state: &mut PaneState) {
        screen::draw(frame, area, self, state);
    }

    fn position(&self, state: &PaneState) -> String {
        state.seen("topics", self.topics.len(), self.topics_total)
    }

    fn keys(&self) -> &'static str {
        KEYS
    }

    fn help(&self) -> &'static str {
        HELP
    }

    fn obey(&self, key: KeyCode, state: &mut PaneState) {
        match key {
            KeyCode::Char('s') => (state.sort, state.offset) = (Sort::after(state.sort), 0),
            other => state.scroll(other),
        }
    }
}

#[cfg(test)]
mod tests;
