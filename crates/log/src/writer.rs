//! The threads of a log: one commits when the disk is free, one makes segments and sidecars.

use crate::core::{Core, FailOnPanic};
use crate::disk::Durability;
use crate::error::LogError;
use crate::model::Lsn;
use std::io;
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};

/// The running threads. Stop them with [`WriterThread::stop`]; a drop does the same and hides the result.
pub struct WriterThread {
    core: Arc<Core>,
    writer: Option<JoinHandle<()>>,
    helper: Option<JoinHandle<()>>,
    is_stopped: bool,
}

/// Starts a thread of this name that does this.
type Spawn<'a> = &'a dyn Fn(&str, &Arc<Core>, fn(&Core)) -> io::Result<JoinHandle<()>>;

impl WriterThread {
    pub(crate) fn start(core: Arc<Core>) -> io::Result<WriterThread> {
        WriterThread::start_with(core, &spawn)
    }

    fn start_with(core: Arc<Core>, spawn: Spawn) -> io::Result<WriterThread> {
        {
            let mut upkeep = core.upkeep();
            if upkeep.has_threads {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the log has its writer"));
            }
            upkeep.has_threads = true;
            upkeep.is_stopping = false;
        }
        core.gather().stopping = false;
        // From here on a drop takes back what was begun: a thread that cannot be started now may be started later.
        let mut threads = WriterThread { core, writer: None, helper: None, is_stopped: false };
        threads.helper = Some(spawn("log-helper", &threads.core, help)?);
        // In memory a commit costs less than waking a thread for it: the appending thread commits.
        if threads.core.disk.durability() != Durability::Ram {
            threads.writer = Some(spawn("log-writer", &threads.core, write)?);
        }
        Ok(threads)
    }

    /// Commits what is gathered, marks the clean stop, and waits for the threads to end.
    pub fn stop(mut self) -> Result<Lsn, LogError> {
        self.join();
        self.core.seal()
    }

    fn join(&mut self) {
        self.core.gather().stopping = true;
        self.core.work.notify_all();
        // The writer ends before the helper, because its last commits may still ask for upkeep.
        join(self.writer.take());
        self.core.upkeep().is_stopping = true;
        self.core.upkeep_work.notify_all();
        join(self.helper.take());
        self.core.upkeep().has_threads = false;
        self.is_stopped = true;
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        if !self.is_stopped {
            self.join();
            if let Err(error) = self.core.seal() {
                tracing::warn!(%error, "the log could not be sealed");
            }
        }
    }
}

fn spawn(name: &str, core: &Arc<Core>, run: fn(&Core)) -> io::Result<JoinHandle<()>> {
    let core = Arc::clone(core);
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        {
            let _guard = FailOnPanic::new(&core);
            run(&core);
        }
        drop(core);
        ron_amnesia::wipe_stack();
    })
}

fn join(thread: Option<JoinHandle<()>>) {
    // A thread that panicked has failed the log; there is no more to say here.
    let _ = thread.map(JoinHandle::join);
}

fn write(core: &Core) {
    while wait_for_records(core) {
        if core.commit().is_err() {
            return;
        }
    }
}

/// Sleeps until something is gathered; false when it is time to end.
fn wait_for_records(core: &Core) -> bool {
    let mut gather = core.gather();
    while gather.is_empty() && !gather.stopping && gather.failed().is_none() {
        gather.writer_sleeps = true;
        gather = core.work.wait(gather).unwrap_or_else(PoisonError::into_inner);
    }
    gather.writer_sleeps = false;
    !gather.is_empty() && gather.failed().is_none()
}

fn help(core: &Core) {
    while wait_for_upkeep(core) {
        if core.do_upkeep().is_err() {
            return;
        }
    }
}

fn wait_for_upkeep(core: &Core) -> bool {
    let mut upkeep = core.upkeep();
    while !upkeep.is_wanted && !upkeep.is_stopping {
        upkeep = core.upkeep_work.wait(upkeep).unwrap_or_else(PoisonError::into_inner);
    }
    // A request that meets the stop is kept: without threads, the next flush does the work.
    upkeep.is_wanted = upkeep.is_wanted && upkeep.is_stopping;
    !upkeep.is_stopping
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Class, Log, LogOptions, SimDisk};

    #[test]
    fn a_thread_that_could_not_be_started_is_tried_again() {
        for failing in ["log-helper", "log-writer"] {
            let options =
                LogOptions { segment_bytes: 4096, quota_bytes: 1 << 20, reserve_bytes: 8192, ..LogOptions::default() };
            let (log, _) = Log::open(Arc::new(SimDisk::new(1)), options, &mut |_, _| {}).expect("an empty disk");
            let refuse = |name: &str, core: &Arc<Core>, run: fn(&Core)| match name == failing {
                true => Err(io::ErrorKind::WouldBlock.into()),
                false => spawn(name, core, run),
            };
            let refused = WriterThread::start_with(Arc::clone(&log.core), &refuse).err();
            assert_eq!(refused.map(|error| error.kind()), Some(io::ErrorKind::WouldBlock), "{failing}");
            let threads = log.start_writer().expect("nothing of the first try is in the way");
            log.appender().append(Class::Data, b"h", b"b").expect("there is room");
            assert_eq!(threads.stop().expect("the threads end").0, 1);
        }
    }
}
