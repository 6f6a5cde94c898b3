//! Redrives: orders to move dead letters back, and the task that carries them out, one message at a time, beside moves.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use ron_kernel::queue::{Payload, QueueReceiver, QueueSender};
use ron_kernel::{Deadline, TaskContext, TaskResult};
use ron_types::{Error, Kind};
use serde::{Deserialize, Serialize};

use crate::engine::lock;
use crate::mailbox::Mailbox;
use crate::mailbox::inspect::{Filter, Seen};
use crate::mover::move_all;
use crate::types::{MessageId, Millis, TopicName};

/// Orders remembered after they ended.
const REMEMBERED_MAX: usize = 256;
/// Messages looked at in one step.
const STEP: usize = 100;
/// How long one step may take.
const STEP_WAIT: Duration = Duration::from_secs(10);

/// Which dead letters are to go where, and how fast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedriveOrder {
    /// The topic that holds them.
    pub from: TopicName,
    /// Where they go; none means each to the topic it was for.
    pub to: Option<TopicName>,
    /// Which of them.
    pub filter: Filter,
    /// How many in a second; none means as fast as it goes.
    pub rate_per_second: Option<u32>,
    /// How many at most.
    pub limit: Option<u64>,
}

/// Where an order stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RedriveState {
    /// Its turn has not come.
    Waiting,
    /// It is being carried out.
    Running,
    /// Somebody paused it.
    Paused,
    /// Everything that matched was moved.
    Done,
    /// Somebody ended it.
    Canceled,
    /// It could not go on.
    Failed,
}

/// An order and its progress.
#[derive(Clone, Debug, Serialize)]
pub struct RedriveView {
    /// Its number.
    pub id: u64,
    /// The topic that holds the dead letters.
    pub from: TopicName,
    /// Where they go; none means each to the topic it was for.
    pub to: Option<TopicName>,
    /// Where it stands.
    pub state: RedriveState,
    /// Messages moved.
    pub moved: u64,
    /// Messages looked at.
    pub looked_at: u64,
    /// Messages there were when it began, matching or not.
    pub to_look_at: Option<u64>,
    /// Messages that could not be moved.
    pub failed: u64,
    /// Why the last of them could not.
    pub last_error: Option<String>,
    /// How many in a second.
    pub rate_per_second: Option<u32>,
    /// When it was ordered.
    pub ordered_ms: Millis,
    /// When it will be done at this pace.
    pub eta_ms: Option<Millis>,
}

/// What can be done about an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RedriveControl {
    /// Stop for now.
    Pause,
    /// Go on.
    Resume,
    /// Stop for good.
    Cancel,
}

/// An order on its way to the reprocessor.
pub(crate) struct Ordered(u64);

impl Payload for Ordered {}

/// Every order of this run.
pub(crate) struct Redrives {
    queue: QueueSender<Ordered>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    last: u64,
    orders: BTreeMap<u64, (RedriveOrder, RedriveView)>,
}

impl Redrives {
    pub fn new(queue: QueueSender<Ordered>) -> Self {
        Redrives { queue, table: Mutex::default() }
    }

    /// Takes an order on, or says that there are too many.
    pub fn order(&self, order: RedriveOrder, now: Millis) -> Result<RedriveView, Error> {
        let mut table = lock(&self.table);
        table.last += 1;
        let id = table.last;
        self.queue.offer(Ordered(id)).inspect_err(|_| {
            tracing::warn!(queue = "reproc_tx", "reproc_queue_full: a redrive was refused");
        })?;
        let view = RedriveView {
            id,
            from: order.from.clone(),
            to: order.to.clone(),
            state: RedriveState::Waiting,
            moved: 0,
            looked_at: 0,
            to_look_at: None,
            failed: 0,
            last_error: None,
            rate_per_second: order.rate_per_second,
            ordered_ms: now,
            eta_ms: None,
        };
        table.orders.insert(id, (order, view.clone()));
        if table.orders.len() > REMEMBERED_MAX {
            let ended = table.orders.iter().find(|(_, (_, view))| view.state.has_ended()).map(|(id, _)| *id);
            ended.and_then(|id| table.orders.remove(&id));
        }
        Ok(view)
    }

    /// Every order, the newest first.
    pub fn all(&self) -> Vec<RedriveView> {
        lock(&self.table).orders.values().rev().map(|(_, view)| view.clone()).collect()
    }

    /// One order.
    pub fn get(&self, id: u64) -> Result<RedriveView, Error> {
        let found = lock(&self.table).orders.get(&id).map(|(_, view)| view.clone());
        found.ok_or_else(|| Error::new(Kind::NotFound, format!("redrive {id} does not exist")))
    }

    /// Pauses, resumes or ends an order.
    pub fn control(&self, id: u64, control: RedriveControl) -> Result<RedriveView, Error> {
        let mut table = lock(&self.table);
        let Some((_, view)) = table.orders.get_mut(&id) else {
            return Err(Error::new(Kind::NotFound, format!("redrive {id} does not exist")));
        };
        if view.state.has_ended() {
            return Err(Error::new(Kind::Conflict, format!("redrive {id} has already ended")));
        }
        view.state = match control {
            RedriveControl::Pause => RedriveState::Paused,
            RedriveControl::Resume => RedriveState::Running,
            RedriveControl::Cancel => RedriveState::Canceled,
        };
        Ok(view.clone())
    }

    fn find(&self, id: u64) -> Option<(RedriveOrder, RedriveState)> {
        lock(&self.table).orders.get(&id).map(|(order, view)| (order.clone(), view.state))
    }

    fn change(&self, id: u64, change: impl FnOnce(&mut RedriveView)) {
        if let Some((_, view)) = lock(&self.table).orders.get_mut(&id) {
            change(view);
        }
    }

    /// Ends an order, unless somebody has ended it already.
    fn end(&self, id: u64, state: RedriveState) {
        self.change(id, |view| {
            if !view.state.has_ended() {
                view.state = state;
            }
        });
    }
}

impl RedriveState {
    fn has_ended(self) -> bool {
        matches!(self, RedriveState::Done | RedriveState::Canceled | RedriveState::Failed)
    }
}

/// One life of the reprocessor.
pub(crate) async fn dlq_reprocessor(
    context: TaskContext,
    mailbox: Mailbox,
    mut orders: QueueReceiver<Ordered>,
) -> TaskResult {
    context.ready().await;
    let redriving = async {
        while let Some(Ordered(id)) = orders.recv().await {
            carry_out(&mailbox, id).await;
        }
    };
    let working = futures_util::future::join(redriving, move_all(&mailbox));
    tokio::select! {
        // What was moved is moved; a redrive can be ordered again after the restart, a move goes on by itself.
        () = context.stopping() => {}
        _ = context.beating(working) => {}
    }
    Ok(())
}

async fn carry_out(mailbox: &Mailbox, id: u64) {
    let redrives = &mailbox.engine().redrives;
    let Some((order, _)) = redrives.find(id) else { return };
    redrives.change(id, |view| {
        if view.state == RedriveState::Waiting {
            view.state = RedriveState::Running;
        }
    });
    let total = mailbox.stats(&order.from, Deadline::after(STEP_WAIT)).await;
    redrives.change(id, |view| view.to_look_at = total.ok().map(|stats| stats.total.held()));
    let mut cursor = None;
    let mut moved = 0;
    loop {
        match redrives.find(id).map(|(_, state)| state) {
            Some(RedriveState::Paused) => {
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue;
            }
            Some(RedriveState::Running) => {}
            _ => return,
        }
        match step(mailbox, id, &order, &mut cursor, &mut moved).await {
            Ok(true) => {}
            Ok(false) => return redrives.end(id, RedriveState::Done),
            Err(error) if error.kind == Kind::Busy => tokio::time::sleep(Duration::from_millis(100)).await,
            Err(error) => {
                redrives.change(id, |view| view.last_error = Some(error.to_string()));
                return redrives.end(id, RedriveState::Failed);
            }
        }
    }
}

/// Looks at one page and moves what matches; false once there is no more.
async fn step(
    mailbox: &Mailbox,
    id: u64,
    order: &RedriveOrder,
    cursor: &mut Option<MessageId>,
    moved: &mut u64,
) -> Result<bool, Error> {
    let redrives = &mailbox.engine().redrives;
    let page = mailbox.browse(&order.from, order.filter.clone(), *cursor, STEP, Deadline::after(STEP_WAIT)).await?;
    for seen in &page.messages {
        if order.limit.is_some_and(|limit| *moved >= limit) {
            return Ok(false);
        }
        while redrives.find(id).is_some_and(|(_, state)| state == RedriveState::Paused) {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        if redrives.find(id).is_none_or(|(_, state)| state != RedriveState::Running) {
            return Ok(true);
        }
        let outcome = move_one(mailbox, order, seen).await;
        *moved += u64::from(outcome.is_ok());
        redrives.change(id, |view| match &outcome {
            Ok(()) => view.moved += 1,
            Err(error) => {
                view.failed += 1;
                view.last_error = Some(error.to_string());
            }
        });
        if let Some(rate) = order.rate_per_second.filter(|rate| *rate > 0) {
            tokio::time::sleep(Duration::from_secs(1) / rate).await;
        }
    }
    let now = mailbox.now();
    redrives.change(id, |view| {
        view.looked_at += page.looked_at as u64;
        view.eta_ms = view.eta(now);
    });
    *cursor = page.next;
    Ok(page.next.is_some())
}

async fn move_one(mailbox: &Mailbox, order: &RedriveOrder, seen: &Seen) -> Result<(), Error> {
    let target = order.to.clone().or_else(|| seen.dead.as_ref().map(|dead| dead.source.clone()));
    let target = target.ok_or_else(|| Error::schema("to: the message came from no other topic; name one"))?;
    mailbox.redrive_one(seen.msg_id, &target, Deadline::after(STEP_WAIT)).await
}

impl RedriveView {
    /// When everything will have been looked at, at the pace so far.
    fn eta(&self, now: Millis) -> Option<Millis> {
        let (total, done) = (self.to_look_at?, self.looked_at);
        let spent = now.saturating_sub(self.ordered_ms);
        (done > 0).then(|| now + spent.saturating_mul(total.saturating_sub(done)) / done)
    }
}
