//! Counting again: what the records say against what memory says, and debits against credits.

use super::open::{DAMAGE_NAME, Replay, write_damage};
use super::state::State;
use super::statement::{AccountPage, StatementPage, read_lines};
use super::{Balance, Book, BookError, Inner, lock};
use crate::model::{LedgerError, RunKey, Tally};
use ron_log::{LogError, Position, SegmentReport, VerifyReport};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use tokio::sync::watch;

/// Sums of one asset over all accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssetSums {
    /// The asset.
    pub asset: String,
    /// Units that left accounts.
    pub debits: u128,
    /// Units that came to accounts.
    pub credits: u128,
}

/// Findings of a recount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BookReport {
    /// Batches read.
    pub batches: u64,
    /// Transfers read.
    pub transfers: u64,
    /// Accounts met.
    pub accounts: u64,
    /// Sums by asset; debits and credits are equal in a good book.
    pub assets: Vec<AssetSums>,
    /// Hash over all batches in their order: two copies of one book have the same.
    pub hash: [u8; 32],
    /// Everything that is wrong, in words; empty for a good book.
    pub faults: Vec<String>,
}

impl BookReport {
    /// Nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }

    fn of(replay: &Replay) -> BookReport {
        let state = &replay.state;
        let mut report = BookReport {
            batches: state.batches().len() as u64,
            transfers: state.transfers() as u64,
            accounts: state.account_names().len() as u64,
            hash: state.chain,
            faults: replay.damage(),
            ..BookReport::default()
        };
        if let Some(version) = replay.version {
            report.faults.push(format!("records of version {version}, which this version does not know"));
        }
        for (asset, sums) in state.totals() {
            let Some(sums) = sums else {
                report.faults.push(format!("{asset}: the sums overflow"));
                continue;
            };
            if sums.debits != sums.credits {
                report.faults.push(format!("{asset}: {} units debited, {} credited", sums.debits, sums.credits));
            }
            report.assets.push(AssetSums { asset: asset.to_owned(), debits: sums.debits, credits: sums.credits });
        }
        report
    }
}

/// Batches read, or accounts and runs compared, between two looks at who waits.
const PIECE: usize = 256;

/// The recount that is under way, if one is: whoever asks meanwhile shares it.
#[derive(Default)]
pub(super) struct Recounts {
    current: Mutex<Option<Recounting>>,
    /// Held by the thread that counts: as much memory as the book itself is taken once.
    pub(super) counting: Mutex<()>,
}

struct Recounting {
    /// Held by everybody who waits; the recount ends with the last of them.
    wanted: Weak<()>,
    outcome: watch::Receiver<Option<Recounted>>,
}

pub(super) type Recounted = Result<BookReport, BookError>;

/// A second book, made from the records of the first while that goes on booking.
struct Recount<'a> {
    inner: &'a Inner,
    wanted: &'a Weak<()>,
    replay: Replay,
    /// Batches read.
    done: usize,
}

fn broken(error: LedgerError) -> BookError {
    BookError::Unavailable(error.to_string())
}

impl<'a> Recount<'a> {
    fn is_wanted(&self) -> Result<(), BookError> {
        let left = || BookError::Unavailable("nobody waits for the recount any more".to_owned());
        if self.wanted.strong_count() > 0 { Ok(()) } else { Err(left()) }
    }

    /// What is in memory, at a moment when every batch of it has been read. Payouts wait for none of the reading.
    fn caught_up(&mut self) -> Result<MutexGuard<'a, State>, BookError> {
        loop {
            self.is_wanted()?;
            let state = self.inner.state().map_err(broken)?;
            if state.batches().len() == self.done {
                return Ok(state);
            }
            let next = state.batches()[self.done..].iter().take(PIECE);
            let next: Vec<Position> = next.map(|place| place.position).collect();
            drop(state);
            for position in next {
                self.is_wanted()?;
                self.inner.read_into(&mut self.replay, position)?;
                self.done += 1;
            }
        }
    }

    /// Compares in pieces. Batches that come meanwhile change both books alike, so that what agreed goes on to agree.
    fn compare(mut self) -> Result<BookReport, BookError> {
        let (mut agrees, mut account) = (true, 0);
        loop {
            let state = self.caught_up()?;
            let accounts = self.replay.state.account_names().len();
            if account == accounts {
                break;
            }
            let end = accounts.min(account + PIECE);
            let piece = |place: usize| u32::try_from(place).expect("accounts are numbered with 32 bits");
            agrees &= self.replay.state.agrees_about(piece(account)..piece(end), &state);
            account = end;
        }
        for runs in self.replay.state.run_keys().chunks(PIECE) {
            let state = self.caught_up()?;
            agrees &= runs.iter().all(|run| self.replay.state.agrees_about_run(run, &state));
        }
        let state = self.caught_up()?;
        agrees &= self.replay.state.agrees_with(&state);
        let same_keys = self.replay.state.keys().len() == state.keys().len();
        let is_same_chain = self.replay.state.chain == state.chain;
        drop(state);
        let mut report = BookReport::of(&self.replay);
        if !agrees {
            report.faults.push("memory and log disagree about an account or a run".to_owned());
        }
        if !same_keys || !is_same_chain {
            report.faults.push("memory and log disagree about the transfers".to_owned());
        }
        Ok(report)
    }
}

impl Inner {
    /// Reads every batch anew, as long as somebody wants the answer.
    fn recount(&self, wanted: &Weak<()>) -> Recounted {
        // One that is no longer wanted ends before the next begins.
        let _counting = lock(&self.recounts.counting);
        let report = Recount { inner: self, wanted, replay: Replay::new(), done: 0 }.compare()?;
        if !report.is_clean() {
            self.stop_booking(&report.faults);
        }
        Ok(report)
    }

    fn read_into(&self, replay: &mut Replay, position: Position) -> Result<(), BookError> {
        match self.log.read(position) {
            Ok(record) => replay.take(position, &record.head, &record.body),
            Err(LogError::Corrupt { .. } | LogError::Gone { .. }) => replay.unreadable += 1,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// What was found stays found: from here on nothing is booked, by this process or a later one.
    fn stop_booking(&self, faults: &[String]) {
        let mut damage = lock(&self.damage);
        if damage.is_none() {
            let words = faults.join("; ");
            tracing::error!(damage = %words, "the book does not verify: it tells what it knows and books nothing");
            if let Err(error) = write_damage(self.disk.as_ref(), &words) {
                tracing::error!(%error, "the damage of the book could not be written down in {DAMAGE_NAME}");
            }
            *damage = Some(words);
        }
    }
}

impl Book {
    /// Counts the whole book again from its log, which takes as much memory as the book itself: once, for all who ask
    /// meanwhile, and no longer than one of them waits. A book that does not verify stops booking.
    pub async fn verify(&self) -> Result<BookReport, BookError> {
        let (_wanted, mut outcome) = self.join_recount();
        let given_up = || BookError::Unavailable("the recount was given up".to_owned());
        let found = outcome.wait_for(Option::is_some).await.map_err(|_| given_up())?.clone();
        found.unwrap_or_else(|| Err(given_up()))
    }

    /// The recount that is under way, or a new one.
    pub(super) fn join_recount(&self) -> (Arc<()>, watch::Receiver<Option<Recounted>>) {
        let mut current = lock(&self.inner.recounts.current);
        let shared = current.as_ref().and_then(|shared| Some((shared.wanted.upgrade()?, shared.outcome.clone())));
        if let Some(shared) = shared.filter(|(_, outcome)| outcome.borrow().is_none()) {
            return shared;
        }
        let (wanted, (told, outcome)) = (Arc::new(()), watch::channel(None));
        let (inner, asked) = (Arc::clone(&self.inner), Arc::downgrade(&wanted));
        *current = Some(Recounting { wanted: asked.clone(), outcome: outcome.clone() });
        // Not waited for: its end is told, and dropping what tells it is an end too.
        drop(tokio::task::spawn_blocking(move || {
            let found = inner.recount(&asked);
            // Who is told may open the book again at once.
            drop(inner);
            told.send_replace(Some(found));
        }));
        (wanted, outcome)
    }
}

/// A book read from its files while no node has it open. Nothing is changed, not even what a start would mend.
pub struct Inspection {
    directory: PathBuf,
    state: State,
    /// Findings in the book, with those in the files of its log among the faults.
    pub report: BookReport,
}

/// Reads the book in a directory that no node has open; [`LogError::InUse`] if one has.
pub fn inspect(directory: &Path) -> Result<Inspection, BookError> {
    let mut replay = Replay::new();
    let found = ron_log::walk(directory, &mut |record, body| replay.take(record.position, record.head, body))?;
    let mut report = BookReport::of(&replay);
    report.faults.extend(faults_of(&found));
    match std::fs::read_to_string(directory.join(DAMAGE_NAME)) {
        Ok(words) => report.faults.push(format!("found by a start: {}", words.trim())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => report.faults.push(format!("{DAMAGE_NAME} cannot be read: {error}")),
    }
    Ok(Inspection { directory: directory.to_path_buf(), state: replay.state, report })
}

fn faults_of(found: &VerifyReport) -> Vec<String> {
    let lost: u64 = found.segments.iter().map(SegmentReport::lost_records).sum::<u64>() + found.lost_at_end;
    let cut = found.segments.iter().filter(|segment| segment.cut_bytes > 0).count();
    let counts = [
        (lost, "records damaged"),
        (found.missing.len() as u64, "segments missing"),
        (cut as u64, "segments cut"),
        (u64::from(found.manifest_lost), "list of segments lost"),
    ];
    let mut faults: Vec<String> = Vec::new();
    faults.extend(counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
    if faults.is_empty() && !found.is_clean() {
        faults.push("the files of the log are damaged".to_owned());
    }
    faults
}

impl Inspection {
    /// What an account has, by asset; nothing if the book does not know it.
    pub fn balances(&self, account: &str) -> Vec<Balance> {
        let number = self.state.account_names().find(account);
        let held = number.map(|number| self.state.holdings(number)).unwrap_or_default();
        held.into_iter().map(|(asset, sums)| Balance::new(asset, sums)).collect()
    }

    /// What the book holds of a run, by asset.
    pub fn tally(&self, run: &RunKey) -> Vec<Tally> {
        self.state.tally(run)
    }

    /// Up to `limit` accounts after the one named, or from the first.
    pub fn accounts(&self, after: Option<&str>, limit: usize) -> AccountPage {
        self.state.account_page(after, limit)
    }

    /// Up to `limit` transfers of an account, going back from the newest or from where a page ended.
    pub fn statement(&self, account: &str, from: Option<&str>, limit: usize) -> Result<StatementPage, BookError> {
        let (wanted, next) = self.state.wanted(account, from, limit)?;
        let is_wanted = |position| wanted.iter().any(|wanted| wanted.is_at(position));
        let mut found: HashMap<Position, (Vec<u8>, Vec<u8>)> = HashMap::new();
        ron_log::walk(&self.directory, &mut |record, body| {
            if is_wanted(record.position) {
                found.insert(record.position, (record.head.to_vec(), body.to_vec()));
            }
        })?;
        let lines = read_lines(account, &wanted, |position| {
            let (head, body) = found.remove(&position).ok_or(LogError::Corrupt { position })?;
            Ok(ron_log::Record { head: head.into(), body: body.into() })
        })?;
        Ok(StatementPage { lines, next })
    }
}
