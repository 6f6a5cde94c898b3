//! The alarm of a breaker: a line in the journal of the node, a count, and an event.

use crate::engine::Engine;
use crate::events::Event;
use crate::types::{BreakerState, BreakerTurn};

impl Engine {
    /// Tells that breakers have opened or closed.
    pub fn tell_of_breakers(&self, turns: Vec<BreakerTurn>) {
        for turn in turns {
            if let Some(topic) = self.topics.by_id(turn.part.topic) {
                self.tell_of_breaker(topic.name.clone(), turn);
            }
        }
    }

    fn tell_of_breaker(&self, topic: crate::types::TopicName, turn: BreakerTurn) {
        let BreakerTurn { part, view, failing, deliveries } = turn;
        let partition = part.partition;
        if view.state == BreakerState::Closed {
            tracing::info!(%topic, partition, "a message was acknowledged: deliveries go on");
            self.events.publish(Event::BreakerClosed { topic, partition });
            return;
        }
        let until_ms = view.until_ms.unwrap_or_default();
        tracing::warn!(%topic, partition, failing, deliveries, until_ms, "too many deliveries fail: they are paused");
        self.counts.breaker_opened(topic.as_str());
        self.events.publish(Event::BreakerOpened { topic, partition, failing, deliveries, until_ms });
    }
}
