//! Changing and taking back what nobody has received yet.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use ron_kernel::Deadline;
use ron_types::{Error, Kind};

use super::Mailbox;
use super::inspect::Seen;
use super::receive::owned;
use crate::bounds::{
    check_attributes, check_delay, check_message, check_payload, counted_bytes, is_reserved_attribute,
};
use crate::engine::lock;
use crate::envelope::{Envelope, payload_hash};
use crate::topics::Topic;
use crate::types::{MessageId, PartKey, Summary};

/// Times a change is made anew because others changed the message meanwhile, or reclaim moved it.
const TRIES_MAX: usize = 8;

/// What is to be different about a message; what is not given stays.
#[derive(Clone, Debug, Default)]
pub struct MessageChange {
    /// Another payload.
    pub payload: Option<Bytes>,
    /// Other attributes, instead of all the old ones that a sender can write.
    pub attrs: Option<Vec<(String, String)>>,
    /// Milliseconds from now until the message may be delivered.
    pub delay_ms: Option<u64>,
    /// Bytes of the largest message that the capability of its editor allows, payload and attributes; none for any.
    pub bytes_max: Option<u64>,
}

/// Whether a step has been done, between the shard that does it and a caller that stops waiting. Whoever comes first
/// decides, so that a caller whose time is over knows what became of the step.
#[derive(Clone, Default)]
struct Progress(Arc<Mutex<Stage>>);

#[derive(Default)]
enum Stage {
    #[default]
    Waiting,
    GivenUp,
    Done(Result<(), Error>),
}

impl Mailbox {
    /// Takes a message back before anybody has received it.
    pub async fn cancel(&self, id: MessageId, deadline: Deadline) -> Result<(), Error> {
        let part = self.place_of(id, deadline).await?;
        let progress = Progress::default();
        let done = progress.clone();
        let work = self
            .on_part(part, deadline, move |turn| done.run(|| turn.shard.cancel(turn.now, turn.journal, part, id.seq)));
        work.await.map_err(|error| progress.explain(error))
    }

    /// Changes a message that nobody has received yet; how it is then. It is one step: whatever refuses it, nothing of
    /// the message has changed, and of changes at the same time each is made to what the one before it left.
    pub async fn change(&self, id: MessageId, change: MessageChange, deadline: Deadline) -> Result<Seen, Error> {
        for _ in 0..TRIES_MAX {
            let part = self.place_of(id, deadline).await?;
            let topic = self.topic_of_part(part)?;
            check_delay(change.delay_ms.unwrap_or(0), topic.settings.retention_ms)?;
            let changed = self.change_once(part, &topic, id, change.clone(), deadline).await?;
            if let Some(seen) = changed {
                return Ok(seen);
            }
        }
        Err(Error::busy("the message, which others change at the same time,"))
    }

    /// Makes a change to what the message is now; none if it was another when the change was to be written.
    async fn change_once(
        &self,
        part: PartKey,
        topic: &Topic,
        id: MessageId,
        change: MessageChange,
        deadline: Deadline,
    ) -> Result<Option<Seen>, Error> {
        let delay_ms = change.delay_ms;
        let read = self.on_part(part, deadline, move |turn| turn.shard.unseen(part, id.seq)).await?;
        let (Summary { content, .. }, read_at) = read;
        let body = self.read_back(vec![content]).await?.pop().ok_or_else(super::lost)?;
        let edited = edited(&body, change, topic.settings.payload_bytes_max.into())?;
        let progress = Progress::default();
        let written = edited.clone();
        let done = progress.clone();
        let work = self.on_part(part, deadline, move |turn| {
            done.run(|| {
                let due_ms = delay_ms.map(|delay_ms| turn.now + delay_ms);
                turn.shard.change(turn.now, turn.journal, (part, id.seq), read_at, written, due_ms)
            })
        });
        let summary = work.await.map_err(|error| progress.explain(error))?;
        let body = edited.map_or(body, Ok);
        Ok(summary.map(|summary| self.seen(&topic.name, summary, body)))
    }
}

/// The body that a change makes of what there is; none where it stays as it is. What is damaged cannot be kept: its
/// bytes are not what was sent, and a new hash over them would say that they are.
fn edited(body: &Result<Bytes, Error>, change: MessageChange, size_max: u64) -> Result<Option<Bytes>, Error> {
    let MessageChange { payload, attrs, bytes_max, .. } = change;
    let old = match body.as_ref().map_err(Error::clone).and_then(Envelope::open) {
        Ok(old) => Some(old),
        Err(error) if error.kind != Kind::Integrity => return Err(error),
        Err(_) => None,
    };
    if old.is_none() && (payload.is_none() || attrs.is_none()) {
        let detail = "the message is damaged: a change has to replace both its payload and its attributes";
        return Err(Error::new(Kind::Conflict, detail));
    }
    if payload.is_none() && attrs.is_none() {
        return Ok(None);
    }
    let old = old.unwrap_or_default();
    let attrs = match attrs {
        None => owned(&old.attrs),
        // What a surface noted of the message is no matter of whoever edits it, so it neither goes nor changes.
        Some(mut attrs) => {
            attrs.extend(owned(&old.attrs).into_iter().filter(|(name, _)| is_reserved_attribute(name)));
            attrs
        }
    };
    let payload = payload.unwrap_or(old.payload);
    check_attributes(&attrs)?;
    check_payload(payload.len(), size_max)?;
    // Held to it as a send is: what may not be put in cannot be made of something smaller afterwards.
    check_message(counted_bytes(&payload, &attrs), bytes_max)?;
    let envelope = Envelope {
        idem_key: old.idem_key,
        corr_id: old.corr_id,
        attrs: attrs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
        payload_hash: payload_hash(&payload),
        payload,
    };
    Ok(Some(envelope.encode()))
}

impl Progress {
    /// Does the step, unless its caller has given it up.
    fn run<R>(&self, step: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
        let mut stage = lock(&self.0);
        if matches!(*stage, Stage::GivenUp) {
            return Err(Error::timeout("mailbox"));
        }
        let done = step();
        *stage = Stage::Done(done.as_ref().map(drop).map_err(Error::clone));
        done
    }

    /// What an error of the wait for the step means for the step itself, which is not begun any more.
    fn explain(&self, error: Error) -> Error {
        if error.kind != Kind::Timeout {
            return error;
        }
        let said = |what: &str| Error { detail: format!("{}: {what}", error.detail).into(), ..error.clone() };
        match std::mem::replace(&mut *lock(&self.0), Stage::GivenUp) {
            Stage::Waiting | Stage::GivenUp => said("nothing was changed"),
            Stage::Done(Ok(())) => said("the message was changed, but is not known to be safe on the disk yet"),
            Stage::Done(Err(refused)) => refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_stops_waiting_for_a_change_knows_what_became_of_it() {
        let late = || Error::timeout("mailbox");
        let given_up = Progress::default();
        assert!(given_up.explain(late()).detail.ends_with("nothing was changed"));
        let begun = given_up.run(|| -> Result<(), Error> { panic!("it was given up") });
        assert_eq!(begun.map_err(|error| error.kind), Err(Kind::Timeout));

        let done = Progress::default();
        assert_eq!(done.run(|| Ok(7)), Ok(7));
        let told = done.explain(late());
        assert!(told.kind == Kind::Timeout && told.detail.contains("the message was changed"), "{told}");

        let refused = Progress::default();
        let conflict = Error::new(Kind::Conflict, "no");
        assert_eq!(refused.run(|| -> Result<(), Error> { Err(conflict.clone()) }), Err(conflict.clone()));
        assert_eq!(refused.explain(late()), conflict);
        assert_eq!(Progress::default().explain(conflict.clone()), conflict, "what is no timeout stays as it is");
    }
}
