//! A node on a thread of its own, which can be made to stand still: the system takes its connections, nobody answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::BoxFuture;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// A slow node works for this long, then stands still for [`SLOW_BY`], again and again.
const SLOW_WORKS: Duration = Duration::from_millis(5);
/// Time that a slow node stands still at once.
pub const SLOW_BY: Duration = Duration::from_millis(150);
/// A thread that stands still looks this often whether it is over, in case it missed being told.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time that what a node leaves behind has to end.
const LEAVE_WITHIN: Duration = Duration::from_millis(200);

/// A node and its thread. Dropping it ends both.
pub struct NodeThread<T> {
    /// The node, as other threads reach it.
    pub node: T,
    runtime: Handle,
    leave: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// How a node is kept from working.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hindrance {
    /// It does nothing at all.
    Still,
    /// It stands still most of the time.
    Slow,
}

/// While this is held, a node is hindered.
pub struct Hindered {
    is_over: Arc<AtomicBool>,
    thread: Option<Thread>,
}

/// What a node does: it hands itself out once it can be reached, and goes on until it is dropped.
pub type Life<T> = Box<dyn FnOnce(oneshot::Sender<T>) -> BoxFuture<'static, anyhow::Result<()>> + Send>;

impl<T: Send + 'static> NodeThread<T> {
    /// Starts a node and waits until it can be reached.
    pub async fn start(name: String, life: Life<T>) -> anyhow::Result<NodeThread<T>> {
        let (leave, left) = oneshot::channel();
        let (started, start) = oneshot::channel();
        let (ready, node) = oneshot::channel();
        let run = move || {
            let Ok(runtime) = Builder::new_current_thread().enable_all().build() else { return };
            // Whoever waits for it is gone if this fails, and the node leaves with it.
            let _ = started.send(runtime.handle().clone());
            runtime.block_on(async {
                tokio::select! {
                    Err(error) = life(ready) => eprintln!("*** a node of the bench ended: {error:#}"),
                    _ = left => {}
                }
            });
            runtime.shutdown_timeout(LEAVE_WITHIN);
        };
        let thread = std::thread::Builder::new().name(name).spawn(run)?;
        let runtime = start.await.context("a thread without a runtime")?;
        let node = node.await.context("a node ended before it could be reached")?;
        Ok(NodeThread { node, runtime, leave: Some(leave), thread: Some(thread) })
    }

    /// The runtime of the node's thread.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Hinders the node until the result is dropped.
    pub fn hinder(&self, how: Hindrance) -> Hindered {
        let is_over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&is_over);
        self.runtime.spawn(async move {
            while !told.load(Ordering::Relaxed) {
                match how {
                    // Blocks the one thread that everything of this node runs on.
                    Hindrance::Still => std::thread::park_timeout(LOOK_EVERY),
                    Hindrance::Slow => {
                        std::thread::sleep(SLOW_BY);
                        tokio::time::sleep(SLOW_WORKS).await;
                    }
                }
            }
        });
        Hindered { is_over, thread: self.thread.as_ref().map(|thread| thread.thread().clone()) }
    }
}

impl<T> Drop for NodeThread<T> {
    fn drop(&mut self) {
        drop(self.leave.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Hindered {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = &self.thread {
            thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[tokio::test]
    async fn a_node_stands_still_while_it_is_hindered_and_then_goes_on() {
        let beats = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&beats);
        let life: Life<()> = Box::new(move |ready| {
            Box::pin(async move {
                let _ = ready.send(());
                loop {
                    counted.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            })
        });
        let node = NodeThread::start("beats".to_owned(), life).await.expect("a thread");
        let hindered = node.hinder(Hindrance::Still);
        // It stands still once two looks in a row see the same number.
        let mut seen = beats.load(Ordering::Relaxed);
        loop {
            std::thread::sleep(Duration::from_millis(20));
            let now = beats.load(Ordering::Relaxed);
            if now == seen {
                break;
            }
            seen = now;
        }
        drop(hindered);
        while beats.load(Ordering::Relaxed) == seen {
            std::thread::yield_now();
        }
    }
}
