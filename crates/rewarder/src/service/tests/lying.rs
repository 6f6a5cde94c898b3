//! A ledger that says whatever it likes, at any length: every disagreement ends in a quarantine of a bounded size, and
//! epochs after it are sealed as if nothing had been.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use ron_kernel::{Builder, KernelOptions, Metrics};
use ron_ledger::{Batch, LedgerError, Outcome, RunKey, Tally};
use ron_log::SimDisk;

use super::reason;
use crate::service::emitter::settle_all;
use crate::service::engine::ServiceOptions;
use crate::service::ledger_port::PayoutLedger;
use crate::service::make_engine;
use crate::service::rig::{self, ACTORS, SimLedger};
use crate::service::writer::{recover, settle_down};
use crate::store::{EpochStatus, QuarantineReason};

/// What it says.
#[derive(Clone, Copy, Debug)]
enum Lie {
    /// Every payout is refused, with a megabyte of reasons.
    Refuses,
    /// Every payout is there with another content.
    Conflicts,
    /// It answers for more payouts than it was asked.
    Answers,
    /// It holds thousands of assets that nobody sent.
    Invents,
}

struct Liar(Lie);

impl PayoutLedger for Liar {
    fn submit<'a>(&'a self, batch: &'a Batch) -> BoxFuture<'a, Result<Vec<Outcome>, LedgerError>> {
        let answers = match self.0 {
            Lie::Refuses => Err(LedgerError::Refused("\u{1b}no\n".repeat(1 << 18))),
            Lie::Conflicts => Ok(vec![Outcome::Conflict; batch.entries.len()]),
            Lie::Answers => Ok(vec![Outcome::Accepted; batch.entries.len() + 1]),
            Lie::Invents => Ok(vec![Outcome::Accepted; batch.entries.len()]),
        };
        async move { answers }.boxed()
    }

    fn tally<'a>(&'a self, _run: &'a RunKey) -> BoxFuture<'a, Result<Vec<Tally>, LedgerError>> {
        let invented = |number: usize| Tally { asset: format!("{number:0>256}"), count: 1, paid: 1, taken_back: 0 };
        async move { Ok((0..5_000).map(invented).collect()) }.boxed()
    }

    fn one_run_per_pot(&self) -> BoxFuture<'_, Result<bool, LedgerError>> {
        async { Ok(true) }.boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn every_disagreement_with_a_ledger_ends_in_a_quarantine_of_bounded_size() {
    for lie in [Lie::Refuses, Lie::Conflicts, Lie::Answers, Lie::Invents] {
        let disk = SimDisk::new(1);
        let mut builder = Builder::new(KernelOptions::default(), Metrics::new());
        let options = ServiceOptions {
            ledger: Arc::new(move || async move { Ok(Arc::new(Liar(lie)) as Arc<dyn PayoutLedger>) }.boxed()),
            ..rig::options(&disk, &SimLedger::default(), ron_calculus::allocate)
        };
        let (engine, _receivers) = make_engine(&mut builder, options, rig::live());
        recover(&engine).expect("an empty log");
        for epoch in ["e1", "e2"] {
            let computed = rig::computed(epoch, rig::policy(""), ACTORS, ron_calculus::allocate);
            settle_down(&engine, rig::computation(&engine, computed)).expect("sealed");
            settle_all(&engine).await.unwrap_or_else(|later| panic!("{lie:?}: {epoch}: {later:?}"));
            let row = engine.store().expect("open").get(epoch).expect("sealed");
            assert_eq!(
                (row.status, reason(&row)),
                (EpochStatus::Quarantined, Some(QuarantineReason::Intent)),
                "{lie:?}"
            );
            let bytes = serde_json::to_vec(&*row).expect("JSON").len();
            assert!(bytes < 30_000, "{lie:?}: {bytes} bytes are kept");
        }
    }
}
