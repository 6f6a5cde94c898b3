//! A journal in memory with segments, that knows which bodies are still needed.

use std::collections::BTreeMap;

use ron_log::{Class, Position};
use ron_types::Error;
use svc_mailbox::record::Record;
use svc_mailbox::shard::Journal;

const SEGMENT_RECORDS: usize = 16;

#[derive(Clone)]
pub struct Written {
    pub position: Position,
    pub head: Vec<u8>,
    pub body: Vec<u8>,
}

#[derive(Clone, Default)]
pub struct Tape {
    pub records: Vec<Written>,
    /// Bodies that were not released.
    pub live: BTreeMap<Position, usize>,
    appended: usize,
}

impl Journal for Tape {
    fn append(&mut self, _: Class, head: &[u8], body: &[u8]) -> Result<Position, Error> {
        Record::decode(head).expect("a record that was just written can be read");
        let position = Position {
            segment: (self.appended / SEGMENT_RECORDS) as u32,
            offset: self.appended as u32,
            len: (head.len() + body.len()) as u32,
        };
        self.appended += 1;
        if !body.is_empty() {
            self.live.insert(position, body.len());
        }
        self.records.push(Written { position, head: head.to_vec(), body: body.to_vec() });
        Ok(position)
    }

    fn release(&mut self, position: Position) {
        assert!(self.live.remove(&position).is_some(), "{position:?} was released twice or never had a body");
    }
}

impl Tape {
    pub fn body(&self, position: Position) -> &[u8] {
        &self.records.iter().find(|written| written.position == position).expect("the body is there").body
    }

    /// The oldest segment, unless it is still being written.
    pub fn oldest(&self) -> Option<u32> {
        let oldest = self.records.first()?.position.segment;
        (oldest < self.records.last()?.position.segment).then_some(oldest)
    }

    pub fn drop_segment(&mut self, segment: u32) {
        assert!(self.live.keys().all(|position| position.segment != segment), "a live body would be lost");
        self.records.retain(|written| written.position.segment != segment);
    }
}
