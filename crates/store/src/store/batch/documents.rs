//! Documents: kept while they are pinned, provided or named by this node, and else for as long as any record of others.

use std::collections::HashSet;

use redb::ReadableTable as _;
use ron_types::limits::records::{DOCUMENTS_RESERVE_SHARE, MANIFEST_BYTES_MAX};

use super::super::bad_rows::decode_other;
use super::super::shortage::Refused;
use super::super::tables::{
    self, ExpiringRow, OtherRow, document_kind_row, expiring_row, hour_of, other_row, row_of_document,
};
use super::super::{Applied, StoreError};
use super::Batch;
use crate::{ContentId, Key, Record, RecordKind, Subject, TTL_MAX_MS};

/// Pinned names stand between this text and the next.
const NAMES: (&str, &str) = ("name:", "name;");

impl Batch<'_> {
    /// Keeps a document. A share of the room is left to the operator, who publishes on when others have filled the
    /// rest.
    pub(super) fn put_manifest(
        &mut self,
        content: &ContentId,
        bytes: &[u8],
        is_operators: bool,
    ) -> Result<Applied, StoreError> {
        if bytes.len() > MANIFEST_BYTES_MAX || content.verifies(bytes) != Some(true) {
            return Ok(Applied::Refused);
        }
        let row = content.multihash_bytes();
        let known = self.manifests.get(row.as_slice())?.map(|known| known.value() == bytes);
        match known {
            Some(true) => {
                self.keep_document(&row)?;
                return Ok(Applied::Same);
            }
            // Damaged, or it would be the same under this hash.
            Some(false) => drop(self.remove_manifest(&row)?),
            None => {}
        }
        let all = self.bounds.manifests_bytes_max;
        let max = if is_operators { all } else { all - all / DOCUMENTS_RESERVE_SHARE };
        if self.counts.manifests_bytes + bytes.len() > max {
            // One that would never fit is no sign of others.
            let documents_level = max.checked_sub(bytes.len());
            self.refused.add(Refused { documents_level, ..Refused::default() });
            return Ok(Applied::Full);
        }
        self.manifests.insert(row.as_slice(), bytes)?;
        self.counts.manifests += 1;
        self.set_manifests_bytes(self.counts.manifests_bytes + bytes.len())?;
        self.keep_document(&row)?;
        Ok(Applied::Stored)
    }

    /// Removes a document, unless something holds it.
    pub(super) fn forget(&mut self, content: &ContentId) -> Result<Applied, StoreError> {
        let row = content.multihash_bytes();
        if self.manifests.get(row.as_slice())?.is_none() {
            return Ok(Applied::Same);
        }
        if self.is_held(content)? {
            return Ok(Applied::Held);
        }
        self.remove_manifest(&row)?;
        Ok(Applied::Stored)
    }

    /// Removes a document by its multihash, with what counts it; says whether it was there.
    pub(super) fn remove_manifest(&mut self, row: &[u8]) -> Result<bool, StoreError> {
        self.document_ends.remove(row)?;
        let removed = self.manifests.remove(row)?.map(|bytes| bytes.value().len());
        let Some(bytes) = removed else { return Ok(false) };
        self.counts.manifests = self.counts.manifests.saturating_sub(1);
        self.set_manifests_bytes(self.counts.manifests_bytes.saturating_sub(bytes))?;
        Ok(true)
    }

    /// Keeps a document from now on for as long as any that nothing holds, if it is there.
    pub(super) fn keep_document(&mut self, row: &[u8]) -> Result<(), StoreError> {
        if self.manifests.get(row)?.is_none() {
            return Ok(());
        }
        let until_ms = self.now_ms.saturating_add(TTL_MAX_MS);
        let before_ms = self.document_ends.get(row)?.map(|end| end.value());
        // By the hour, so that who publishes the same again and again writes little. A clock that is set back counts.
        if before_ms.is_some_and(|before_ms| hour_of(before_ms) == hour_of(until_ms)) {
            return Ok(());
        }
        self.is_changed = true;
        self.document_ends.insert(row, until_ms)?;
        if let Some(kind_row) = document_kind_row(row) {
            self.expiring.insert(&expiring_row(hour_of(until_ms), &kind_row), ())?;
        }
        Ok(())
    }

    /// Keeps the document that the name with this record stands for.
    pub(super) fn keep_document_of_name(&mut self, row: &OtherRow) -> Result<(), StoreError> {
        let record = self.others.get(row)?.and_then(|value| decode_other(row, value.value()));
        match record {
            Some((_, Record::Name(record))) => self.keep_document(&record.value.multihash_bytes()),
            _ => Ok(()),
        }
    }

    /// Looks whether a document may go, in the hour that this was noted for. One that is held, or of which nobody knows
    /// when it came, is looked at again later.
    pub(super) fn drop_document(&mut self, noted: &ExpiringRow) -> Result<(), StoreError> {
        let row = row_of_document(&noted[5..]);
        let Some(id) = tables::document_of_row(&row) else { return Ok(()) };
        let end_ms = self.document_ends.get(row.as_slice())?.map(|end| end.value());
        match end_ms {
            None => self.keep_document(&row),
            // It was published again, or let go of, since this was noted. A note for that hour is there.
            Some(end_ms) if hour_of(end_ms) >= hour_of(self.now_ms) => Ok(()),
            Some(_) if self.is_held(&id)? => self.keep_document(&row),
            Some(_) => self.remove_manifest(&row).map(|_| ()),
        }
    }

    /// Whether the node is to keep a document: it is pinned, by itself or by a name that stands for it, or the node
    /// says that it has it, or one of the node's own names stands for it.
    fn is_held(&mut self, content: &ContentId) -> Result<bool, StoreError> {
        if self.pins.get(Subject::Content(*content).to_string().as_str())?.is_some()
            || self.provided.get(&content.key().0)?.is_some()
        {
            return Ok(true);
        }
        if self.held_by_names.is_none() {
            self.held_by_names = Some(self.keys_of_names()?);
        }
        Ok(self.held_by_names.as_ref().is_some_and(|held| held.contains(&content.key())))
    }

    /// Keys of content that the node's own names and pinned names stand for.
    fn keys_of_names(&self) -> Result<HashSet<Key>, StoreError> {
        let mut held = HashSet::new();
        for row in self.named.iter()? {
            held.extend(ContentId::from_cid_bytes(row?.1.value()).ok().map(|value| value.key()));
        }
        for row in self.pins.range::<&str>(NAMES.0..NAMES.1)? {
            let Ok(Subject::Name(name)) = row?.0.value().parse::<Subject>() else { continue };
            let Some(owner) = name.owner().or(self.owner) else { continue };
            let row = other_row(RecordKind::Name, &Key::of_owned_label(&owner, name.label()));
            if let Some((_, Record::Name(record))) =
                self.others.get(&row)?.and_then(|value| decode_other(&row, value.value()))
                && !record.withdraws()
            {
                held.insert(record.value.key());
            }
        }
        Ok(held)
    }
}
