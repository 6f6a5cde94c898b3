//! `macronode top`: a node as it works, live on the terminal or once in plain text.

mod collect;
mod figures;
mod plain;
mod screen;
mod view;

use std::io::IsTerminal as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::Args;
use collect::Collector;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use screen::Chosen;
use tokio::signal::unix::{SignalKind, signal};
pub use view::{LogNumbers, NodeStats};
use view::{Sample, Sort, View};

use super::{Report, wait};
use crate::cli::ApiArgs;
use crate::config::TimeSpan;
use crate::errors::{Code, Failure};

/// How long a key may wait to be seen.
const KEY_WAIT: Duration = Duration::from_millis(50);
/// As the shell reports a process that ended with its terminal.
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

/// What the watching thread hands to the drawing one.
#[derive(Default)]
struct Shared {
    view: View,
    trouble: Option<String>,
    /// Rises with every look.
    looks: u64,
    /// A signal asked for the end.
    is_over: bool,
}

fn interval(text: &str) -> Result<TimeSpan, String> {
    let time = text.parse::<TimeSpan>().map_err(|error| error.to_string())?;
    match time.0 {
        INTERVAL_MIN_MS..=INTERVAL_MAX_MS => Ok(time),
        _ => Err("must be between 100ms and 1m".to_owned()),
    }
}

/// Watches.
pub fn top(args: &TopArgs) -> Result<Report, Failure> {
    let collector = Collector::find(args.admin.as_ref(), &args.node)?;
    if args.once || args.node.json || !std::io::stdout().is_terminal() {
        return wait(once(collector, args));
    }
    live(collector, args.interval.duration())
}

/// Two looks, so that rates are known.
async fn once(mut collector: Collector, args: &TopArgs) -> Result<Report, Failure> {
    let before = collector.sample().await?;
    tokio::time::sleep(args.interval.duration()).await;
    let now = collector.sample().await?;
    let mut view = View::of(&collector.address(), &now, Some(&before));
    Sort::default().apply(&mut view.topics);
    Ok(Report::clean(match args.node.json {
        true => serde_json::to_string(&view).unwrap_or_default() + "\n",
        false => plain::show(&view),
    }))
}

fn live(collector: Collector, interval: Duration) -> Result<Report, Failure> {
    let view = View { address: collector.address(), state: "looking".to_owned(), ..View::default() };
    let shared = Arc::new(Mutex::new(Shared { view, ..Shared::default() }));
    let watched = Arc::clone(&shared);
    // The thread ends with the process: it holds nothing that must be given back.
    std::thread::Builder::new()
        .name("top".to_owned())
        .spawn(move || wait(async { watch(collector, interval, &watched).await }))
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
async fn watch(mut collector: Collector, interval: Duration, shared: &Mutex<Shared>) -> Result<Report, Failure> {
    let unheard = |error: std::io::Error| Failure::new(Code::CannotStart, format!("signals cannot be heard: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(unheard)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(unheard)?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(unheard)?;
    let mut before: Option<Sample> = None;
    let looking = async {
        loop {
            let looked = collector.sample().await;
            let address = collector.address();
            publish(shared, &address, looked, &mut before);
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

fn publish(shared: &Mutex<Shared>, address: &str, looked: Result<Sample, Failure>, before: &mut Option<Sample>) {
    let mut shared = lock(shared);
    shared.looks += 1;
    match looked {
        Ok(now) => {
            shared.view = View::of(address, &now, before.as_ref());
            shared.trouble = None;
            *before = Some(now);
        }
        // What was seen last stays on the screen, and a rate across the gap would mislead.
        Err(failure) => {
            shared.trouble = Some(failure.to_string());
            *before = None;
        }
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn draw_until_told(terminal: &mut DefaultTerminal, shared: &Mutex<Shared>) -> std::io::Result<()> {
    let mut chosen = Chosen::default();
    let (mut view, mut trouble) = (lock(shared).view.clone(), None);
    let (mut looks, mut is_stale) = (0, true);
    loop {
        {
            let shared = lock(shared);
            if shared.is_over {
                return Ok(());
            }
            if shared.looks != looks && !chosen.is_paused {
                (view, trouble, looks) = (shared.view.clone(), shared.trouble.clone(), shared.looks);
                is_stale = true;
            }
        }
        if std::mem::take(&mut is_stale) {
            terminal.draw(|frame| screen::draw(frame, &view, trouble.as_deref(), &mut chosen))?;
        }
        if event::poll(KEY_WAIT)? {
            is_stale = true;
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release && !chosen.obey(key) => return Ok(()),
                _ => {}
            }
        }
    }
}

impl Chosen {
    /// Does what a key says; false if it says to leave.
    fn obey(&mut self, key: KeyEvent) -> bool {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c' | 'd') if is_control => return false,
            KeyCode::Esc if self.is_help => self.is_help = false,
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('s') => (self.sort, self.offset) = (self.sort.next(), 0),
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('?' | 'h') => self.is_help = !self.is_help,
            KeyCode::Up | KeyCode::Char('k') => self.offset = self.offset.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.offset = self.offset.saturating_add(1),
            KeyCode::PageUp => self.offset = self.offset.saturating_sub(self.page),
            KeyCode::PageDown => self.offset = self.offset.saturating_add(self.page),
            KeyCode::Home => self.offset = 0,
            _ => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_do_what_the_help_says() {
        let key = |code: KeyCode| KeyEvent::new(code, KeyModifiers::NONE);
        let mut chosen = Chosen { page: 10, ..Chosen::default() };
        for (code, offset) in [
            (KeyCode::Down, 1),
            (KeyCode::PageDown, 11),
            (KeyCode::Up, 10),
            (KeyCode::PageUp, 0),
            (KeyCode::Up, 0),
            (KeyCode::Down, 1),
            (KeyCode::Home, 0),
        ] {
            assert!(chosen.obey(key(code)));
            assert_eq!(chosen.offset, offset, "{code:?}");
        }
        assert!(chosen.obey(key(KeyCode::Char('s'))) && chosen.sort == Sort::Leased);
        assert!(chosen.obey(key(KeyCode::Char('p'))) && chosen.is_paused);
        assert!(chosen.obey(key(KeyCode::Char('?'))) && chosen.is_help);
        assert!(chosen.obey(key(KeyCode::Esc)) && !chosen.is_help, "the first Esc closes the help");
        assert!(!chosen.obey(key(KeyCode::Esc)));
        assert!(!chosen.obey(key(KeyCode::Char('q'))));
        assert!(!chosen.obey(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    }

    #[test]
    fn trouble_keeps_the_last_numbers_and_starts_rates_anew() {
        let shared = Mutex::new(Shared::default());
        let (before, now) = view::tests::samples();
        let mut last = None;
        publish(&shared, "here", Ok(before), &mut last);
        publish(&shared, "here", Ok(now.clone()), &mut last);
        let syncs = || lock(&shared).view.log.as_ref().and_then(|log| log.syncs_per_second);
        assert_eq!(syncs(), Some(100.0));
        publish(&shared, "here", Err(Failure::new(Code::NoNode, "gone")), &mut last);
        let told = || {
            let shared = lock(&shared);
            (shared.trouble.clone(), shared.view.topics.len(), shared.looks)
        };
        assert_eq!(told(), (Some("MN0017 gone".to_owned()), 3, 3));
        publish(&shared, "here", Ok(now), &mut last);
        assert_eq!(syncs(), None);
        assert_eq!(told(), (None, 3, 4));
    }

    #[test]
    fn intervals_have_bounds() {
        for (text, is_good) in [("1s", true), ("100ms", true), ("99ms", false), ("2m", false), ("soon", false)] {
            assert_eq!(interval(text).is_ok(), is_good, "{text}");
        }
    }
}
