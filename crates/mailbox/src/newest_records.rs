//! Where the newest records of topics and of their moves are: only those are written again when their segment goes.
//!
//! Without it every segment that ever told of a topic would have the topic written again, in its present length: a few
//! old records of a topic could cost more room than the segment gives back.

use std::sync::Mutex;

use hashbrown::HashMap;
use ron_log::Position;

use crate::engine::lock;
use crate::types::TopicId;

/// Positions of the newest records that belong to no shard.
#[derive(Debug, Default)]
pub(crate) struct NewestRecords {
    topics: Mutex<Newest<Position>>,
    moves: Mutex<Newest<CopiedMoves>>,
}

/// The newest records of one kind, and their bytes together: asking for those does not look at all of them.
#[derive(Debug)]
struct Newest<T> {
    of: HashMap<TopicId, T>,
    bytes: u64,
}

/// All moves of a topic, written again together; what was said of one since then is newer still.
#[derive(Clone, Copy, Debug)]
struct CopiedMoves {
    /// The first segment with one of these copies.
    segment: u32,
    bytes: u64,
}

impl NewestRecords {
    /// The newest record of a topic is there.
    pub fn note_topic(&self, topic: TopicId, position: Position) {
        lock(&self.topics).put(topic, position);
    }

    /// All moves of a topic were written again there.
    pub fn note_moves(&self, topic: TopicId, copies: &[Position]) {
        if let Some(first) = copies.first() {
            let bytes = copies.iter().map(|position| u64::from(position.len)).sum();
            lock(&self.moves).put(topic, CopiedMoves { segment: first.segment, bytes });
        }
    }

    /// Whether a topic is lost with this segment; one whose record nobody knows may be.
    pub fn topic_goes_with(&self, topic: TopicId, segment: u32) -> bool {
        lock(&self.topics).of.get(&topic).is_none_or(|position| position.segment <= segment)
    }

    /// Topics that are lost with the segments up to this one, in order.
    pub fn topics_until(&self, segment: u32) -> Vec<TopicId> {
        let known = lock(&self.topics);
        let going = known.of.iter().filter(|(_, position)| position.segment <= segment);
        let mut topics: Vec<TopicId> = going.map(|(topic, _)| *topic).collect();
        topics.sort_unstable();
        topics
    }

    /// Whether moves of a topic may be lost with this segment.
    pub fn moves_go_with(&self, topic: TopicId, segment: u32) -> bool {
        lock(&self.moves).of.get(&topic).is_none_or(|copied| copied.segment <= segment)
    }

    /// Forgets a topic that is gone, with its own dead letters.
    pub fn forget(&self, topic: TopicId) {
        lock(&self.topics).forget(topic);
        lock(&self.moves).forget(topic);
    }

    /// Forgets all of them.
    pub fn reset(&self) {
        *lock(&self.topics) = Newest::default();
        *lock(&self.moves) = Newest::default();
    }

    /// Bytes of the records that would have to be written again. Moves count once they were: until then they are taken
    /// for garbage, which is found out when it is looked for.
    pub fn bytes(&self) -> u64 {
        lock(&self.topics).bytes + lock(&self.moves).bytes
    }
}

impl<T> Default for Newest<T> {
    fn default() -> Self {
        Newest { of: HashMap::new(), bytes: 0 }
    }
}

impl<T: RecordBytes> Newest<T> {
    fn put(&mut self, topic: TopicId, newest: T) {
        self.bytes += newest.bytes();
        if let Some(old) = self.of.insert(topic, newest) {
            self.bytes -= old.bytes();
        }
    }

    fn forget(&mut self, topic: TopicId) {
        for id in topic.with_dead_letters() {
            if let Some(old) = self.of.remove(&id) {
                self.bytes -= old.bytes();
            }
        }
    }
}

/// Bytes of records in the log.
trait RecordBytes {
    fn bytes(&self) -> u64;
}

impl RecordBytes for Position {
    fn bytes(&self) -> u64 {
        u64::from(self.len)
    }
}

impl RecordBytes for CopiedMoves {
    fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(segment: u32) -> Position {
        Position { segment, offset: 160, len: 100 }
    }

    #[test]
    fn only_the_newest_record_goes_with_its_segment() {
        let newest = NewestRecords::default();
        let topic = TopicId(1);
        assert!(newest.topic_goes_with(topic, 1) && newest.moves_go_with(topic, 1), "nobody knows");
        newest.note_topic(topic, at(1));
        newest.note_topic(topic, at(3));
        newest.note_moves(topic, &[]);
        assert!(newest.moves_go_with(topic, 1), "none were written");
        newest.note_moves(topic, &[at(3), at(4)]);
        for (segment, goes) in [(1, false), (2, false), (3, true)] {
            assert_eq!((newest.topic_goes_with(topic, segment), newest.moves_go_with(topic, segment)), (goes, goes));
            assert_eq!(newest.topics_until(segment).contains(&topic), goes);
        }
        assert_eq!(newest.bytes(), 300);
        let letters = topic.own_dead_letters().expect("it is none itself");
        newest.note_topic(TopicId(2), at(5));
        newest.note_moves(letters, &[at(5)]);
        assert_eq!(newest.bytes(), 500);
        newest.forget(topic);
        assert_eq!(newest.bytes(), 100, "of the other topic");
    }
}
