//! A timer for a deadline that moves with every read: armed rarely, because arming costs more than reading a clock.

use std::pin::Pin;
use std::task::{Context, Poll};

use ron_kernel::Deadline;
use tokio::task::Unconstrained;
use tokio::time::{Sleep, sleep_until};

/// Says when a deadline has passed that is given anew with each question.
#[derive(Default)]
pub(crate) struct Timer {
    armed: Option<(Deadline, Pin<Box<Unconstrained<Sleep>>>)>,
}

impl Timer {
    /// Ready once the deadline has passed; else the task is woken then, or earlier.
    ///
    /// A deadline that moves on leaves the timer where it is: it fires early once, and is then set to what is the
    /// deadline by that time. Only one that moves back costs a change.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>, deadline: Deadline) -> Poll<()> {
        if deadline.has_passed() {
            self.armed = None;
            return Poll::Ready(());
        }
        if self.armed.as_ref().is_some_and(|(at, _)| *at > deadline) {
            self.armed = None;
        }
        loop {
            // A task that has used up its share of the thread must not keep its deadline from being seen.
            let arm = || (deadline, Box::pin(tokio::task::unconstrained(sleep_until(deadline.instant()))));
            let (at, sleep) = self.armed.get_or_insert_with(arm);
            match sleep.as_mut().poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) if *at >= deadline => return Poll::Ready(()),
                Poll::Ready(()) => self.armed = None,
            }
        }
    }
}
