//! Faults on order: tasks that panic or freeze, and a runtime that stands still.

use std::time::Duration;

use ron_policy::TaskId;
use ron_types::Error;

use super::Kernel;
use crate::handle::ChaosOrder;
use crate::task::Order;

impl Kernel {
    /// Chaos: hits a share of the running instances, at least one, evenly spread from a moving start.
    pub(super) fn chaos(&self, task: &str, share: f64, order: ChaosOrder) -> Result<Vec<String>, Error> {
        let mut running: Vec<TaskId> = self.controls.keys().copied().filter(|id| self.spec_name(*id) == task).collect();
        let all = self.supervisor.tasks().filter(|id| self.spec_name(*id) == task).count();
        if all == 0 {
            return Err(self.unknown("task", task));
        }
        running.sort_unstable();
        let hits = ((all as f64 * share).round() as usize).max(1).min(running.len());
        let start = self.handle.now_ms() as usize;
        let order = match order {
            ChaosOrder::Kill => Order::Panic,
            ChaosOrder::Freeze => Order::Freeze,
        };
        let hit = (0..hits).map(|nth| {
            let victim = running[(start + nth * running.len() / hits) % running.len()];
            self.controls[&victim].order.send_replace(order);
            self.names(victim).1
        });
        Ok(hit.collect())
    }

    /// Chaos: keeps every thread of the runtime from turning, as code that blocks or never yields would.
    pub(super) fn stall(&mut self, time: Duration) {
        let threads = tokio::runtime::Handle::current().metrics().num_workers();
        tracing::warn!(threads, ?time, "chaos: the runtime stands still");
        // Each thread takes one as soon as it is free, and is then not free for another.
        for _ in 0..threads {
            self.stalls.spawn(async move { std::thread::sleep(time) });
        }
    }
}
