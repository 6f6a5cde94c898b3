//! The workers: each computes one run at a time, on a thread that may block.

use std::sync::Arc;

use ron_kernel::queue::QueueReceiver;
use ron_kernel::{Deadline, TaskContext, TaskResult, clock};
use ron_types::limits::rewarder::EPOCH_DURATION;
use tokio::sync::oneshot;

use super::correction;
use super::engine::{Computation, Engine, Refusal, Ticket, Watched};
use crate::job::{Computed, RunError, compute_pinned};

/// One life of a worker.
pub(crate) async fn compute_worker(
    context: TaskContext,
    engine: Arc<Engine>,
    mut work: QueueReceiver<Ticket>,
) -> TaskResult {
    context.ready().await;
    loop {
        let ticket = tokio::select! {
            biased;
            () = context.stopping() => return Ok(()),
            ticket = engine.next_ticket(&mut work) => ticket,
            () = context.heartbeat() => continue,
        };
        let Some(ticket) = ticket else { return Ok(()) };
        compute(&context, &engine, ticket).await;
    }
}

/// Stops a computation whose worker is gone, so that two do not work on one run for long.
struct StopOnDrop(Arc<Watched>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

async fn compute(context: &TaskContext, engine: &Arc<Engine>, ticket: Ticket) {
    let watched = Arc::new(Watched::new(Arc::clone(&ticket.flight)));
    let _stop = StopOnDrop(Arc::clone(&watched));
    let (began, divide) = (clock::now(), engine.options.divide);
    let (working, computing) = (Arc::clone(&watched), Arc::clone(engine));
    let computing = tokio::task::spawn_blocking(move || {
        let flight = &working.flight;
        let computed = match &flight.correction {
            Some(run) => correction::compute(&computing, run, &*working, divide)?,
            None => compute_pinned(&flight.job, &flight.pins, &*working, divide)?,
        };
        Ok(Box::new(computed))
    });
    let stop_late = async {
        context.stopping().await;
        // What is nearly done is finished; the rest is computed again when somebody asks.
        tokio::time::sleep_until(context.stop_deadline().instant()).await;
        watched.stop();
        std::future::pending::<()>().await;
    };
    let finished = context.beating(async {
        tokio::select! {
            finished = computing => finished,
            () = stop_late => unreachable!("it never ends"),
        }
    });
    let Ok(outcome) = finished.await else {
        let epoch = ticket.flight.job.epoch.to_string();
        // The same order would panic again, so it is not tried again by itself.
        engine.counts.ran("failed");
        ticket.land(Some(Refusal::because(&epoch, "the computation broke off; the log of the node says where")));
        return;
    };
    engine.counts.computed_in(clock::now() - began);
    hand_on(context, engine, ticket, outcome).await;
}

/// Gives the result to the writer, and waits until it is on the disk: a worker has one run in memory, not two.
async fn hand_on(context: &TaskContext, engine: &Engine, ticket: Ticket, outcome: Result<Box<Computed>, RunError>) {
    let (written, done) = oneshot::channel();
    let deadline = if context.is_stopping() { context.stop_deadline() } else { Deadline::after(EPOCH_DURATION) };
    let sent = context.beating(engine.results.send(Computation { ticket, outcome, written }, deadline)).await;
    if sent.is_err() {
        engine.counts.result_dropped();
        return;
    }
    let wait = async {
        tokio::select! {
            // Dropped by a writer that died: the run came back, and somebody computes it again.
            _ = done => {}
            () = context.stopping() => {}
        }
    };
    context.beating(wait).await;
}
