//! Who has a place among the connections: an address has its share of them at most, and the oldest at rest gives way.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::connection_limiter::network_of;

/// The places of a listener.
pub struct Places(Mutex<Table>);

struct Table {
    places_max: usize,
    /// Places of one address at most.
    share: usize,
    /// Rises with everything that begins, so that a smaller number is older.
    clock: u64,
    taken: BTreeMap<u64, Taken>,
    by_address: HashMap<IpAddr, usize>,
}

struct Taken {
    address: IpAddr,
    /// When the connection began to rest; none while a request of it is worked on.
    rests_since: Option<u64>,
    /// Tells the connection to end; none once it was told.
    leave: Option<oneshot::Sender<()>>,
    /// Ends when the place is free.
    gone: Option<oneshot::Receiver<()>>,
}

/// The place of one connection; free again when dropped.
pub struct Place {
    places: Arc<Places>,
    number: u64,
    /// Resolves when the place is needed for somebody else; taken by the connection.
    asked_to_leave: Option<oneshot::Receiver<()>>,
    _gone: oneshot::Sender<()>,
}

/// The way of a connection out of the places, while it goes on.
pub struct Pass {
    places: Arc<Places>,
    number: u64,
}

/// A request being worked on; its connection does not give way meanwhile.
pub struct Working {
    places: Arc<Places>,
    number: u64,
}

/// What becomes of a connection that was just accepted.
enum Verdict {
    Enters(Place),
    /// After this place is free.
    Waits(oneshot::Receiver<()>),
    Refused,
}

impl Places {
    /// So many places, of which one address has at most its share.
    pub fn new(places_max: usize, share: usize) -> Arc<Places> {
        let (taken, by_address) = (BTreeMap::new(), HashMap::new());
        Arc::new(Places(Mutex::new(Table { places_max, share, clock: 0, taken, by_address })))
    }

    /// Changes how many places there are, from the next connection on.
    pub fn set_bounds(&self, places_max: usize, share: usize) {
        let mut table = self.table();
        (table.places_max, table.share) = (places_max, share);
    }

    /// A place for a connection from this address. Where all are taken, or its share of them, a resting connection ends
    /// for it; none if all of those work. Cancel-safe.
    pub async fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let address = network_of(address);
        loop {
            match self.judge(address) {
                Verdict::Enters(place) => return Some(place),
                // Ends at once: a connection that is told to leave does nothing before.
                Verdict::Waits(gone) => drop(gone.await),
                Verdict::Refused => return None,
            }
        }
    }

    fn judge(self: &Arc<Self>, address: IpAddr) -> Verdict {
        let mut table = self.table();
        let leaving = match () {
            () if table.held_by(address) >= table.share => table.oldest_resting(|taken| taken.address == address),
            () if table.taken.len() >= table.places_max => {
                let most = table.by_address.values().copied().max().unwrap_or(0);
                let crowding = table.oldest_resting(|taken| table.held_by(taken.address) == most);
                crowding.or_else(|| table.oldest_resting(|_| true))
            }
            () => return Verdict::Enters(table.take(self, address)),
        };
        let leaving = leaving.and_then(|number| table.taken.get_mut(&number));
        let Some((leave, gone)) = leaving.and_then(|taken| taken.leave.take().zip(taken.gone.take())) else {
            return Verdict::Refused;
        };
        // A connection that has gone by itself meanwhile hears nothing, and its place is free all the same.
        let _ = leave.send(());
        Verdict::Waits(gone)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn held_by(&self, address: IpAddr) -> usize {
        self.by_address.get(&address).copied().unwrap_or(0)
    }

    fn oldest_resting(&self, among: impl Fn(&Taken) -> bool) -> Option<u64> {
        let resting = self.taken.iter().filter(|(_, taken)| taken.leave.is_some() && among(taken));
        let resting = resting.filter_map(|(number, taken)| Some((taken.rests_since?, *number)));
        resting.min().map(|(_, number)| number)
    }

    fn take(&mut self, places: &Arc<Places>, address: IpAddr) -> Place {
        let number = self.tick();
        let (leave, asked_to_leave) = oneshot::channel();
        let (alive, gone) = oneshot::channel();
        let taken = Taken { address, rests_since: Some(number), leave: Some(leave), gone: Some(gone) };
        self.taken.insert(number, taken);
        *self.by_address.entry(address).or_default() += 1;
        Place { places: Arc::clone(places), number, asked_to_leave: Some(asked_to_leave), _gone: alive }
    }

    fn remove(&mut self, number: u64) {
        let Some(Taken { address, .. }) = self.taken.remove(&number) else { return };
        if let Some(held) = self.by_address.get_mut(&address) {
            *held -= 1;
            if *held == 0 {
                self.by_address.remove(&address);
            }
        }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}

impl Place {
    /// Runs the connection until it ends or its place is needed.
    pub async fn hold(mut self, connection: impl Future<Output = ()>) {
        let asked_to_leave = self.asked_to_leave.take();
        tokio::select! {
            biased;
            Some(Ok(())) = async { Some(asked_to_leave?.await) } => {}
            () = connection => {}
        }
    }

    /// Counts a request of the connection as worked on until it is dropped.
    pub fn worker(&self) -> impl Fn() -> Working + Clone + Send + use<> {
        let (places, number) = (Arc::clone(&self.places), self.number);
        move || {
            if let Some(taken) = places.table().taken.get_mut(&number) {
                taken.rests_since = None;
            }
            Working { places: Arc::clone(&places), number }
        }
    }
}

impl Place {
    /// The way out for a connection that needs its place no longer and goes on.
    pub fn pass(&self) -> Pass {
        Pass { places: Arc::clone(&self.places), number: self.number }
    }
}

impl Pass {
    /// Gives the place to others; nobody asks the connection to leave any more.
    pub fn leave(&self) {
        self.places.table().remove(self.number);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.table().remove(self.number);
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let mut table = self.places.table();
        let now = table.tick();
        if let Some(taken) = table.taken.get_mut(&self.number) {
            taken.rests_since = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::net::Ipv4Addr;

    use tokio::task::JoinSet;

    use super::*;

    const CROWD: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
    const THIRD: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 3));

    /// Connections that stay until they have to go.
    struct Listener {
        places: Arc<Places>,
        connections: JoinSet<u32>,
        working: HashMap<u32, Working>,
    }

    impl Listener {
        fn new() -> Listener {
            Listener { places: Places::new(4, 2), connections: JoinSet::new(), working: HashMap::new() }
        }

        async fn enters(&mut self, name: u32, address: IpAddr, works: bool) -> bool {
            let Some(place) = self.places.enter(address).await else { return false };
            if works {
                self.working.insert(name, place.worker()());
            }
            self.connections.spawn(async move {
                place.hold(std::future::pending()).await;
                name
            });
            true
        }

        /// The connections that had to go, in order.
        fn gone(&mut self) -> Vec<u32> {
            std::iter::from_fn(|| self.connections.try_join_next()).map(|name| name.expect("no panic")).collect()
        }
    }

    #[tokio::test]
    async fn an_address_has_its_share_of_the_places_and_gives_up_its_own_for_more() {
        let mut listener = Listener::new();
        for (name, gone) in [(1, vec![]), (2, vec![]), (3, vec![1]), (4, vec![2])] {
            assert!(listener.enters(name, CROWD, false).await);
            assert_eq!(listener.gone(), gone, "{name}");
        }
        assert!(listener.enters(5, OTHER, false).await && listener.enters(6, OTHER, false).await);
        assert_eq!(listener.gone(), [] as [u32; 0], "the other half is everybody else's");
        assert!(listener.enters(7, THIRD, false).await);
        assert_eq!(listener.gone(), [3], "the oldest of those who crowd");
    }

    #[tokio::test]
    async fn a_connection_that_needs_its_place_no_longer_goes_on_and_counts_no_more() {
        let places = Places::new(1, 1);
        let place = places.enter(CROWD).await.expect("it is free");
        let pass = place.pass();
        let mut known = std::pin::pin!(place.hold(std::future::pending()));
        assert!(futures_util::poll!(&mut known).is_pending());
        pass.leave();
        let next = places.enter(OTHER).await.expect("it is free again");
        assert!(futures_util::poll!(&mut known).is_pending(), "nobody asks it to go");
        drop(next);
        pass.leave();
        let table = places.table();
        assert_eq!((table.taken.len(), table.by_address.len()), (0, 0));
    }

    #[tokio::test]
    async fn a_connection_that_works_does_not_give_way() {
        let mut listener = Listener::new();
        assert!(listener.enters(1, CROWD, true).await && listener.enters(2, CROWD, false).await);
        assert!(listener.enters(3, CROWD, true).await);
        assert_eq!(listener.gone(), [2]);
        assert!(!listener.enters(4, CROWD, false).await, "its share works");
        assert!(listener.enters(5, OTHER, true).await && listener.enters(6, OTHER, true).await);
        assert!(!listener.enters(7, THIRD, false).await, "all work");
        listener.working.remove(&5);
        assert!(listener.enters(7, THIRD, false).await, "it rests again");
        assert_eq!(listener.gone(), [5]);
    }
}
