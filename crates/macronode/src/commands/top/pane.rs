//! What a service adds to `macronode top`: one half asks the node, the other shows what was answered.

use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::Rect;
use serde_json::{Map, Value};

use super::node::{NodeClients, NodeSample};
use crate::errors::Failure;

/// View of a pane after one look, or the failure of the look.
pub type Looked = Result<Arc<dyn PaneView>, Failure>;

/// The half of a service's pane that asks the node. It lives on the watching thread, so it may take its time.
pub trait Pane: Send {
    /// Name of the service in the topology. The pane is shown if the node runs that service.
    fn service(&self) -> &'static str;

    /// Asks the node once. `sample` is what this look has seen of the node as a whole.
    fn look<'a>(&'a mut self, clients: &'a mut NodeClients, sample: &'a NodeSample) -> LocalBoxFuture<'a, Looked>;

    /// Forgets the counts of the last look. Called after a look that failed: the node may have been restarted in
    /// between, and a rate across the gap would mislead.
    fn forget(&mut self);
}

/// The half of a service's pane that shows one look: on the screen, in plain text and in JSON.
///
/// The watching thread makes a new one with each look and the drawing thread only reads it. What the person at the
/// terminal has chosen is therefore not in here but in the [`PaneState`], which outlives the looks.
pub trait PaneView: Send + Sync {
    /// Few words for the first line of plain text, after the state of the node.
    fn headline(&self) -> String;

    /// The numbers as plain text, without the headline; ends with a line break.
    fn plain(&self) -> String;

    /// Fields for the JSON document. All panes share one level, so a name must be used by one service only.
    fn json(&self) -> Map<String, Value>;

    /// Lines that show everything without scrolling.
    fn height_wanted(&self) -> u16;

    /// Draws into the area, however small it is.
    fn draw(&self, frame: &mut Frame<'_>, area: Rect, state: &mut PaneState);

    /// Scroll position, for the right end of the last line of the screen.
    fn position(&self, state: &PaneState) -> String;

    /// Keys of this pane, for the last line of the screen.
    fn keys(&self) -> &'static str;

    /// Keys and words of this pane explained, for the help.
    fn help(&self) -> &'static str;

    /// Does what a key says that is not common to all panes.
    fn obey(&self, key: KeyCode, state: &mut PaneState) {
        state.scroll(key);
    }
}

/// Choices of the person at the terminal in one pane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PaneState {
    /// Column that sorts, counted as the pane counts them.
    pub sort: usize,
    /// Number of rows scrolled past.
    pub offset: usize,
    /// Number of rows that fitted at the last draw.
    pub page: usize,
}

impl PaneState {
    /// Scrolls, if the key is one of those that do.
    pub fn scroll(&mut self, key: KeyCode) {
        match key {
            KeyCode::Up | KeyCode::Char('k') => self.offset = self.offset.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.offset = self.offset.saturating_add(1),
            KeyCode::PageUp => self.offset = self.offset.saturating_sub(self.page),
            KeyCode::PageDown => self.offset = self.offset.saturating_add(self.page),
            KeyCode::Home => self.offset = 0,
            _ => {}
        }
    }

    /// Takes over how many rows there are and how many fit, so that scrolling ends at the last row.
    pub fn fit(&mut self, rows: usize, page: usize) {
        self.page = page.max(1);
        self.offset = self.offset.min(rows.saturating_sub(1));
    }

    /// The rows that are seen: `topics 1-20 of 300`.
    pub fn seen(&self, noun: &str, rows: usize, all: u64) -> String {
        let shown = rows.saturating_sub(self.offset).min(self.page);
        let first = self.offset + usize::from(shown > 0);
        format!("{noun} {first}-{} of {}", self.offset + shown, all.max(rows as u64))
    }
}

#[cfg(test)]
pub mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ratatui::text::Text;

    use super::*;
    use crate::errors::Code;

    /// A pane of as many numbered rows as its service had looks, times ten; every third look fails.
    pub struct RowsPane {
        pub service: &'static str,
        pub looks: usize,
        pub forgotten: Arc<AtomicUsize>,
    }

    /// Rows with the name of the service.
    pub struct RowsView {
        pub service: &'static str,
        pub rows: usize,
    }

    impl RowsPane {
        /// A pane and the number of times it was told to forget.
        pub fn boxed(service: &'static str) -> (Box<dyn Pane>, Arc<AtomicUsize>) {
            let forgotten = Arc::new(AtomicUsize::new(0));
            (Box::new(RowsPane { service, looks: 0, forgotten: Arc::clone(&forgotten) }), forgotten)
        }
    }

    impl Pane for RowsPane {
        fn service(&self) -> &'static str {
            self.service
        }

        fn look<'a>(&'a mut self, _: &'a mut NodeClients, _: &'a NodeSample) -> LocalBoxFuture<'a, Looked> {
            self.looks += 1;
            let view: Arc<dyn PaneView> = Arc::new(RowsView { service: self.service, rows: self.looks * 10 });
            let looked = if self.looks.is_multiple_of(3) { Err(Failure::new(Code::NoNode, "gone")) } else { Ok(view) };
            Box::pin(std::future::ready(looked))
        }

        fn forget(&mut self) {
            self.forgotten.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl PaneView for RowsView {
        fn headline(&self) -> String {
            format!("{} {} rows", self.rows, self.service)
        }

        fn plain(&self) -> String {
            format!("rows of {}\n", self.service)
        }

        fn json(&self) -> Map<String, Value> {
            Map::from_iter([(format!("{}_rows", self.service), self.rows.into())])
        }

        fn height_wanted(&self) -> u16 {
            u16::try_from(self.rows).expect("few rows")
        }

        fn draw(&self, frame: &mut Frame<'_>, area: Rect, state: &mut PaneState) {
            state.fit(self.rows, usize::from(area.height));
            let rows = (state.offset..self.rows).map(|row| format!("{} {row}", self.service));
            frame.render_widget(Text::from_iter(rows), area);
        }

        fn position(&self, state: &PaneState) -> String {
            state.seen("rows", self.rows, 0)
        }

        fn keys(&self) -> &'static str {
            "x nothing"
        }

        fn help(&self) -> &'static str {
            " x                nothing at all"
        }
    }

    #[test]
    fn scrolling_stays_within_the_rows() {
        let mut state = PaneState::default();
        state.fit(30, 10);
        for (key, offset) in [
            (KeyCode::Down, 1),
            (KeyCode::PageDown, 11),
            (KeyCode::Up, 10),
            (KeyCode::PageUp, 0),
            (KeyCode::Up, 0),
            (KeyCode::Char('j'), 1),
            (KeyCode::Char('s'), 1),
            (KeyCode::Home, 0),
        ] {
            state.scroll(key);
            assert_eq!(state.offset, offset, "{key:?}");
        }
        state.offset = 99;
        state.fit(30, 10);
        assert_eq!((state.offset, state.seen("rows", 30, 0)), (29, "rows 30-30 of 30".to_owned()));
        state.fit(0, 0);
        assert_eq!((state.offset, state.page, state.seen("rows", 0, 7)), (0, 1, "rows 0-0 of 7".to_owned()));
    }
}
