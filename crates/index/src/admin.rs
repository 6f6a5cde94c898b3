//! What operators do: pin, unpin, reindex, each once for an idempotency key, each told to observers.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use ron_store::{Applied, Change};
use ron_types::limits::index::{IDEMPOTENCY_KEY_BYTES_MAX, IDEMPOTENCY_WINDOW};
use ron_types::{Error, Kind};

use crate::ingest::{Update, published};
use crate::prefetch::{Refresh, Why, query};
use crate::shared::Shared;
use crate::words::{AdminAction, AdminDone, AdminRequest, IndexEvent};

/// Requests with an idempotency key that are being done.
#[derive(Clone, Default)]
pub(crate) struct UnderWay {
    requests: Arc<Mutex<HashSet<[u8; 32]>>>,
}

/// One of them, until it is done.
struct Claim {
    under_way: UnderWay,
    request: [u8; 32],
}

impl UnderWay {
    fn claim(&self, request: [u8; 32]) -> Result<Claim, Error> {
        let is_first = self.requests.lock().unwrap_or_else(PoisonError::into_inner).insert(request);
        match is_first {
            true => Ok(Claim { under_way: self.clone(), request }),
            false => Err(Error::new(Kind::Conflict, "the request with this idempotency key is being done")),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.under_way.requests.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.request);
    }
}

impl Shared {
    /// Does what an operator asks, or finds that it was done.
    pub async fn administer(&self, request: AdminRequest) -> Result<AdminDone, Error> {
        let claim = request.idempotency_key.as_deref().map(|key| self.claim(&request.by, key)).transpose()?;
        let body = body(&request);
        let done = match &claim {
            Some(claim) => match self.remembered(claim.request, body).await? {
                Some(done) => done,
                None => self.perform(&request, Some((claim.request, body))).await?,
            },
            None => self.perform(&request, None).await?,
        };
        self.audit(request, done);
        Ok(done)
    }

    fn claim(&self, by: &str, key: &str) -> Result<Claim, Error> {
        if !(1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&key.len()) {
            let detail = format!("an idempotency key has 1 to {IDEMPOTENCY_KEY_BYTES_MAX} bytes");
            return Err(Error::new(Kind::Schema, detail));
        }
        let mut hasher = blake3::Hasher::new_derive_key("macronode index idempotency 1");
        hasher.update(&(by.len() as u64).to_le_bytes()).update(by.as_bytes()).update(key.as_bytes());
        self.under_way.claim(*hasher.finalize().as_bytes())
    }

    /// The answer to an earlier request with the same key; Conflict if that one wanted something else.
    async fn remembered(&self, request: [u8; 32], body: [u8; 32]) -> Result<Option<AdminDone>, Error> {
        let now_ms = self.unix_ms();
        let Some(answer) = self.read(move |store| store.remembered(&request, now_ms)).await? else { return Ok(None) };
        match answer.split_last_chunk::<1>() {
            Some((earlier, [changed])) if *earlier == body => {
                Ok(Some(AdminDone { changed: *changed == 1, replayed: true }))
            }
            _ => Err(Error::new(Kind::Conflict, "the idempotency key was used for another request")),
        }
    }

    async fn perform(&self, request: &AdminRequest, keyed: Option<([u8; 32], [u8; 32])>) -> Result<AdminDone, Error> {
        let subject = request.subject.clone();
        let change = match request.action {
            AdminAction::Pin => Some(Change::Pin(subject)),
            AdminAction::Unpin => Some(Change::Unpin(subject)),
            AdminAction::Reindex => None,
        };
        let was_pinned = match (&request.action, request.subject.clone()) {
            (AdminAction::Reindex, _) => false,
            (_, subject) => self.read(move |store| store.is_pinned(&subject)).await?,
        };
        let changed = match request.action {
            AdminAction::Pin => !was_pinned,
            AdminAction::Unpin => was_pinned,
            AdminAction::Reindex => true,
        };
        // Before it is remembered: whoever finds no room for it comes back with the same key, and must not be told that
        // it was done.
        if request.action == AdminAction::Reindex {
            self.reindex(request).await?;
        }
        let remember = keyed.map(|(request, body)| Change::Remember {
            request,
            answer: Bytes::from([&body[..], &[u8::from(changed)]].concat()),
            until_ms: self.unix_ms() + IDEMPOTENCY_WINDOW.as_millis() as u64,
        });
        let changes: Vec<Change> = change.into_iter().chain(remember).collect();
        if !changes.is_empty() {
            match self.ingest(Update::single(changes)).await? {
                // Pinned already, or not at all.
                Applied::Same | Applied::Older => {}
                applied => drop(published(applied)?),
            }
        }
        Ok(AdminDone { changed, replayed: false })
    }

    /// Forgets what is cached about a subject and has it looked up anew.
    async fn reindex(&self, request: &AdminRequest) -> Result<(), Error> {
        let (query, content) = query(self, &request.subject);
        let refresh = Refresh { query: query.clone(), content, shown: request.subject.to_string(), why: Why::Again };
        self.refresh.offer(refresh)?;
        self.forget(&query).await;
        Ok(())
    }

    fn audit(&self, request: AdminRequest, done: AdminDone) {
        let AdminRequest { action, subject, by, .. } = request;
        tracing::info!(
            target: "audit",
            action = action.as_str(),
            %subject,
            by,
            changed = done.changed,
            replayed = done.replayed,
            "an operator changed the index"
        );
        self.events.publish(IndexEvent::Audited { action, subject, by, done, at_ms: self.unix_ms() });
    }
}

/// What a request wants, as a digest: an idempotency key stands for one of these.
fn body(request: &AdminRequest) -> [u8; 32] {
    let text = format!("{}\n{}", request.action.as_str(), request.subject);
    *blake3::hash(text.as_bytes()).as_bytes()
}
