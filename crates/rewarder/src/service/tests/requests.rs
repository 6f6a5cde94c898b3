//! What requests name and hold: files, uploads, shares of the reads.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::oneshot;

use super::*;
use crate::service::reads::{self, ReadShare, holds_same_inputs, open_run};
use crate::service::request::{ComputeRequest, Grounds, InputRef};

/// What the preparation of requests knows of a node with this folder of inputs and these uploads.
fn grounds<'a>(inputs: &'a Arc<crate::inputs::Inputs>, dir: &'a std::path::Path) -> Grounds<'a> {
    Grounds {
        inputs,
        inputs_dir: Some(dir),
        trusted: None,
        allows_unsigned: true,
        is_amnesia: false,
        memory_bytes: 64 << 20,
        threads: 1,
        deadline: Deadline::after(Duration::from_secs(60)),
    }
}

fn request(epoch: &str, inputs: Vec<InputRef>) -> ComputeRequest {
    ComputeRequest {
        epoch: epoch.parse().expect("a name"),
        inputs,
        policy: serde_json::to_vec(&rig::policy("")).expect("JSON"),
        pools: std::collections::BTreeMap::new(),
        carry_from: None,
        unsigned: true,
        deadline: None,
    }
}

#[test]
fn an_input_that_is_named_twice_is_refused() {
    let (scratch, uploads) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let inputs = Arc::new(crate::inputs::Inputs::open(uploads.path().to_owned()).expect("opened"));
    let content = b"actor,quantity\nann,1\n";
    for name in ["a.csv", "b.csv"] {
        std::fs::write(scratch.path().join(name), content).expect("written");
    }
    std::fs::hard_link(scratch.path().join("a.csv"), scratch.path().join("hard.csv")).expect("linked");
    std::os::unix::fs::symlink("a.csv", scratch.path().join("soft.csv")).expect("linked");
    let hash = *blake3::hash(content).as_bytes();
    let mut upload = inputs.begin(hash, 0, 1 << 20).expect("begun");
    upload.write(content).expect("room");
    upload.finish().expect("as said");
    let file = |path: &str, b3: Option<[u8; 32]>| InputRef::File { path: path.to_owned(), b3 };
    for (named, is_fine) in [
        (vec![file("a.csv", None), file("b.csv", None)], true),
        (vec![file("a.csv", None), InputRef::Upload(hash)], true),
        (vec![file("a.csv", None), file("a.csv", None)], false),
        (vec![file("a.csv", None), file("hard.csv", None)], false),
        (vec![file("a.csv", None), file("soft.csv", None)], false),
        (vec![InputRef::Upload(hash), InputRef::Upload(hash)], false),
        (vec![InputRef::Upload(hash), file("b.csv", Some(hash))], false),
    ] {
        let prepared = request("e1", named.clone()).prepare(&grounds(&inputs, scratch.path()));
        match prepared {
            Ok(_) => assert!(is_fine, "{named:?}"),
            Err(error) => assert!(!is_fine && error.detail.contains("inputs[1]"), "{named:?}: {error}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn other_bytes_under_the_same_path_are_another_request() {
    let mut rig = Rig::new();
    let (scratch, uploads) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let inputs = Arc::new(crate::inputs::Inputs::open(uploads.path().to_owned()).expect("opened"));
    let path = scratch.path().join("u.csv");
    std::fs::write(&path, "actor,quantity\nann,1\n").expect("written");
    let named = || vec![InputRef::File { path: "u.csv".to_owned(), b3: None }];
    let prepare = || request("e1", named()).prepare(&grounds(&inputs, scratch.path())).expect("fine");
    assert_eq!(schedule(&rig.engine, prepare()).await, Ok(Begun::Started));
    let ticket = rig.engine.next_ticket(&mut rig.receivers.jobs).await.expect("a run");
    let computed = crate::job::compute(&ticket.flight.job, &crate::job::Unwatched).expect("computed");
    let (written, _) = tokio::sync::oneshot::channel();
    let outcome = Ok(Box::new(computed));
    let row =
        settle_down(&rig.engine, crate::service::engine::Computation { ticket, outcome, written }).expect("sealed");
    let run = open_run(&rig.engine, &row).expect("whole");
    assert!(holds_same_inputs(&run, &prepare()).expect("compared"));
    std::fs::write(&path, "actor,quantity\nann,2\n").expect("written");
    assert!(!holds_same_inputs(&run, &prepare()).expect("compared"), "other bytes");
    let rewarder = crate::service::Rewarder { engine: Arc::clone(&rig.engine) };
    let deadline = Deadline::after(std::time::Duration::from_secs(60));
    let ann = ron_auth::Subject::named("ann");
    let refused = rewarder.compare_files(&ann, &prepare(), deadline).await.expect_err("another request");
    assert_eq!(refused.kind, Kind::Conflict);
    std::fs::write(&path, "actor,quantity\nann,1\n").expect("written");
    rewarder.compare_files(&ann, &prepare(), deadline).await.expect("the same again");
    // Whole files are read for that, so that nobody has all of it.
    let held = rig.engine.run_shares.compare(&ann).expect("free");
    let busy = rewarder.compare_files(&ann, &prepare(), deadline).await.expect_err("one at a time");
    assert_eq!(busy.kind, Kind::Busy);
    rewarder.compare_files(&ron_auth::Subject::named("bob"), &prepare(), deadline).await.expect("for others");
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_run_is_made_anew_from_a_mended_file_under_the_same_path() {
    let mut rig = Rig::new();
    let (scratch, uploads) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let inputs = Arc::new(crate::inputs::Inputs::open(uploads.path().to_owned()).expect("opened"));
    let path = scratch.path().join("u.csv");
    std::fs::write(&path, "actor,quantity\nann,1\n").expect("written");
    let prepare = || {
        let policy = serde_json::to_vec(&rig::policy(r#","release":{"by_hand":true}"#)).expect("JSON");
        let named = vec![InputRef::File { path: "u.csv".to_owned(), b3: None }];
        let asked = ComputeRequest { policy, ..request("e1", named) };
        asked.prepare(&grounds(&inputs, scratch.path())).expect("fine")
    };
    let rewarder = crate::service::Rewarder { engine: Arc::clone(&rig.engine) };
    let (ann, deadline) = (ron_auth::Subject::named("ann"), Deadline::after(Duration::from_secs(60)));
    let epoch = "e1".parse().expect("a name");
    for (content, actors) in [("ann,1\n", 1), ("ann,1\nbob,1\n", 2)] {
        std::fs::write(&path, format!("actor,quantity\n{content}")).expect("written");
        rewarder.compare_files(&ann, &prepare(), deadline).await.expect("nothing was paid of it");
        assert_eq!(schedule(&rig.engine, prepare()).await, Ok(Begun::Started));
        let ticket = rig.engine.next_ticket(&mut rig.receivers.jobs).await.expect("a run");
        let computed = crate::job::compute(&ticket.flight.job, &crate::job::Unwatched).expect("computed");
        let (written, _) = oneshot::channel();
        let computation = crate::service::engine::Computation { ticket, outcome: Ok(Box::new(computed)), written };
        assert_eq!(settle_down(&rig.engine, computation).expect("sealed").actors, actors);
        rewarder.reject(&epoch, "ann", "wrong", deadline).await.expect("rejected");
    }
}

#[tokio::test]
async fn a_reader_that_leaves_keeps_its_share_until_its_read_is_done() {
    let rig = Rig::new();
    let row = rig.seal("e1", "", 4);
    // A share that says by its drop when it is given back.
    let (share, mut given_back) = oneshot::channel::<()>();
    let (begun, has_begun) = oneshot::channel();
    let (go_on, may_go_on) = oneshot::channel::<()>();
    {
        let deadline = Deadline::after(std::time::Duration::from_secs(3600));
        let slow = move |_run: &crate::sealed::SealedRun| {
            let _ = begun.send(());
            let _ = may_go_on.blocking_recv();
            Ok(())
        };
        let read = pin!(reads::ask(&rig.engine, row, ReadShare::of(share), deadline, slow));
        tokio::select! {
            begun = has_begun => begun.expect("it reads"),
            read = read => panic!("it ended: {read:?}"),
        }
    }
    assert_eq!(given_back.try_recv(), Err(oneshot::error::TryRecvError::Empty), "its thread still reads");
    go_on.send(()).expect("it waits");
    given_back.await.expect_err("given back with the end of the read");
}
