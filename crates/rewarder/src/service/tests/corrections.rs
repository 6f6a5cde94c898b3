//! Corrections that come from elsewhere, as they were made or as a forger made them.

use crate::service::reads::ReadShare;
use std::sync::Arc;
use std::time::Duration;

use ron_calculus::Units;
use ron_kernel::Deadline;
use ron_log::{Disk, RamDisk};
use ron_types::{Error, Kind};

use super::Rig;
use crate::artifacts::{self, SIGNATURES};
use crate::correct::{Bounds, Correction};
use crate::job::{Basis, Computed, RunError, Unwatched, settle};
use crate::sealed::SealedRun;
use crate::service::emitter::settle_all;
use crate::service::engine::{Computation, Flight};
use crate::service::request::Prepared;
use crate::service::writer::settle_down;
use crate::service::{Rewarder, correction, rig};

/// A run in memory, as it is uploaded.
pub(super) fn uploaded(computed: &Computed) -> SealedRun {
    let disk: Arc<dyn Disk> = Arc::new(RamDisk::new());
    artifacts::write(computed, &*disk, 1, &Unwatched).expect("written");
    SealedRun::open(disk, 64 << 20, 1).expect("opened")
}

#[tokio::test(start_paused = true)]
async fn the_signatures_under_a_correction_are_kept_beside_it() {
    let rig = Rig::new();
    let paid = rig::computed("e1", rig::policy(""), 4, ron_calculus::allocate);
    let fix = rig::corrected("fix", &paid, 5);
    let computation = rig::computation(&rig.engine, fix.clone());
    let prepared = Prepared { signatures: Some(b"signed".to_vec()), ..rig::prepared(&fix) };
    let flight = Flight::new(computation.ticket.flight.job.clone(), &prepared, computation.ticket.flight.deadline);
    let computation = Computation { ticket: rig.engine.take_off(flight), ..computation };
    settle_down(&rig.engine, computation).expect("sealed");
    let unsigned = rig::corrected("unsigned", &paid, 5);
    settle_down(&rig.engine, rig::computation(&rig.engine, unsigned)).expect("sealed");

    let rewarder = Rewarder { engine: Arc::clone(&rig.engine) };
    let read = async |epoch: &str| {
        let (epoch, name) = (epoch.parse().expect("a name"), SIGNATURES.to_owned());
        let mut reader =
            rewarder.artifact(&epoch, name, ReadShare::none(), Deadline::after(Duration::from_secs(60))).await?;
        Ok::<_, Error>(reader.next().await.expect("read").expect("not empty"))
    };
    assert_eq!(&*read("fix").await.expect("kept"), b"signed");
    assert_eq!(read("unsigned").await.expect_err("nobody signed").kind, Kind::NotFound);
    assert_eq!(rig.engine.room.bytes(), {
        let folders = &rig.engine.options.folders;
        folders.bytes("fix").expect("there") + folders.bytes("unsigned").expect("there")
    });
}

#[tokio::test(start_paused = true)]
async fn a_node_refuses_a_correction_that_carries_units_which_never_were() {
    let rig = Rig::new();
    let paid = rig::computed("e1", rig::policy(""), 4, ron_calculus::allocate);
    let row = rig.seal("e1", "", 4);
    settle_all(&rig.engine).await.expect("paid");
    let commitment = crate::hashing::parse_b3(&row.commitment).expect("a hash");
    // Without the manifest of the corrected run beside it, it agrees with itself.
    let make = |carry: u128| {
        let mut correction = Correction::of(&paid, commitment, Bounds::default()).expect("it adds up");
        let carry = [("RON".to_owned(), Units(carry))].into_iter().filter(|(_, units)| units.0 > 0).collect();
        let basis = rig::computed("fix", rig::policy(""), 5, ron_calculus::allocate).basis;
        correction.carry = carry;
        let basis = Basis { carry: correction.carry.clone(), correction: Some(correction), ..basis };
        uploaded(&settle(basis, 1, &Unwatched, ron_calculus::allocate).expect("settled"))
    };
    let compute = |run: &SealedRun| correction::compute(&rig.engine, run, &Unwatched, ron_calculus::allocate);
    let refused = compute(&make(9_000)).err();
    assert!(
        matches!(&refused, Some(RunError::Order(why)) if why.contains("does not begin from")),
        "nine thousand units from nowhere: {refused:?}"
    );
    compute(&make(0)).expect("as it was");
}
