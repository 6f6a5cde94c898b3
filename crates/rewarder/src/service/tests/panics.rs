//! Tasks that die leave no epoch between being asked for and being sealed.

use std::io;
use std::sync::Arc;

use futures_util::FutureExt as _;
use ron_kernel::{Builder, KernelOptions, Metrics};
use ron_log::{Disk, SimDisk};

use super::Rig;
use crate::folders::Folders;
use crate::service::engine::ServiceOptions;
use crate::service::make_engine;
use crate::service::rig::{self, PartFolders, SimLedger};
use crate::service::writer::{recover, settle_down};

/// Folders of which one breaks whoever writes to it.
struct BreakingFolders(PartFolders);

impl Folders for BreakingFolders {
    fn make(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        assert_ne!(name, "broken", "the folder breaks");
        self.0.make(name)
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        self.0.open(name)
    }
    fn names(&self) -> io::Result<Vec<String>> {
        self.0.names()
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_writer_ends_its_run_and_no_other() {
    let disk = SimDisk::new(1);
    let mut builder = Builder::new(KernelOptions::default(), Metrics::new());
    let options = ServiceOptions {
        folders: Arc::new(BreakingFolders(PartFolders(disk.clone()))),
        ..rig::options(&disk, &SimLedger::default(), ron_calculus::allocate)
    };
    let (engine, _receivers) = make_engine(&mut builder, options, rig::live());
    recover(&engine).expect("an empty log");
    let seal = |epoch: &str| {
        let computed = rig::computed(epoch, rig::policy(""), 4, ron_calculus::allocate);
        settle_down(&engine, rig::computation(&engine, computed))
    };
    assert!(seal("broken").is_none());
    assert!(engine.flights().is_empty(), "it does not come back");
    assert!(engine.refusal("broken").is_some_and(|refusal| refusal.reason.contains("broke off")));
    seal("e1").expect("others are sealed");
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_that_is_killed_leaves_no_epoch_computing() {
    let rig = Rig::new();
    // The queue of work is full, so that the last one waits.
    for number in 0..2 * ron_types::limits::rewarder::QUEUE_CAPACITY {
        let computed = rig::computed(&format!("e{number}"), rig::policy(""), 1, ron_calculus::allocate);
        let mut scheduling = Box::pin(crate::service::scheduler::schedule(&rig.engine, rig::prepared(&computed)));
        if (&mut scheduling).now_or_never().is_none() {
            assert!(rig.engine.flights().contains_key(&format!("e{number}")), "it waits for room in the queue");
            drop(scheduling);
            assert!(!rig.engine.flights().contains_key(&format!("e{number}")), "nobody computes it");
            return;
        }
    }
    panic!("the queue never filled");
}
