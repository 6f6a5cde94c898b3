//! A publisher's stream as its engine sees it: messages, and the word that the first refusal ends it.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use ron_types::Error;
use tokio::sync::oneshot;

use crate::words::Published;

/// A message of a publisher's stream.
pub struct StreamMessage {
    /// Its bytes.
    pub payload: Bytes,
    /// Called with the outcome, if the publisher asked for it; must not wait.
    pub outcome: Option<OutcomeCallback>,
}

/// Told what became of a message of a stream.
pub type OutcomeCallback = Box<dyn FnOnce(Result<Published, Error>) + Send>;

/// A stream of publications. Clones are the same stream.
#[derive(Clone)]
pub struct PublishStream(Arc<State>);

struct State {
    /// Told once, by the engine, when it refuses a message whose publisher asked for no outcome.
    refuse: Mutex<Refusal>,
}

enum Refusal {
    None(oneshot::Sender<Error>),
    Told(Error),
}

impl PublishStream {
    /// A stream, and what resolves with the error if an engine refuses one of its messages.
    pub fn new() -> (Self, oneshot::Receiver<Error>) {
        let (sender, refused) = oneshot::channel();
        (PublishStream(Arc::new(State { refuse: Mutex::new(Refusal::None(sender)) })), refused)
    }

    /// The refusal of an earlier message: nothing that comes after it is published.
    pub fn refusal(&self) -> Option<Error> {
        match &*self.0.refuse.lock().unwrap_or_else(PoisonError::into_inner) {
            Refusal::None(_) => None,
            Refusal::Told(error) => Some(error.clone()),
        }
    }

    /// Ends the stream: this message is not published, and none after it.
    pub(crate) fn refuse(&self, error: Error) {
        let mut refuse = self.0.refuse.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*refuse, Refusal::None(_))
            && let Refusal::None(sender) = std::mem::replace(&mut *refuse, Refusal::Told(error.clone()))
        {
            // A publisher that has left needs no word.
            let _ = sender.send(error);
        }
    }
}
