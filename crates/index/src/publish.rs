//! Publishing: what callers and peers want kept is checked under the gate, then written in a batch.

use std::time::Duration;

use bytes::Bytes;
use ron_kernel::clock;
use ron_store::{
    Applied, Change, ContentId, IpnsError, NameRecord, PeerId, Provided, ProviderFields, ProviderRecord, Record,
    RecordError, TTL_MAX_MS,
};
use ron_types::limits::index::{NAME_TTL, PROVIDER_TTL};
use ron_types::limits::records::WIRE_RECORDS_MAX;
use ron_types::{Error, Kind};

use crate::ingest::{Update, published};
use crate::shared::Shared;
use crate::words::{ProviderOffer, PublishOutcome};

impl Shared {
    /// Signs and keeps a provider that an operator named.
    pub async fn publish_provider(&self, content: &ContentId, offer: ProviderOffer) -> Result<ProviderRecord, Error> {
        let ttl_ms = ttl_ms(offer.ttl.unwrap_or(PROVIDER_TTL))?;
        let provided =
            Provided { content: *content, addrs: offer.addrs.clone(), protocols: offer.protocols.clone(), ttl_ms };
        let record = self.sign_provider(content, &offer, ttl_ms)?;
        let update = Update::of_record(Record::Provider(record.clone()), true);
        // What this node itself has it goes on saying until it is withdrawn.
        let is_own = record.peer == self.node_peer();
        let update = if is_own { update.and(Change::Provide(provided)) } else { update };
        self.write_own(update, record).await
    }

    /// Takes back what this node said of a provider.
    pub async fn withdraw_provider(&self, content: &ContentId, peer: Option<PeerId>) -> Result<ProviderRecord, Error> {
        let offer = ProviderOffer { peer, addrs: Vec::new(), protocols: Vec::new(), ttl: None };
        let record = self.sign_provider(content, &offer, 0)?;
        let update = Update::of_record(Record::Provider(record.clone()), true);
        let is_own = record.peer == self.node_peer();
        let update = if is_own { update.and(Change::Withdraw(content.key())) } else { update };
        self.write_own(update, record).await
    }

    fn sign_provider(&self, content: &ContentId, offer: &ProviderOffer, ttl_ms: u64) -> Result<ProviderRecord, Error> {
        let _permit = self.gate.try_acquire(1)?;
        let issued_ms = clock::unix_millis();
        let fields = ProviderFields {
            key: content.key(),
            peer: offer.peer.unwrap_or_else(|| self.node_peer()),
            addrs: offer.addrs.clone(),
            protocols: offer.protocols.clone(),
            sequence: self.next_sequence(0),
            issued_ms,
            expires_ms: issued_ms + ttl_ms,
        };
        ProviderRecord::sign(fields, &self.options.key).map_err(|error| refused(&error))
    }

    /// Points a name of this node somewhere.
    pub async fn name_set(&self, label: &str, value: ContentId, ttl: Option<Duration>) -> Result<NameRecord, Error> {
        let ttl_ms = ttl_ms(ttl.unwrap_or(NAME_TTL))?;
        let (owner, asked) = (self.node_key(), label.to_owned());
        let now_ms = clock::unix_millis();
        let known = self.read(move |store| store.name(&owner, &asked, now_ms)).await?;
        let record = {
            let _permit = self.gate.try_acquire(1)?;
            let sequence = self.next_sequence(known.map_or(0, |record| record.sequence));
            let signed = NameRecord::sign(label, value, sequence, now_ms, now_ms + ttl_ms, &self.options.key);
            signed.map_err(|error| refused(&error))?
        };
        self.write_own(Update::of_record(Record::Name(record.clone()), true), record).await
    }

    /// Writes what this node signed just now; nothing newer of it can be known.
    async fn write_own<T>(&self, update: Update, record: T) -> Result<T, Error> {
        match self.ingest(update).await? {
            Applied::Older => Err(Error::new(Kind::Conflict, "a newer record was published at the same time")),
            applied => published(applied).map(|_| record),
        }
    }

    /// Keeps a record that somebody signed.
    pub async fn publish_record(&self, record: Record) -> Result<PublishOutcome, Error> {
        {
            let _permit = self.gate.try_acquire(1)?;
            record.verify(clock::unix_millis()).map_err(|error| refused(&error))?;
        }
        published(self.ingest(Update::of_record(record, true)).await?)
    }

    /// Keeps a document; gives its hash.
    pub async fn publish_manifest(&self, bytes: Bytes) -> Result<ContentId, Error> {
        let bytes_max = self.live.get().value.body_bytes_max;
        if bytes.len() > bytes_max {
            let detail = format!("a document of {} bytes; at most {bytes_max} are taken", bytes.len());
            return Err(Error::new(Kind::FrameTooLarge, detail));
        }
        let content = {
            let _permit = self.gate.try_acquire(1)?;
            ContentId::of_bytes(&bytes)
        };
        published(self.ingest(Update::manifest(content, bytes)).await?)?;
        Ok(content)
    }

    /// Records that a peer wants kept: those that hold are queued.
    pub fn offer(&self, records: Vec<Record>) -> Result<usize, Error> {
        let _permit = self.gate.try_acquire(1)?;
        let now_ms = clock::unix_millis();
        let mut taken = 0;
        for record in records.into_iter().take(WIRE_RECORDS_MAX) {
            if record.verify(now_ms).is_err() {
                continue;
            }
            match self.ingest.offer(Update::of_record(record, false)) {
                Ok(()) => taken += 1,
                Err(error) if taken == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(taken)
    }
}

fn ttl_ms(ttl: Duration) -> Result<u64, Error> {
    let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    if (1..=TTL_MAX_MS).contains(&ttl_ms) {
        return Ok(ttl_ms);
    }
    Err(Error::new(Kind::Schema, format!("a record lasts 1 to {} seconds", TTL_MAX_MS / 1000)))
}

/// The error for a record that does not hold: a wrong signature is not a wrong form.
pub(crate) fn refused(error: &RecordError) -> Error {
    let kind = match error {
        RecordError::Signature | RecordError::Signer => Kind::Integrity,
        RecordError::Ipns(IpnsError::Signature | IpnsError::Key) => Kind::Integrity,
        _ => Kind::Schema,
    };
    Error::new(kind, error.to_string())
}
