//! Publishing: what callers and peers want kept is checked under the gate, then written in a batch.

use std::time::Duration;

use bytes::Bytes;
use ron_store::{
    Applied, Change, ContentId, IpnsError, Multiaddr, NameRecord, PeerId, PeerRecord, Provided, ProviderFields,
    ProviderRecord, Record, RecordError, TTL_MAX_MS,
};
use ron_types::limits::dht::PEER_RECORD_TTL;
use ron_types::limits::index::{NAME_TTL, PROVIDER_TTL};
use ron_types::limits::records::WIRE_RECORDS_MAX;
use ron_types::{Error, Kind};

use crate::ingest::{Update, published};
use crate::shared::Shared;
use crate::words::{ProviderOffer, PublishOutcome};

/// Times a withdrawal is signed. A renewal that was signed a moment later may be written a moment before it; after
/// the first try nothing is renewed any more, so the second one stands.
const WITHDRAW_TRIES: usize = 2;

impl Shared {
    /// Signs and keeps a provider that an operator named.
    pub async fn publish_provider(&self, content: &ContentId, offer: ProviderOffer) -> Result<ProviderRecord, Error> {
        let ttl_ms = ttl_ms(offer.ttl.unwrap_or(PROVIDER_TTL))?;
        let is_own = offer.peer.is_none_or(|peer| peer == self.node_peer());
        let known = self.known_provider(content, offer.peer).await?;
        let record = {
            let _permit = self.gate.try_acquire(1)?;
            let addrs = if is_own { self.addrs_now(&offer.addrs) } else { offer.addrs.clone() };
            self.sign_provider(content, ProviderOffer { addrs, ..offer.clone() }, known, ttl_ms)?
        };
        let update = Update::of_own(Record::Provider(record.clone()));
        let update = match (is_own, offer.ttl) {
            // What this node itself has it goes on saying until it is withdrawn, unless an end was named.
            (true, None) => {
                let ProviderOffer { addrs, protocols, .. } = offer;
                update.and(Change::Provide(Provided { content: *content, addrs, protocols, ttl_ms }))
            }
            (true, Some(_)) => update.and(Change::Withdraw(content.key())),
            (false, _) => update,
        };
        self.write_own(update, record).await
    }

    /// Where something of this node can be had: at these addresses, or where the node is reached now.
    pub fn addrs_now(&self, addrs: &[Multiaddr]) -> Vec<Multiaddr> {
        if addrs.is_empty() { (self.options.own_addresses)() } else { addrs.to_vec() }
    }

    /// Takes back what this node said of a provider.
    pub async fn withdraw_provider(&self, content: &ContentId, peer: Option<PeerId>) -> Result<ProviderRecord, Error> {
        let offer = ProviderOffer { peer, addrs: Vec::new(), protocols: Vec::new(), ttl: None };
        let mut tries = 0;
        loop {
            let known = self.known_provider(content, peer).await?;
            let record = {
                let _permit = self.gate.try_acquire(1)?;
                self.sign_provider(content, offer.clone(), known, 0)?
            };
            let update = Update::of_own(Record::Provider(record.clone()));
            let is_own = record.peer == self.node_peer();
            let update = if is_own { update.and(Change::Withdraw(content.key())) } else { update };
            tries += 1;
            match self.write_own(update, record).await {
                Err(error) if error.kind == Kind::Conflict && tries < WITHDRAW_TRIES => {}
                withdrawn => return withdrawn,
            }
        }
    }

    /// Number of what this node said last of a provider, zero if nothing. A clock that was ahead when it was said would
    /// otherwise let nothing newer stand, not even that it is taken back.
    async fn known_provider(&self, content: &ContentId, peer: Option<PeerId>) -> Result<u64, Error> {
        let (key, peer) = (content.key(), peer.unwrap_or_else(|| self.node_peer()));
        let (signer, now_ms) = (self.node_key(), self.unix_ms());
        let known = self.read(move |store| store.provider_or_withdrawal(&key, &peer, &signer, now_ms)).await?;
        Ok(known.map_or(0, |record| record.sequence))
    }

    /// Signs a provider record of now, with a number above `known` and all that this node used.
    pub fn sign_provider(
        &self,
        content: &ContentId,
        offer: ProviderOffer,
        known: u64,
        ttl_ms: u64,
    ) -> Result<ProviderRecord, Error> {
        let peer = offer.peer.unwrap_or_else(|| self.node_peer());
        // Where others are they say themselves; a withdrawal says nothing.
        let is_own = peer == self.node_peer() && ttl_ms > 0;
        let issued_ms = self.unix_ms();
        let fields = ProviderFields {
            key: content.key(),
            peer,
            addrs: offer.addrs,
            protocols: offer.protocols,
            region: self.region().filter(|_| is_own).map(|region| region.to_string()),
            sequence: self.next_sequence(known),
            issued_ms,
            expires_ms: issued_ms + ttl_ms,
        };
        ProviderRecord::sign(fields, &self.options.key).map_err(|error| refused(&error))
    }

    /// Signs a record of where this node is reached now; none if it is reached nowhere.
    pub fn sign_own_peer(&self) -> Option<PeerRecord> {
        let (addrs, now_ms) = (self.addrs_now(&[]), self.unix_ms());
        let expires_ms = now_ms + PEER_RECORD_TTL.as_millis() as u64;
        if addrs.is_empty() { None } else { PeerRecord::sign(addrs, now_ms, expires_ms, &self.options.key).ok() }
    }

    /// Points a name of this node somewhere.
    pub async fn name_set(&self, label: &str, value: ContentId, ttl: Option<Duration>) -> Result<NameRecord, Error> {
        let ttl_ms = ttl_ms(ttl.unwrap_or(NAME_TTL))?;
        let record = self.sign_known_name(label, value, ttl_ms).await?;
        // As with providers: a name without a named end stands until it is taken back.
        let change = match ttl {
            None => Change::KeepName { label: label.to_owned(), value },
            Some(_) => Change::DropName(label.to_owned()),
        };
        self.write_own(Update::of_own(Record::Name(record.clone())).and(change), record).await
    }

    /// Lets a name of this node stand for nothing.
    pub async fn name_remove(&self, label: &str) -> Result<NameRecord, Error> {
        let mut tries = 0;
        loop {
            let record = self.sign_known_name(label, ContentId::of_bytes(&[]), 0).await?;
            let update = Update::of_own(Record::Name(record.clone()));
            tries += 1;
            match self.write_own(update.and(Change::DropName(label.to_owned())), record).await {
                Err(error) if error.kind == Kind::Conflict && tries < WITHDRAW_TRIES => {}
                removed => return removed,
            }
        }
    }

    /// Signs a record of a name with a number above that of the one that is known.
    async fn sign_known_name(&self, label: &str, value: ContentId, ttl_ms: u64) -> Result<NameRecord, Error> {
        let (owner, asked, now_ms) = (self.node_key(), label.to_owned(), self.unix_ms());
        let known = self.read(move |store| store.name_or_withdrawal(&owner, &asked, now_ms)).await?;
        let _permit = self.gate.try_acquire(1)?;
        self.sign_name(label, value, known.map_or(0, |record| record.sequence), ttl_ms)
    }

    /// Signs a record of now about a name of this node, with a number above `known`.
    pub fn sign_name(&self, label: &str, value: ContentId, known: u64, ttl_ms: u64) -> Result<NameRecord, Error> {
        let now_ms = self.unix_ms();
        let sequence = self.next_sequence(known);
        let signed = NameRecord::sign(label, value, sequence, now_ms, now_ms + ttl_ms, &self.options.key);
        signed.map_err(|error| refused(&error))
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
            record.verify(self.unix_ms()).map_err(|error| refused(&error))?;
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
        let now_ms = self.unix_ms();
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
