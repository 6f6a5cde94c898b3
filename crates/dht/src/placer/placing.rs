//! Records on their way to the nodes nearest to their keys: those that wait for a walk, those whose walk is under way,
//! and those that wait to be offered.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use ron_store::{Key, PeerId, Record};
use ron_types::limits::dht::{REPLICATION, WALKS_AT_ONCE_MAX};
use ron_types::limits::records::WIRE_RECORDS_MAX;

use crate::shared::{Rank, ToPlace};

/// Records that callers want placed and that were taken from the queue; what is kept for others is bounded by the
/// sweep that hands it on.
const WAITING_MAX: usize = 512;
/// Copies of such records that wait to be offered: in a network of few nodes, each of them may have many.
const OFFERED_MAX: usize = WAITING_MAX * REPLICATION;

/// Finds the nodes nearest to a key.
type Find = Box<dyn FnMut(Key) -> BoxFuture<'static, Vec<PeerId>> + Send>;
/// What a walk found, and for which records.
type Walked = (Vec<Arc<ToPlace>>, Vec<PeerId>);

/// Records on their way.
pub(super) struct Placing {
    find: Find,
    walks: FuturesUnordered<BoxFuture<'static, Walked>>,
    own: Waiting,
    others: Waiting,
}

/// Records of one rank.
#[derive(Default)]
struct Waiting {
    /// Records that wait for a walk.
    unplaced: VecDeque<Arc<ToPlace>>,
    /// Nodes that records wait to be offered to, those first that wait for longest.
    order: VecDeque<PeerId>,
    offers: HashMap<PeerId, Vec<Arc<ToPlace>>>,
    /// Number of records in all offers, each once for every node that it waits to be offered to.
    offered: usize,
}

impl Placing {
    pub fn new(find: impl FnMut(Key) -> BoxFuture<'static, Vec<PeerId>> + Send + 'static) -> Self {
        let (own, others) = (Waiting::default(), Waiting::default());
        Placing { find: Box::new(find), walks: FuturesUnordered::new(), own, others }
    }

    /// Whether another record can be taken: those of callers wait in the queue while there are too many.
    pub fn has_room(&self) -> bool {
        self.own.unplaced.len() < WAITING_MAX && self.own.offered < OFFERED_MAX
    }

    /// Takes a record; it is given to the nodes it names, or to those that a walk finds.
    pub fn take(&mut self, to_place: ToPlace) {
        let to_place = Arc::new(to_place);
        match &to_place.at {
            Some(peers) => {
                let peers = peers.clone();
                self.waiting(to_place.rank).hand_out(&[to_place], &peers);
            }
            None => self.waiting(to_place.rank).unplaced.push_back(to_place),
        }
        self.begin_walks();
    }

    pub fn is_walking(&self) -> bool {
        !self.walks.is_empty()
    }

    /// Waits until a walk ends; what it was for can be offered from then on. Cancel-safe.
    pub async fn walked(&mut self) {
        if let Some((records, peers)) = self.walks.next().await {
            for to_place in records {
                self.waiting(to_place.rank).hand_out(&[Arc::clone(&to_place)], &peers);
            }
            self.begin_walks();
        }
    }

    /// Whether something can be offered.
    pub fn has_offer(&self) -> bool {
        !(self.own.order.is_empty() && self.others.order.is_empty())
    }

    /// A node, and records to offer it at once.
    pub fn next_offer(&mut self) -> Option<(PeerId, Vec<Record>)> {
        self.own.next_offer().or_else(|| self.others.next_offer())
    }

    fn waiting(&mut self, rank: Rank) -> &mut Waiting {
        match rank {
            Rank::Own => &mut self.own,
            Rank::Others => &mut self.others,
        }
    }

    /// One walk serves all records of its key.
    fn begin_walks(&mut self) {
        while self.walks.len() < WALKS_AT_ONCE_MAX {
            let Some(first) = self.own.unplaced.front().or_else(|| self.others.unplaced.front()) else { return };
            let key = first.record.key();
            let mut records = self.own.take_unplaced(&key);
            records.extend(self.others.take_unplaced(&key));
            let finding = (self.find)(key);
            self.walks.push(Box::pin(async move { (records, finding.await) }));
        }
    }
}

impl Waiting {
    fn take_unplaced(&mut self, key: &Key) -> Vec<Arc<ToPlace>> {
        let is_of_key = |one: &Arc<ToPlace>| one.record.key() == *key;
        let (of_key, rest): (Vec<_>, Vec<_>) = mem::take(&mut self.unplaced).into_iter().partition(is_of_key);
        self.unplaced = rest.into();
        of_key
    }

    fn hand_out(&mut self, records: &[Arc<ToPlace>], peers: &[PeerId]) {
        for peer in peers {
            let offers = self.offers.entry(*peer).or_default();
            if offers.is_empty() {
                self.order.push_back(*peer);
            }
            offers.extend(records.iter().cloned());
            self.offered += records.len();
        }
    }

    /// As many records as one offer has; the rest of them waits behind what others are to be offered.
    fn next_offer(&mut self) -> Option<(PeerId, Vec<Record>)> {
        let peer = self.order.pop_front()?;
        let mut records = self.offers.remove(&peer)?;
        let rest = records.split_off(records.len().min(WIRE_RECORDS_MAX));
        if !rest.is_empty() {
            self.order.push_back(peer);
            self.offers.insert(peer, rest);
        }
        self.offered -= records.len();
        Some((peer, records.iter().map(|to_place| to_place.record.clone()).collect()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ron_kernel::clock;
    use ron_store::PeerRecord;
    use ron_transport::NodeKey;

    use super::*;

    const WALK: Duration = Duration::from_secs(3);

    fn peer(number: u8) -> PeerId {
        PeerId::of_ed25519(&[number; 32])
    }

    /// A record of a key of its own.
    fn record() -> Record {
        let key = NodeKey::generate().expect("randomness");
        let addrs = vec!["/ip4/192.0.2.1/tcp/1".parse().expect("an address")];
        Record::Peer(PeerRecord::sign(addrs, 1, 2, &key).expect("in bounds"))
    }

    fn wanted(record: &Record, rank: Rank, at: Option<Vec<PeerId>>) -> ToPlace {
        ToPlace::new(record.clone(), rank, at, None)
    }

    fn slow() -> Placing {
        Placing::new(|_| {
            Box::pin(async {
                tokio::time::sleep(WALK).await;
                vec![peer(1), peer(2)]
            })
        })
    }

    #[tokio::test(start_paused = true)]
    async fn walks_are_few_at_once_and_each_record_is_offered_when_its_own_ends() {
        let (mut placing, started) = (slow(), clock::now());
        let records: Vec<Record> = (0..40).map(|_| record()).collect();
        for record in &records {
            placing.take(wanted(record, Rank::Own, None));
        }
        assert_eq!((placing.walks.len(), placing.has_offer()), (WALKS_AT_ONCE_MAX, false));
        placing.walked().await;
        assert_eq!(started.elapsed(), WALK, "nobody waits for all of them");
        assert!(placing.has_offer() && placing.walks.len() == WALKS_AT_ONCE_MAX);
        while placing.is_walking() {
            placing.walked().await;
        }
        assert_eq!(started.elapsed(), WALK * 3, "forty, sixteen at once");
        let offers: Vec<(PeerId, Vec<Record>)> = std::iter::from_fn(|| placing.next_offer()).collect();
        assert_eq!(
            offers.iter().map(|(peer, records)| (*peer, records.len())).collect::<Vec<_>>(),
            [(peer(1), 40), (peer(2), 40)]
        );
        assert!(!placing.has_offer() && placing.own.offers.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_this_node_publishes_goes_before_what_it_keeps_for_others() {
        let mut placing = slow();
        for _ in 0..WALKS_AT_ONCE_MAX {
            placing.take(wanted(&record(), Rank::Others, None));
        }
        let (late, own) = (record(), record());
        placing.take(wanted(&late, Rank::Others, None));
        placing.take(wanted(&record(), Rank::Others, Some(vec![peer(9)])));
        placing.take(wanted(&own, Rank::Own, None));
        placing.take(wanted(&own, Rank::Own, Some(vec![peer(3)])));
        assert_eq!(placing.next_offer(), Some((peer(3), vec![own.clone()])));
        assert_eq!(placing.next_offer().map(|(peer, _)| peer), Some(peer(9)));
        // The first walk that can begin is that of its own record, and so is the first offer after it.
        for _ in 0..WALKS_AT_ONCE_MAX {
            placing.walked().await;
        }
        assert!(placing.own.unplaced.is_empty() && placing.is_walking());
        while placing.is_walking() {
            placing.walked().await;
        }
        assert_eq!(placing.next_offer(), Some((peer(1), vec![own.clone()])));
        assert_eq!(placing.next_offer(), Some((peer(2), vec![own])));
        let (_, rest) = placing.next_offer().expect("the others");
        assert!(rest.len() == WALKS_AT_ONCE_MAX + 1 && rest.contains(&late));
    }

    #[tokio::test(start_paused = true)]
    async fn records_of_one_key_share_a_walk_and_waiting_ones_are_bounded() {
        let mut placing = slow();
        let one = record();
        (0..WALKS_AT_ONCE_MAX).for_each(|_| placing.take(wanted(&record(), Rank::Own, None)));
        (0..5).for_each(|_| placing.take(wanted(&one, Rank::Own, None)));
        for _ in 0..WALKS_AT_ONCE_MAX {
            placing.walked().await;
        }
        assert_eq!(placing.walks.len(), 1);
        let mut placing = slow();
        let mut taken = 0;
        while placing.has_room() {
            placing.take(wanted(&record(), Rank::Own, None));
            taken += 1;
        }
        assert_eq!(taken, WAITING_MAX + WALKS_AT_ONCE_MAX);
    }

    #[test]
    fn what_waits_to_be_offered_is_bounded_by_records_however_few_nodes_there_are() {
        let (mut placing, one) = (slow(), record());
        let few: Vec<PeerId> = (1..=5).map(peer).collect();
        let mut taken = 0;
        while placing.has_room() {
            placing.take(wanted(&one, Rank::Own, Some(few.clone())));
            taken += 1;
            assert!(taken <= OFFERED_MAX / few.len());
        }
        assert_eq!(taken, OFFERED_MAX / few.len());
        let mut offered = placing.next_offer().map_or(0, |(_, records)| records.len());
        assert!(offered > 0 && placing.has_room(), "each offer makes room");
        while let Some((_, records)) = placing.next_offer() {
            offered += records.len();
        }
        assert_eq!((offered, placing.own.offered), (OFFERED_MAX, 0));
        // What is kept for others takes none of it.
        for _ in 0..OFFERED_MAX {
            placing.take(wanted(&one, Rank::Others, Some(vec![peer(1)])));
        }
        assert!(placing.has_room());
    }

    #[test]
    fn an_offer_has_as_many_records_as_one_request() {
        let mut placing = slow();
        let records: Vec<Record> = (0..WIRE_RECORDS_MAX + 6).map(|_| record()).collect();
        for record in &records {
            placing.take(wanted(record, Rank::Others, Some(vec![peer(1)])));
        }
        placing.take(wanted(&records[0], Rank::Others, Some(vec![peer(2)])));
        let sizes: Vec<(PeerId, usize)> =
            std::iter::from_fn(|| placing.next_offer()).map(|(peer, records)| (peer, records.len())).collect();
        assert_eq!(sizes, [(peer(1), WIRE_RECORDS_MAX), (peer(2), 1), (peer(1), 6)]);
    }
}
