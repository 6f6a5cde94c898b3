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
    topics: Mutex<HashMap<TopicId, Position>>,
    moves: Mutex<HashMap<TopicId, CopiedMoves>>,
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
        lock(&self.topics).insert(topic, position);
    }

    /// All moves of a topic were written again there.
    pub fn note_moves(&self, topic: TopicId, copies: &[Position]) {
        if let Some(first) = copies.first() {
            let bytes = copies.iter().map(|position| u64::from(position.len)).sum();
            lock(&self.moves).insert(topic, CopiedMoves { segment: first.segment, bytes });
        }
    }

    /// Whether a topic is lost with this segment; one whose record nobody knows may be.
    pub fn topic_goes_with(&self, topic: TopicId, segment: u32) -> bool {
        lock(&self.topics).get(&topic).is_none_or(|position| position.segment <= segment)
    }

    /// Whether moves of a topic may be lost with this segment.
    pub fn moves_go_with(&self, topic: TopicId, segment: u32) -> bool {
        lock(&self.moves).get(&topic).is_none_or(|copied| copied.segment <= segment)
    }

    /// Forgets a topic that is gone, with its own dead letters.
    pub fn forget(&self, topic: TopicId) {
        lock(&self.topics).retain(|known, _| known.home() != topic.home());
        lock(&self.moves).retain(|known, _| known.home() != topic.home());
    }

    /// Bytes of the records that would have to be written again. Moves count once they were: until then they are taken
    /// for garbage, which is found out when it is looked for.
    pub fn bytes(&self) -> u64 {
        let topics: u64 = lock(&self.topics).values().map(|position| u64::from(position.len)).sum();
        let moves: u64 = lock(&self.moves).values().map(|copied| copied.bytes).sum();
        topics + moves
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
        }
        assert_eq!(newest.bytes(), 300);
        newest.forget(topic);
        assert_eq!(newest.bytes(), 0);
    }
}
