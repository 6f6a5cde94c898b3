//! The jobs between an intake and a pool of workers: a bounded queue, and an account of every answer.

use std::collections::VecDeque;

/// A job, by the order of admission.
pub type Job = usize;

/// The queue and the account. The queue is the kernel's: it outlives the tasks at both of its ends.
#[derive(Clone, Debug)]
pub struct Jobs {
    capacity: usize,
    waiting: VecDeque<Job>,
    /// Number of answers to each admitted job.
    answers: Vec<u8>,
    /// A worker found the queue empty in a drain, and left.
    worker_left: bool,
}

impl Jobs {
    /// An empty queue.
    pub fn new(capacity: usize) -> Self {
        Jobs { capacity, waiting: VecDeque::new(), answers: Vec::new(), worker_left: false }
    }

    /// Admits a job, or says busy at once. To admit one that no worker will look at is the mistake `J2`.
    pub fn offer(&mut self) -> Result<Option<Job>, (&'static str, String)> {
        if self.waiting.len() >= self.capacity {
            return Ok(None);
        }
        let job = self.answers.len();
        if self.worker_left {
            return Err(("J2", format!("job {job} was admitted after a worker had left")));
        }
        self.answers.push(0);
        self.waiting.push_back(job);
        Ok(Some(job))
    }

    /// Hands the oldest job to a worker, which owes its answer from now on.
    pub fn take(&mut self) -> Option<Job> {
        self.waiting.pop_front()
    }

    /// Answers a job: with its result, or, if its worker is gone, with an error.
    pub fn answer(&mut self, job: Job) {
        self.answers[job] = self.answers[job].saturating_add(1);
    }

    /// Whether no job waits, so that a worker told to stop may leave.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A worker left because there was nothing more to do.
    pub fn worker_left(&mut self) {
        self.worker_left = true;
    }

    /// The end: what still waits is answered as canceled.
    pub fn close(&mut self) {
        while let Some(job) = self.take() {
            self.answer(job);
        }
    }

    /// Number of jobs admitted.
    pub fn admitted(&self) -> usize {
        self.answers.len()
    }

    /// `J1`: every admitted job was answered exactly once.
    pub fn judge(&self) -> Result<(), (&'static str, String)> {
        match self.answers.iter().position(|answers| *answers != 1) {
            Some(job) => Err(("J1", format!("job {job} was answered {} times", self.answers[job]))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(jobs: &Jobs) -> Result<(), &'static str> {
        jobs.judge().map_err(|(id, _)| id)
    }

    #[test]
    fn a_full_queue_admits_nothing() {
        let mut jobs = Jobs::new(2);
        assert_eq!([jobs.offer(), jobs.offer(), jobs.offer()], [Ok(Some(0)), Ok(Some(1)), Ok(None)]);
        assert_eq!(jobs.admitted(), 2);
    }

    #[test]
    fn each_job_is_answered_exactly_once() {
        let mut jobs = Jobs::new(2);
        jobs.offer().unwrap();
        jobs.offer().unwrap();
        let first = jobs.take().unwrap();
        assert_eq!(judged(&jobs), Err("J1"), "not answered");
        jobs.answer(first);
        jobs.close();
        assert_eq!(judged(&jobs), Ok(()));
        jobs.answer(first);
        assert_eq!(judged(&jobs), Err("J1"), "answered twice");
    }

    #[test]
    fn nothing_is_admitted_once_a_worker_has_left() {
        let mut jobs = Jobs::new(2);
        jobs.worker_left();
        assert_eq!(jobs.offer().map_err(|(id, _)| id), Err("J2"));
    }
}
