//! The record store that Kademlia asks for and this node does not have: records travel by our own protocol.

use std::borrow::Cow;
use std::iter::{Empty, empty};

use libp2p::PeerId;
use libp2p::kad::store::{Error, RecordStore, Result};
use libp2p::kad::{ProviderRecord, Record, RecordKey};

/// A store that holds nothing, so that no peer can fill it.
pub(crate) struct NoRecords;

impl RecordStore for NoRecords {
    type RecordsIter<'a> = Empty<Cow<'a, Record>>;
    type ProvidedIter<'a> = Empty<Cow<'a, ProviderRecord>>;

    fn get(&self, _: &RecordKey) -> Option<Cow<'_, Record>> {
        None
    }

    fn put(&mut self, _: Record) -> Result<()> {
        Err(Error::MaxRecords)
    }

    fn remove(&mut self, _: &RecordKey) {}

    fn records(&self) -> Self::RecordsIter<'_> {
        empty()
    }

    fn add_provider(&mut self, _: ProviderRecord) -> Result<()> {
        Err(Error::MaxProvidedKeys)
    }

    fn providers(&self, _: &RecordKey) -> Vec<ProviderRecord> {
        Vec::new()
    }

    fn provided(&self) -> Self::ProvidedIter<'_> {
        empty()
    }

    fn remove_provider(&mut self, _: &RecordKey, _: &PeerId) {}
}
