//! Which request frames belong together, on the side that answers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::status::{self, Status};
use crate::{AppId, Flags, Frame};

/// What a frame is to the side that answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A request that is whole in this frame.
    Whole,
    /// The first frame of a stream.
    Opens,
    /// A further frame of an open stream.
    Continues,
    /// The last frame of an open stream.
    Closes,
    /// A late frame of a stream that was already answered or refused; its sender could not know. It is dropped.
    Ignored,
    /// A push, which belongs to no stream.
    Event,
}

/// Why a frame does not fit what came before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// An answer to a question that was not asked.
    #[error("a response to no request")]
    ResponseWithoutRequest,
    /// START with a number that is in use.
    #[error("a second START of one stream")]
    SecondStart,
    /// END with a number under which no stream is open.
    #[error("END without START")]
    EndWithoutStart,
    /// A request with the number of one that is not answered yet.
    #[error("a request with the number of one that is not answered yet")]
    CorrInUse,
    /// A frame of a stream for another application than the stream was opened for.
    #[error("a stream does not change its application")]
    AppChanged,
    /// As many streams as may be open were answered or refused, and the side that asks has not ended them.
    #[error("too many streams that were answered and not ended")]
    TooManyUnended,
    /// Everything that was agreed on is in flight. The connection goes on.
    #[error("{max} requests are in flight, as many as were agreed on")]
    Busy {
        /// Requests and streams at once.
        max: usize,
    },
}

impl StreamError {
    /// Code of the answer, or of the GOAWAY.
    pub const fn code(&self) -> Status {
        match self {
            StreamError::Busy { .. } => status::BUSY,
            _ => status::BAD_REQUEST,
        }
    }

    /// True if the connection ends with this; false if only the request is refused.
    pub const fn closes(&self) -> bool {
        !matches!(self, StreamError::Busy { .. })
    }
}

/// What is known of a number in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Its requests are all here; the answer is not out.
    Asked,
    /// Further frames may come.
    Open(AppId),
    /// Answered or refused before its END came: frames that were on their way are dropped.
    Draining,
}

/// The requests and streams of one connection.
#[derive(Debug)]
pub struct Streams {
    by_corr: HashMap<u64, State>,
    /// Numbers that are [`State::Draining`].
    draining: usize,
    max_inflight: usize,
}

impl Streams {
    /// No streams yet, and at most so many requests and streams at once.
    pub fn new(max_inflight: usize) -> Streams {
        Streams { by_corr: HashMap::new(), draining: 0, max_inflight }
    }

    /// Requests and streams that are neither answered nor refused.
    pub fn inflight(&self) -> usize {
        self.by_corr.len() - self.draining
    }

    /// Says what a frame is. A request that is taken counts as in flight until [`Streams::finished`].
    pub fn accept(&mut self, frame: &Frame) -> Result<Step, StreamError> {
        if frame.has(Flags::EVENT) {
            return Ok(Step::Event);
        }
        if frame.has(Flags::RESP) {
            return Err(StreamError::ResponseWithoutRequest);
        }
        let is_full = self.inflight() >= self.max_inflight;
        match (frame.has(Flags::START), frame.has(Flags::END)) {
            (true, is_whole) => self.start(frame, is_whole, is_full),
            (false, is_last) => self.go_on(frame, is_last, is_full),
        }
    }

    /// The last answer to this number is on its way.
    pub fn finished(&mut self, corr: u64) {
        let Entry::Occupied(mut entry) = self.by_corr.entry(corr) else { return };
        match *entry.get() {
            State::Asked => drop(entry.remove()),
            State::Open(_) => {
                entry.insert(State::Draining);
                self.draining += 1;
            }
            State::Draining => {}
        }
    }

    fn start(&mut self, frame: &Frame, is_whole: bool, is_full: bool) -> Result<Step, StreamError> {
        // Each stream may have to be remembered after its answer, so there is none more while too many are.
        let may_open = self.draining < self.max_inflight;
        let Entry::Vacant(entry) = self.by_corr.entry(frame.corr) else { return Err(StreamError::SecondStart) };
        match (is_whole, is_full) {
            (true, true) => Err(StreamError::Busy { max: self.max_inflight }),
            (true, false) => {
                entry.insert(State::Asked);
                Ok(Step::Whole)
            }
            (false, _) if !may_open => Err(StreamError::TooManyUnended),
            // What follows a refused START must not be taken for requests of their own.
            (false, true) => {
                entry.insert(State::Draining);
                self.draining += 1;
                Err(StreamError::Busy { max: self.max_inflight })
            }
            (false, false) => {
                entry.insert(State::Open(frame.app));
                Ok(Step::Opens)
            }
        }
    }

    fn go_on(&mut self, frame: &Frame, is_last: bool, is_full: bool) -> Result<Step, StreamError> {
        match self.by_corr.entry(frame.corr) {
            Entry::Vacant(_) if is_last => Err(StreamError::EndWithoutStart),
            Entry::Vacant(_) if is_full => Err(StreamError::Busy { max: self.max_inflight }),
            Entry::Vacant(entry) => {
                entry.insert(State::Asked);
                Ok(Step::Whole)
            }
            Entry::Occupied(mut entry) => match (*entry.get(), is_last) {
                (State::Asked, true) => Err(StreamError::EndWithoutStart),
                (State::Asked, false) => Err(StreamError::CorrInUse),
                (State::Open(app), _) if app != frame.app => Err(StreamError::AppChanged),
                (State::Open(_), false) => Ok(Step::Continues),
                (State::Open(_), true) => {
                    entry.insert(State::Asked);
                    Ok(Step::Closes)
                }
                (State::Draining, false) => Ok(Step::Ignored),
                (State::Draining, true) => {
                    entry.remove();
                    self.draining -= 1;
                    Ok(Step::Ignored)
                }
            },
        }
    }
}
