//! Streams as sets that are asked one by one: slow, and easy to check by reading.

use std::collections::{BTreeMap, BTreeSet};

use oap::{AppId, Flags, Frame, Step, StreamError};

/// What the state machine should do.
#[derive(Default)]
pub struct Reference {
    asked: BTreeSet<u64>,
    open: BTreeMap<u64, AppId>,
    draining: BTreeSet<u64>,
    max: usize,
}

impl Reference {
    /// No streams yet, and at most so many requests and streams at once.
    pub fn new(max: usize) -> Reference {
        Reference { max, ..Reference::default() }
    }

    /// Requests and streams that are neither answered nor refused.
    pub fn inflight(&self) -> usize {
        self.asked.len() + self.open.len()
    }

    /// Says what a frame is.
    pub fn accept(&mut self, frame: &Frame) -> Result<Step, StreamError> {
        let corr = frame.corr;
        let (starts, ends) = (frame.has(Flags::START), frame.has(Flags::END));
        let is_known = self.asked.contains(&corr) || self.open.contains_key(&corr) || self.draining.contains(&corr);
        let is_full = self.inflight() >= self.max;
        if frame.has(Flags::EVENT) {
            return Ok(Step::Event);
        }
        if frame.has(Flags::RESP) {
            return Err(StreamError::ResponseWithoutRequest);
        }
        if is_known && starts {
            return Err(StreamError::SecondStart);
        }
        if self.draining.contains(&corr) {
            if ends {
                self.draining.remove(&corr);
            }
            return Ok(Step::Ignored);
        }
        if self.asked.contains(&corr) {
            return Err(if ends { StreamError::EndWithoutStart } else { StreamError::CorrInUse });
        }
        if let Some(app) = self.open.get(&corr).copied() {
            if app != frame.app {
                return Err(StreamError::AppChanged);
            }
            if !ends {
                return Ok(Step::Continues);
            }
            self.open.remove(&corr);
            self.asked.insert(corr);
            return Ok(Step::Closes);
        }
        if ends && !starts {
            return Err(StreamError::EndWithoutStart);
        }
        let opens = starts && !ends;
        if opens && self.draining.len() >= self.max {
            return Err(StreamError::TooManyUnended);
        }
        if is_full {
            if opens {
                self.draining.insert(corr);
            }
            return Err(StreamError::Busy { max: self.max });
        }
        if opens {
            self.open.insert(corr, frame.app);
            return Ok(Step::Opens);
        }
        self.asked.insert(corr);
        Ok(Step::Whole)
    }

    /// The answer is out.
    pub fn finished(&mut self, corr: u64) {
        self.asked.remove(&corr);
        if self.open.remove(&corr).is_some() {
            self.draining.insert(corr);
        }
    }
}
