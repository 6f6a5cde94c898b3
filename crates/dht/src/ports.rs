//! What the DHT needs of others: somebody who keeps records, and somebody who carries announcements.

use bytes::Bytes;
use futures_util::stream::BoxStream;
use ron_store::wire::{Question, Reply};
use ron_store::{Key, PeerId, Possession, Record};

/// Keeps the records that this node answers with. Calls may read the disk: they run where waiting is allowed.
pub trait Records: Send + Sync + 'static {
    /// What is known about a question; the DHT adds the nodes nearer to it.
    fn answer(&self, question: &Question, now_ms: u64) -> Reply;

    /// Proof that the content with this BLAKE3 digest is kept here, by the chunk that `draw` decides on; none if it is
    /// not, or is not for everybody.
    fn possession(&self, digest: &[u8; 32], draw: u64) -> Option<Possession>;

    /// Takes records that another node wants kept, or that an answer brought; their signatures hold. Returns how many
    /// were taken: fewer means that there was no room for the others, or that newer ones are held.
    fn offer(&self, records: Vec<Record>) -> usize;

    /// Records held whose keys are in `from..=to`, in the order of their keys, as they may be given to others now. A
    /// result shorter than `max` is the last of the range.
    fn held(&self, from: &Key, to: &Key, max: usize) -> Vec<Held>;
}

/// A record that this node holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The record, as it may be given to others now.
    pub record: Record,
    /// Whether this node published it: then it is its job to keep it placed.
    pub is_own: bool,
}

/// Carries announcements between the nodes of the overlay.
pub trait Gossip: Send + Sync + 'static {
    /// Tells every node of the overlay; nothing is lost for ever, because it is told again.
    fn announce(&self, announcement: Bytes);

    /// What others announce from now on. The stream ends with the overlay.
    fn announcements(&self) -> BoxStream<'static, Announcement>;
}

/// What a node of the overlay announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The node it is said to come from. The overlay takes its members' word for that.
    pub origin: PeerId,
    /// What it said.
    pub content: Bytes,
}
