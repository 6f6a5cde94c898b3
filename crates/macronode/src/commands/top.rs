//! `macronode top`: a node as it works, live on the terminal or once in plain text.

mod figures;
mod node;
mod pane;
mod plain;
mod screen;
mod watch;
mod widgets;

use std::io::IsTerminal as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::Args;
pub use figures::{age, count, rate};
use node::NodeView;
pub use node::{NodeClients, NodeSample, QueueRow};
pub use pane::{Looked, Pane, PaneState, PaneView};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use screen::Chosen;
use tokio::signal::unix::{SignalKind, signal};
use watch::{TopView, Watcher};
pub use widgets::{GAUGE_WIDTH, gauge, head_row, head_style, right};

use super::{Report, wait};
use crate::cli::ApiArgs;
use crate::config::TimeSpan;
use crate::errors::{Code, Failure};

/// Maximum time until a key press is seen.
const KEY_WAIT: Duration = Duration::from_millis(50);
/// Exit status of a process that ended with its terminal, as the shell reports it.
const HUNG_UP: i32 = 129;
const INTERVAL_MIN_MS: u64 = 100;
const INTERVAL_MAX_MS: u64 = 60_000;

/// How to watch.
#[derive(Args, Debug)]
pub struct TopArgs {
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: TimeSpan,
    /// Print one snapshot in plain text, as is done when the output is no terminal
    #[arg(long)]
    pub once: bool,
    /// The admin plane [default: from the node's data directory, else 127.0.0.1:9600]
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<String>,
    /// Which node.
    #[command(flatten)]
    pub node: ApiArgs,
}

/// State that the watching thread hands to the drawing thread.
#[derive(Default)]
struct Shared {
    view: TopView,
    /// Number of looks so far.
    looks: u64,
    /// Whether a signal asked for the end.
    is_over: bool,
}

fn interval(text: &str) -> Result<TimeSpan, String> {
    let time = text.parse::<TimeSpan>().map_err(|error| error.to_string())?;
    match time.0 {
        INTERVAL_MIN_MS..=INTERVAL_MAX_MS => Ok(time),
        _ => Err("must be between 100ms and 1m".to_owned()),
    }
}

/// Watches a node with the panes of all services this program knows; those of services the node does not run stay away.
pub fn top(args: &TopArgs, panes: Vec<Box<dyn Pane>>) -> Result<Report, Failure> {
    let watcher = Watcher::new(NodeClients::find(args.admin.as_ref(), &args.node)?, panes);
    if args.once || args.node.json || !std::io::stdout().is_terminal() {
        return wait(once(watcher, args));
    }
    live(watcher, args.interval.duration())
}

/// Two looks, so that rates are known.
async fn once(mut watcher: Watcher, args: &TopArgs) -> Result<Report, Failure> {
    watcher.look().await?.complete()?;
    tokio::time::sleep(args.interval.duration()).await;
    let look = watcher.look().await?.complete()?;
    let mut view = TopView::default();
    view.take(watcher.address(), Ok(look));
    Ok(Report::clean(if args.node.json { format!("{}\n", plain::json(&view)) } else { plain::text(&view) }))
}

fn live(watcher: Watcher, interval: Duration) -> Result<Report, Failure> {
    let address = watcher.address().to_owned();
    let node = NodeView { address, state: "looking".to_owned(), ..NodeView::default() };
    let view = TopView { node, ..TopView::default() };
    let shared = Arc::new(Mutex::new(Shared { view, ..Shared::default() }));
    let watched = Arc::clone(&shared);
    // The thread ends with the process: it holds nothing that must be given back.
    std::thread::Builder::new()
        .name("top".to_owned())
        .spawn(move || wait(async { watch(watcher, interval, &watched).await }))
        .map_err(|error| Failure::new(Code::CannotStart, format!("no thread to watch with: {error}")))?;
    let mut terminal = ratatui::try_init().map_err(|error| broken(&error))?;
    let drawn = draw_until_told(&mut terminal, &shared);
    ratatui::restore();
    drawn.map_err(|error| broken(&error)).map(|()| Report::clean(""))
}

fn broken(error: &std::io::Error) -> Failure {
    Failure::new(Code::CannotStart, format!("the terminal cannot be used: {error}; try --once"))
}

/// Looks again and again until a signal ends it.
async fn watch(mut watcher: Watcher, interval: Duration, shared: &Mutex<Shared>) -> Result<Report, Failure> {
    let unheard = |error: std::io::Error| Failure::new(Code::CannotStart, format!("signals cannot be heard: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(unheard)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(unheard)?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(unheard)?;
    let looking = async {
        loop {
            let looked = watcher.look().await;
            {
                let mut shared = lock(shared);
                shared.looks += 1;
                shared.view.take(watcher.address(), looked);
            }
            tokio::time::sleep(interval).await;
        }
    };
    tokio::select! {
        () = looking => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        // The terminal is gone: there is nothing to restore, and the thread that waits for its keys would wait forever.
        _ = hang_up.recv() => std::process::exit(HUNG_UP),
    }
    lock(shared).is_over = true;
    Ok(Report::clean(""))
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn draw_until_told(terminal: &mut DefaultTerminal, shared: &Mutex<Shared>) -> std::io::Result<()> {
    let mut chosen = Chosen::default();
    let mut view = lock(shared).view.clone();
    let (mut looks, mut is_stale) = (0, true);
    loop {
        {
            let shared = lock(shared);
            if shared.is_over {
                return Ok(());
            }
            if shared.looks != looks && !chosen.is_paused {
                (view, looks) = (shared.view.clone(), shared.looks);
                is_stale = true;
            }
        }
        if std::mem::take(&mut is_stale) {
            terminal.draw(|frame| screen::draw(frame, &view, &mut chosen))?;
        }
        if event::poll(KEY_WAIT)? {
            is_stale = true;
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release && !chosen.obey(key, &view) => return Ok(()),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_bounds() {
        for (text, is_good) in [("1s", true), ("100ms", true), ("99ms", false), ("2m", false), ("soon", false)] {
            assert_eq!(interval(text).is_ok(), is_good, "{text}");
        }
    }
}
