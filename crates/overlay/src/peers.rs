//! Who the peers are: those that are wanted, those that are there, and how each session stands.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ron_transport::{Direction, NodeId, Outbox, PeerAddress, Remote, SessionFacts};
use ron_types::limits::overlay::PEERS_MAX;
use ron_types::{Error, Kind};
use tokio::sync::Notify;

use crate::memory;
use crate::send_budget::SendBudget;
use crate::words::PeerState;

/// The peers of one node. Clones are the same table.
#[derive(Clone)]
pub(crate) struct Peers(Arc<Table>);

struct Table {
    me: NodeId,
    rows: Mutex<BTreeMap<NodeId, Row>>,
    /// Number of the next session, so that the end of an old one is not taken for the end of a newer.
    next_session: AtomicU64,
    /// Told to everybody who waits, each time a row changes.
    changed: Notify,
}

#[derive(Default)]
struct Row {
    /// Where it is dialled; none for a node that came by itself.
    wanted: Option<Wanted>,
    dialing: Dialing,
    link: Option<Arc<Link>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    address: PeerAddress,
    /// Named by the configuration; others were named through the API.
    is_configured: bool,
}

/// What the dialler of a peer is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Dialing {
    #[default]
    Resting,
    Trying,
    Waiting,
}

/// One session with a peer.
pub(crate) struct Link {
    /// Number of the session.
    pub session: u64,
    pub node_id: NodeId,
    pub facts: Arc<SessionFacts>,
    pub outbox: Outbox,
    /// Bytes that wait for it at most, where there is room for all peers.
    egress_bytes_max: usize,
    /// Bytes that it may be sent.
    pub budget: SendBudget,
    /// Messages refused because the outbox was full.
    pub busy: AtomicU64,
    /// Set when the session is to end: replaced by a newer one, or its peer removed.
    pub ending: Notify,
}

/// How a peer stands, for the surfaces.
pub(crate) struct Standing {
    pub node_id: NodeId,
    pub address: String,
    pub state: PeerState,
    pub direction: Direction,
    pub link: Option<Arc<Link>>,
}

impl Peers {
    pub fn new(me: NodeId) -> Self {
        let next_session = AtomicU64::new(1);
        Peers(Arc::new(Table { me, rows: Mutex::default(), next_session, changed: Notify::new() }))
    }

    fn rows(&self) -> MutexGuard<'_, BTreeMap<NodeId, Row>> {
        self.0.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has everybody who waits for a change look again.
    pub fn tell(&self) {
        self.0.changed.notify_waiters();
    }

    /// Resolves at the next change after the call; the caller looks again.
    pub fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.0.changed.notified()
    }

    /// Wants the peers of the configuration, and no longer those that it named before.
    pub fn configure(&self, addresses: &[PeerAddress], accepts_any: bool) {
        let mut rows = self.rows();
        for row in rows.values_mut() {
            row.wanted = row.wanted.take().filter(|wanted| !wanted.is_configured);
        }
        for address in addresses.iter().filter(|address| address.node_id != self.0.me) {
            let wanted = Wanted { address: address.clone(), is_configured: true };
            rows.entry(address.node_id).or_default().wanted = Some(wanted);
        }
        end_unwanted(&mut rows, accepts_any);
        drop(rows);
        self.tell();
    }

    /// Wants a peer; naming it again changes where it is dialled.
    pub fn add(&self, address: PeerAddress) -> Result<(), Error> {
        if address.node_id == self.0.me {
            return Err(Error::new(Kind::Schema, "this is the id of the node itself"));
        }
        let mut rows = self.rows();
        if rows.len() >= PEERS_MAX && !rows.contains_key(&address.node_id) {
            return Err(Error::busy(format_args!("the list of peers: it has {PEERS_MAX}, and")));
        }
        let row = rows.entry(address.node_id).or_default();
        let is_configured = row.wanted.as_ref().is_some_and(|wanted| wanted.is_configured);
        row.wanted = Some(Wanted { address, is_configured });
        drop(rows);
        self.tell();
        Ok(())
    }

    /// No longer wants a peer, and ends the session with it; false if it was not there.
    pub fn remove(&self, node_id: NodeId) -> bool {
        let Some(row) = self.rows().remove(&node_id) else { return false };
        if let Some(link) = row.link {
            link.ending.notify_one();
        }
        self.tell();
        true
    }

    /// The peers to dial.
    pub fn wanted(&self) -> Vec<PeerAddress> {
        self.rows().values().filter_map(|row| Some(row.wanted.as_ref()?.address.clone())).collect()
    }

    /// Where to dial a peer now; none if it is not wanted, or there is a session with it.
    pub fn to_dial(&self, node_id: NodeId) -> Option<PeerAddress> {
        let rows = self.rows();
        let row = rows.get(&node_id)?;
        row.link.is_none().then(|| row.wanted.as_ref().map(|wanted| wanted.address.clone()))?
    }

    pub fn is_wanted(&self, node_id: NodeId) -> bool {
        self.rows().get(&node_id).is_some_and(|row| row.wanted.is_some())
    }

    pub fn note_dialing(&self, node_id: NodeId, dialing: Dialing) {
        if let Some(row) = self.rows().get_mut(&node_id) {
            row.dialing = dialing;
        }
    }

    /// Enters a new session. Where there is one already, both sides must keep the same of the two without a word
    /// between them: the one that the node with the lesser id opened. The same node opening another replaces its first,
    /// which it has given up or does not know of any more.
    pub fn enter(
        &self,
        facts: &Arc<SessionFacts>,
        outbox: &Outbox,
        egress_bytes_max: usize,
    ) -> Result<Arc<Link>, Error> {
        let Remote::Node(node_id) = facts.remote else {
            return Err(Error::new(Kind::Unauthenticated, "a session without a node's certificate is not a peer's"));
        };
        if node_id == self.0.me {
            return Err(Error::new(Kind::Conflict, "a node does not have itself as a peer"));
        }
        let mut rows = self.rows();
        if rows.len() >= PEERS_MAX && !rows.contains_key(&node_id) {
            return Err(Error::busy("the list of peers"));
        }
        let row = rows.entry(node_id).or_default();
        if let Some(old) = &row.link {
            let is_like_old = old.facts.direction == facts.direction;
            if !is_like_old && !self.is_preferred(node_id, facts.direction) {
                return Err(Error::new(Kind::Conflict, "there is a session already"));
            }
            old.ending.notify_one();
        }
        let link = Arc::new(Link {
            session: self.0.next_session.fetch_add(1, Ordering::Relaxed),
            node_id,
            facts: Arc::clone(facts),
            outbox: outbox.clone(),
            egress_bytes_max,
            budget: SendBudget::default(),
            busy: AtomicU64::new(0),
            ending: Notify::new(),
        });
        (row.link, row.dialing) = (Some(Arc::clone(&link)), Dialing::Resting);
        share_out(&rows);
        drop(rows);
        self.tell();
        Ok(link)
    }

    fn is_preferred(&self, other: NodeId, direction: Direction) -> bool {
        match direction {
            Direction::Out => self.0.me < other,
            Direction::In => other < self.0.me,
        }
    }

    /// Takes an ended session out; false if a newer one has taken its place.
    pub fn leave(&self, link: &Link) -> bool {
        let mut rows = self.rows();
        let Some(row) = rows.get_mut(&link.node_id) else {
            // It was removed before its session ended; only now is what waited for it gone.
            share_out(&rows);
            return true;
        };
        let is_current = row.link.as_ref().is_some_and(|current| current.session == link.session);
        if is_current {
            row.link = None;
            if row.wanted.is_none() {
                rows.remove(&link.node_id);
            }
            share_out(&rows);
        }
        drop(rows);
        self.tell();
        is_current
    }

    /// The sessions there are.
    pub fn links(&self) -> Vec<Arc<Link>> {
        self.rows().values().filter_map(|row| row.link.clone()).collect()
    }

    /// How every peer stands.
    pub fn standing(&self) -> Vec<Standing> {
        let rows = self.rows();
        let one = |(node_id, row): (&NodeId, &Row)| Standing {
            node_id: *node_id,
            address: match (&row.link, &row.wanted) {
                (Some(link), None) => link.facts.address.to_string(),
                (_, Some(wanted)) => wanted.address.address(),
                (None, None) => String::new(),
            },
            state: match (&row.link, row.dialing) {
                (Some(link), _) if link.outbox.is_closed() => PeerState::Draining,
                (Some(_), _) => PeerState::Connected,
                (None, Dialing::Waiting) => PeerState::Backoff,
                (None, Dialing::Trying | Dialing::Resting) => PeerState::Dialing,
            },
            direction: row.link.as_ref().map_or(Direction::Out, |link| link.facts.direction),
            link: row.link.clone(),
        };
        rows.iter().map(one).collect()
    }

    /// Frames in the fullest outbox.
    pub fn deepest_outbox(&self) -> usize {
        self.rows().values().filter_map(|row| Some(row.link.as_ref()?.outbox.queued_frames())).max().unwrap_or(0)
    }
}

/// What may wait for all peers together is divided among those that are there.
fn share_out(rows: &BTreeMap<NodeId, Row>) {
    let links = || rows.values().filter_map(|row| row.link.as_ref());
    let count = links().count();
    links().for_each(|link| link.outbox.set_bytes_max(memory::egress_bytes_max(link.egress_bytes_max, count)));
}

/// Sessions of peers that only the configuration wanted, and that this node opened, end with the wish; those that
/// others opened end where they would not be taken in any more.
fn end_unwanted(rows: &mut BTreeMap<NodeId, Row>, accepts_any: bool) {
    rows.retain(|_, row| {
        let Some(link) = row.link.as_ref() else { return row.wanted.is_some() };
        if row.wanted.is_none() && (link.facts.direction == Direction::Out || !accepts_any) {
            link.ending.notify_one();
        }
        true
    });
}

/// Whether this address is of the machine itself.
pub(crate) fn is_loopback(address: Option<SocketAddr>) -> bool {
    address.is_none_or(|address| address.ip().is_loopback())
}
