//! Who has a place among the connections: an address has half of them at most, and the oldest that rests gives way.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ron_kernel::connection_limiter::network_of;
use tokio::sync::oneshot;

/// The places of a listener.
pub(crate) struct Places {
    table: Mutex<Table>,
    places_max: usize,
}

#[derive(Default)]
struct Table {
    /// Rises with everything that begins, so that a smaller number is older.
    clock: u64,
    taken: BTreeMap<u64, Taken>,
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
pub(crate) struct Place {
    places: Arc<Places>,
    number: u64,
    /// Resolves when the place is needed for somebody else; taken by the connection.
    asked_to_leave: Option<oneshot::Receiver<()>>,
    _gone: oneshot::Sender<()>,
}

/// A request being worked on; its connection does not give way meanwhile.
pub(crate) struct Working {
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
    pub(crate) fn new(places_max: usize) -> Arc<Places> {
        Arc::new(Places { table: Mutex::default(), places_max })
    }

    /// A place for a connection from this address. Where all are taken, or its share of them, a resting connection ends
    /// for it; none if all of those work. Cancel-safe.
    pub(crate) async fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
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
        let share = self.places_max.div_ceil(2);
        let leaving = match () {
            () if table.held_by(address) >= share => table.oldest_resting(|taken| taken.address == address),
            () if table.taken.len() >= self.places_max => {
                let most = table.taken.values().map(|taken| table.held_by(taken.address)).max().unwrap_or(0);
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
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn held_by(&self, address: IpAddr) -> usize {
        self.taken.values().filter(|taken| taken.address == address).count()
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
        Place { places: Arc::clone(places), number, asked_to_leave: Some(asked_to_leave), _gone: alive }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}

impl Place {
    /// Runs the connection until it ends or its place is needed.
    pub(crate) async fn hold(mut self, connection: impl Future<Output = ()>) {
        let asked_to_leave = self.asked_to_leave.take();
        tokio::select! {
            biased;
            Some(Ok(())) = async { Some(asked_to_leave?.await) } => {}
            () = connection => {}
        }
    }

    /// Counts a request of the connection as worked on until it is dropped.
    pub(crate) fn worker(&self) -> impl Fn() -> Working + Clone + Send + use<> {
        let (places, number) = (Arc::clone(&self.places), self.number);
        move || {
            if let Some(taken) = places.table().taken.get_mut(&number) {
                taken.rests_since = None;
            }
            Working { places: Arc::clone(&places), number }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.table().taken.remove(&self.number);
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
            Listener { places: Places::new(4), connections: JoinSet::new(), working: HashMap::new() }
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
    async fn an_address_has_half_of_the_places_and_gives_up_its_own_for_more() {
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
