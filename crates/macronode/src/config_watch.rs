//! The configuration watcher: sees edits, SIGHUP and operator reloads, validates, diffs, swaps the snapshot.

mod file_watch;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use notify::Watcher as _;
use ron_admin::ReloadReport;
use ron_kernel::coalesce::{Coalesce, Coalescing};
use ron_kernel::kernel::ConfigChange;
use ron_kernel::{KernelHandle, Snapshot, TaskContext, TaskError, TaskResult, clock};
use ron_types::Error;
use ron_types::settings::Reload;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::file_watch::FileWatch;
use crate::config::{self, ChangedKey, Config, ConfigErrors, Loaded, Reading, Sources};
use crate::errors::{Code, Failure};
use crate::listeners::Listeners;
use crate::logging::LogControl;
use crate::{planes, specs};

/// The file is read again at least this often, for file systems that tell nobody about changes.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// After a notice of the folder the watcher rests this long: in a folder where a log is written, too, the file would
/// otherwise be read all the time.
const REST: Duration = Duration::from_millis(20);

/// A request to look at the configuration again.
pub enum ReloadRequest {
    /// Something happened in the file's folder; one such notice waits at most.
    FolderChanged,
    /// Operators wait for the outcome; requests that come before the reload begins share one reload.
    Asked(Vec<oneshot::Sender<Result<ReloadReport, Error>>>),
}

impl Coalesce for ReloadRequest {
    type Key = bool;

    fn key(&self) -> bool {
        matches!(self, ReloadRequest::Asked(_))
    }

    fn absorb(&mut self, newer: Self) {
        if let (ReloadRequest::Asked(waiting), ReloadRequest::Asked(more)) = (self, newer) {
            waiting.extend(more);
        }
    }
}

/// Parts that the watcher works with. Clones share everything.
#[derive(Clone)]
pub struct LiveConfig {
    /// Sources of the configuration, read again at every reload.
    pub sources: Sources,
    /// Configuration in force; its readers derive their own part from it.
    pub config: Snapshot<Config>,
    /// Handle that replaces the log filter.
    pub log: LogControl,
    /// Queue that tells the supervisor which services to restart.
    pub updates: Coalescing<ConfigChange>,
    /// Sockets of the planes; a new address is bound before it is put in force.
    pub listeners: Arc<Listeners>,
    /// The file as it was seen last, by whichever life of the watcher. Never held while anybody waits.
    file: Arc<Mutex<FileWatch>>,
}

/// The task: reloads on SIGHUP, on request and when the file changes, until it is told to stop.
pub async fn config_watcher(context: TaskContext, live: LiveConfig, requests: Coalescing<ReloadRequest>) -> TaskResult {
    let failed = |error: &dyn std::fmt::Display| TaskError::Failed(error.to_string());
    let mut hangup = signal(SignalKind::hangup()).map_err(|error| failed(&error))?;
    let _watch = watch_folder(&live.sources, requests.clone());
    let mut poll = tokio::time::interval(POLL_EVERY);
    context.ready().await;
    let stopping = context.stopping();
    tokio::pin!(stopping);
    loop {
        context.beat();
        let kernel = context.kernel();
        tokio::select! {
            biased;
            () = &mut stopping => return Ok(()),
            // Who asks says that the file is written.
            _ = hangup.recv() => drop(live.reload(kernel, "SIGHUP", &live.sources.read())),
            request = requests.recv() => match request {
                ReloadRequest::Asked(waiting) => {
                    let outcome = live.reload(kernel, "operator", &live.sources.read());
                    for reply in waiting {
                        let _ = reply.send(outcome.clone());
                    }
                }
                ReloadRequest::FolderChanged => {
                    tokio::time::sleep(REST).await;
                    live.reload_if_changed(kernel);
                }
            },
            () = until(live.file().settles_at()) => live.reload_if_changed(kernel),
            _ = poll.tick() => live.reload_if_changed(kernel),
        }
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Watches the folder, not the file: a rename into place or a symlink swap replaces the file's inode.
fn watch_folder(sources: &Sources, tell: Coalescing<ReloadRequest>) -> Option<notify::RecommendedWatcher> {
    let folder = sources.file.as_ref()?.parent().map(|folder| match folder.as_os_str().is_empty() {
        true => PathBuf::from("."),
        false => folder.to_owned(),
    })?;
    let told = move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| !event.kind.is_access()) {
            // A full queue already holds a reason to look.
            let _ = tell.offer(ReloadRequest::FolderChanged);
        }
    };
    let watching = notify::recommended_watcher(told).and_then(|mut watcher| {
        watcher.watch(&folder, notify::RecursiveMode::NonRecursive)?;
        Ok(watcher)
    });
    watching.inspect_err(|error| tracing::warn!(%error, "cannot watch the folder; the file is polled instead")).ok()
}

impl LiveConfig {
    /// The parts of a node with this configuration, loaded from these sources.
    pub fn new(
        sources: Sources,
        loaded: Loaded,
        log: LogControl,
        updates: Coalescing<ConfigChange>,
        listeners: Arc<Listeners>,
    ) -> Self {
        let Loaded { config, reading, .. } = loaded;
        let file = Arc::new(Mutex::new(FileWatch::new(reading)));
        LiveConfig { sources, config: Snapshot::new(config), log, updates, listeners, file }
    }

    fn file(&self) -> MutexGuard<'_, FileWatch> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reload_if_changed(&self, kernel: &KernelHandle) {
        let settled = self.file().look(clock::now(), self.sources.read());
        if let Some(reading) = settled {
            let _ = self.reload(kernel, "file", &reading);
        }
    }

    /// Validate, diff, swap, tell. A bad edit is a warning, a metric and the old configuration.
    fn reload(&self, kernel: &KernelHandle, cause: &'static str, reading: &Reading) -> Result<ReloadReport, Error> {
        // A change during the reload differs from this and is found by the next look.
        self.file().handle(reading);
        crate::health::notify_reloading();
        let outcome = self.try_reload(kernel, reading);
        match &outcome {
            Ok(report) if report.changed.is_empty() => tracing::debug!(cause, "configuration unchanged"),
            Ok(report) => {
                tracing::info!(cause, version = report.version, changed = ?report.changed, "configuration applied")
            }
            Err(error) => {
                kernel.metrics().config_rejected.inc();
                tracing::warn!(cause, reason = %error.detail, "{} the old configuration stays", Code::ReloadRefused);
            }
        }
        crate::health::notify(sd_notify::NotifyState::Ready);
        outcome
    }

    fn try_reload(&self, kernel: &KernelHandle, reading: &Reading) -> Result<ReloadReport, Error> {
        let refused = |errors: ConfigErrors| Error::schema(errors.to_string());
        if self.file().has_lost_all(reading) {
            return Err(Error::schema(
                "the file is empty or gone, and was neither before; where no settings are meant, restart the node",
            ));
        }
        let loaded = config::load_read(&self.sources, reading).map_err(refused)?;
        let current = self.config.keep();
        let next = current.value.after_reload(&loaded).map_err(refused)?;
        let waiting = keys_of(next.diff(&loaded.config));
        for key in &waiting {
            tracing::warn!(%key, "takes effect when the process is restarted");
        }
        let changes = current.value.diff(&next);
        if changes.is_empty() {
            self.file().put_in_force(reading);
            return Ok(ReloadReport { version: current.version, waiting, ..ReloadReport::default() });
        }
        let restart = to_restart(&changes);
        self.prepare(&current.value, &next)?;
        let drain_deadline = next.io.drain_deadline.duration();
        let version = self.config.publish(next);
        self.file().put_in_force(reading);
        kernel.metrics().config_updates.inc();
        kernel.metrics().config_version.set(version as i64);
        let restarted = restart.iter().map(|service| (*service).to_owned()).collect();
        self.updates.offer(ConfigChange { version, restart, drain_deadline })?;
        Ok(ReloadReport { version, changed: keys_of(changes), waiting, restarted })
    }

    /// Does everything that can fail before anything is published: what cannot be had refuses the reload and leaves
    /// the old configuration whole.
    fn prepare(&self, current: &Config, next: &Config) -> Result<(), Error> {
        let refused = |failure: Failure| Error::schema(failure.to_string());
        if next.runs("http") {
            planes::tls_of(&next.api).map_err(refused)?;
        }
        let prepared = planes::stage(&self.listeners, next).map_err(refused).and_then(|()| {
            match current.log.filter == next.log.filter {
                true => Ok(()),
                false => self.log.set_filter(&next.log.filter).map_err(Error::schema),
            }
        });
        prepared.inspect_err(|_| self.listeners.unstage())
    }
}

fn keys_of(changes: Vec<ChangedKey>) -> Vec<String> {
    changes.into_iter().map(|change| change.key).collect()
}

/// Services that take up their part of these changes only in another life.
fn to_restart(changes: &[ChangedKey]) -> Vec<&'static str> {
    let named = |change: &ChangedKey| match &change.reload {
        Reload::Restart(service) => specs::units().map(|unit| unit.name).find(|name| name == service),
        Reload::Live | Reload::Process => None,
    };
    let mut restart: Vec<&'static str> = changes.iter().filter_map(named).collect();
    restart.sort_unstable();
    restart.dedup();
    restart
}

/// The operator's way to ask for a reload and learn what came of it.
#[derive(Clone)]
pub struct ReloadPort(pub Coalescing<ReloadRequest>);

impl ReloadPort {
    /// Asks for a reload and waits for its outcome.
    pub async fn reload(&self) -> Result<ReloadReport, Error> {
        let (reply, outcome) = oneshot::channel();
        self.0.offer(ReloadRequest::Asked(vec![reply]))?;
        outcome.await.map_err(|_| Error::canceled("the configuration watcher has ended"))?
    }
}
