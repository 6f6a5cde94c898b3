//! Files that are nobody's among the artifacts keep nothing from starting, and stay.

use std::fs;
use std::sync::Arc;

use ron_kernel::{Builder, KernelOptions, Metrics};
use ron_log::SimDisk;

use crate::artifacts;
use crate::folders::{Folders as _, RealFolders};
use crate::hashing::b3;
use crate::job::Unwatched;
use crate::service::engine::ServiceOptions;
use crate::service::rig::{self, SimLedger};
use crate::service::writer::{recover, settle_down};
use crate::service::{Receivers, engine::Engine, make_engine};

fn start(disk: &SimDisk, folders: &RealFolders) -> (Arc<Engine>, Receivers) {
    let mut builder = Builder::new(KernelOptions::default(), Metrics::new());
    let options = rig::options(disk, &SimLedger::default(), ron_calculus::allocate);
    let options = ServiceOptions { folders: Arc::new(folders.clone()), ..options };
    let started = make_engine(&mut builder, options, rig::live());
    recover(&started.0).expect("whatever lies there");
    started
}

#[tokio::test(start_paused = true)]
async fn a_stray_file_or_folder_makes_nothing_unready_and_nothing_is_deleted() {
    let scratch = tempfile::tempdir().expect("a folder");
    let epochs = scratch.path().join("epochs");
    let folders = RealFolders::open(epochs.clone()).expect("made");
    let disk = SimDisk::new(1);
    let seal = |engine: &Arc<Engine>, epoch: &str| {
        let computed = rig::computed(epoch, rig::policy(""), 4, ron_calculus::allocate);
        settle_down(engine, rig::computation(engine, computed))
    };
    {
        let (engine, _receivers) = start(&disk, &folders);
        seal(&engine, "e1").expect("sealed");
    }
    fs::write(epochs.join("notes.txt"), "mine").expect("written");
    fs::create_dir_all(epochs.join("backup/deep")).expect("made");
    fs::write(epochs.join("backup/usage.parquet"), "mine").expect("written");
    fs::write(epochs.join("e1/notes.txt"), "mine").expect("written");
    fs::create_dir(epochs.join("e1.old")).expect("made");
    for file in ["run.json", "usage.parquet", "commitment"] {
        fs::copy(epochs.join("e1").join(file), epochs.join("e1.old").join(file)).expect("copied");
    }
    // What a crash left of a run goes as before; a whole one was perhaps paid.
    let whole = rig::computed("whole", rig::policy(""), 4, ron_calculus::allocate);
    artifacts::write(&whole, &*folders.make("whole").expect("made"), 1, &Unwatched).expect("written");
    let never = rig::computed("never", rig::policy(""), 4, ron_calculus::allocate);
    artifacts::write(&never, &*folders.make("never").expect("made"), 1, &Unwatched).expect("written");
    fs::remove_file(epochs.join("never/run.json")).expect("removed");

    let (engine, _receivers) = start(&SimDisk::restart(&disk), &folders);
    for stray in ["notes.txt", "backup/deep", "backup/usage.parquet", "e1/notes.txt", "e1.old/run.json"] {
        assert!(epochs.join(stray).exists(), "{stray} is deleted");
    }
    assert!(!epochs.join("never").exists() && !epochs.join("whole").exists(), "nobody has sealed them");
    let aside = || {
        let names = fs::read_dir(&epochs).expect("listed").map(|entry| entry.expect("an entry").file_name());
        names.filter(|name| name.to_string_lossy().starts_with(".whole.")).collect::<Vec<_>>()
    };
    assert_eq!(aside().len(), 1, "set aside");
    let commitment = fs::read(epochs.join(&aside()[0]).join("commitment")).expect("it is whole");
    assert_eq!(
        commitment,
        format!("{}\n", b3(&artifacts::seal_of(&whole, 1, &Unwatched).expect("hashed").commitment)).into_bytes()
    );
    assert_eq!(engine.room.bytes(), folders.bytes("e1").expect("measured"));
    let row = engine.store().expect("open").get("e1").expect("there");
    crate::service::reads::open_run(&engine, &row).and_then(|run| run.load()).expect("it is read as before");
    // Nor does a run that is called like a stray folder take its place.
    assert!(seal(&engine, "backup").is_none());
    assert!(engine.refusal("backup").is_some_and(|refusal| refusal.reason.contains("move them away")));
    assert!(epochs.join("backup/usage.parquet").exists());
    seal(&engine, "e2").expect("others are sealed");
    fs::write(epochs.join("e2/notes.txt"), "mine").expect("written");
    engine.options.folders.remove("e2").expect("removed");
    let left: Vec<_> = fs::read_dir(epochs.join("e2")).expect("there").collect();
    assert_eq!(left.len(), 1, "what somebody put beside a run outlives it");
}
