//! The origins of a lane: how far each has got, what waits for an earlier message, and what is being asked for.

use std::collections::{BTreeMap, VecDeque};

use hashbrown::HashMap;

use crate::names::{Micros, Origin};
use crate::peers::Session;
use crate::ring::Stored;
use crate::shares::Opener;

/// Claims kept of one origin.
pub(crate) const CLAIMS_MAX: usize = 4;
/// Peers that are asked for a hole although they claim nothing.
pub(crate) const BLIND_ASKS_MAX: usize = 3;

/// A message that waits for an earlier one.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) stored: Stored,
    pub(crate) hops: u8,
    pub(crate) from: Session,
    /// Whether it is pushed on when its turn comes, or only announced.
    pub(crate) push: bool,
}

/// What a waiting message costs beside its bytes: its node in the tree, half full at worst, and its allocation.
pub(crate) const WAITING_OVERHEAD_BYTES: usize = 2 * (std::mem::size_of::<(u64, Waiting)>() + 16) + 64;

impl Waiting {
    pub(crate) fn bytes(&self) -> usize {
        self.stored.bytes() + WAITING_OVERHEAD_BYTES
    }
}

/// Messages that a peer says it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) session: Session,
    pub(crate) epoch: u64,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// What a peer was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) session: Session,
    pub(crate) epoch: u64,
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// When it was asked, or last sent some of it.
    pub(crate) at: Micros,
    pub(crate) graft: bool,
    /// Whether the answer is pushed on. What is asked for as history is only announced, since those behind may have it.
    pub(crate) is_live: bool,
}

impl Asked {
    pub(crate) fn covers(&self, session: Session, epoch: u64, seq: u64) -> bool {
        self.session == session && self.epoch == epoch && (self.from..=self.to).contains(&seq)
    }
}

/// A message in chunks that a peer sent and this node had no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut {
    pub(crate) session: Session,
    pub(crate) epoch: u64,
    pub(crate) seq: u64,
    /// Bytes of the message.
    pub(crate) size: usize,
    pub(crate) at: Micros,
}

impl LeftOut {
    /// Whether it is why an answer brought nothing.
    pub(crate) fn excuses(&self, asked: &Asked) -> bool {
        self.at >= asked.at && asked.covers(self.session, self.epoch, self.seq)
    }
}

/// The search for messages that exist and are not here.
#[derive(Debug)]
pub(crate) struct Repair {
    pub(crate) claims: Vec<Claim>,
    pub(crate) asked: Option<Asked>,
    pub(crate) due: Micros,
    /// When the hole was noticed, or last got smaller.
    pub(crate) since: Micros,
    /// Peers asked although they claimed nothing.
    pub(crate) blind: Vec<Session>,
    /// Whether a push should have brought it: then the tree is mended too.
    pub(crate) is_live: bool,
    /// The last answer that there was no room for.
    pub(crate) left_out: Option<LeftOut>,
}

impl Repair {
    pub(crate) fn new(now: Micros) -> Self {
        Repair {
            claims: Vec::new(),
            asked: None,
            due: Micros::MAX,
            since: now,
            blind: Vec::new(),
            is_live: false,
            left_out: None,
        }
    }

    /// Notes a claim. A peer has one for each origin; where there is no room, the worst goes.
    pub(crate) fn note(&mut self, claim: Claim, strikes: impl Fn(Session) -> u32) {
        if let Some(known) = self.claims.iter_mut().find(|known| known.session == claim.session) {
            if known.epoch == claim.epoch {
                known.first = known.first.min(claim.first);
                known.last = known.last.max(claim.last);
            } else if known.epoch < claim.epoch {
                *known = claim;
            }
        } else if self.claims.len() < CLAIMS_MAX {
            self.claims.push(claim);
        } else if let Some(worst) = self.claims.iter_mut().max_by_key(|known| strikes(known.session))
            && strikes(worst.session) > strikes(claim.session)
        {
            *worst = claim;
        }
    }
}

/// Numbers and arrivals of what the ring holds, in order.
pub(crate) type HeldList = VecDeque<(u64, u64)>;

/// A life that is over.
#[derive(Debug)]
pub(crate) struct Former {
    epoch: u64,
    held: HeldList,
}

/// One origin in one lane.
#[derive(Debug)]
pub(crate) struct OriginState {
    pub(crate) id: Origin,
    pub(crate) epoch: u64,
    /// Number of the next message to deliver.
    pub(crate) next: u64,
    /// A message was delivered, or the origin's life began after this node's: from here on every hole is told.
    pub(crate) started: bool,
    /// What the ring holds of this life.
    pub(crate) held: HeldList,
    /// The life before and what the ring holds of it: who has not heard of the new one may still ask for it.
    pub(crate) former: Option<Box<Former>>,
    /// The ring may hold messages of earlier lives, which `held` does not name any more.
    pub(crate) had_lives: bool,
    /// This node has known an earlier life of it.
    pub(crate) is_reborn: bool,
    pub(crate) waiting: BTreeMap<u64, Waiting>,
    pub(crate) repair: Option<Box<Repair>>,
    /// The last question, so that its answer is not taken for a needless push.
    pub(crate) last_asked: Option<Asked>,
    pub(crate) used_at: Micros,
    /// Who brought the first news of it.
    pub(crate) opened_by: Opener,
}

impl OriginState {
    pub(crate) fn new(id: Origin, epoch: u64, next: u64, now: Micros, opened_by: Opener) -> Self {
        OriginState {
            id,
            epoch,
            next,
            started: false,
            held: VecDeque::new(),
            former: None,
            had_lives: false,
            is_reborn: false,
            waiting: BTreeMap::new(),
            repair: None,
            last_asked: None,
            used_at: now,
            opened_by,
        }
    }

    /// Arrival of a message in the ring.
    pub(crate) fn arrival(&self, seq: u64) -> Option<u64> {
        let (first, _) = *self.held.front()?;
        // Without gaps the place follows from the number.
        let guess = self.held.get(seq.checked_sub(first)? as usize);
        if let Some((found, arrival)) = guess
            && *found == seq
        {
            return Some(*arrival);
        }
        let at = self.held.binary_search_by_key(&seq, |(held, _)| *held).ok()?;
        Some(self.held[at].1)
    }

    /// What the ring holds of this life becomes that of the life before. A life that left nothing there takes nobody's
    /// place: peers that make lives up must not hide what was published.
    pub(crate) fn begin_life(&mut self, epoch: u64) {
        let before = std::mem::replace(&mut self.epoch, epoch);
        self.next = 1;
        self.is_reborn |= before > 0;
        if !self.held.is_empty() {
            self.had_lives = true;
            self.former = Some(Box::new(Former { epoch: before, held: std::mem::take(&mut self.held) }));
        }
    }

    /// What the ring holds of a life, if it is this one or the one before.
    pub(crate) fn held_of(&self, epoch: u64) -> Option<&HeldList> {
        if epoch == self.epoch {
            return Some(&self.held);
        }
        self.former.as_ref().filter(|former| former.epoch == epoch).map(|former| &former.held)
    }

    /// The ring has let a message go.
    pub(crate) fn let_go(&mut self, arrival: u64) {
        if let Some(former) = &mut self.former {
            pop_front(&mut former.held, arrival);
            if former.held.is_empty() {
                self.former = None;
            }
        }
        pop_front(&mut self.held, arrival);
    }

    /// First and last number in the ring.
    pub(crate) fn range(&self) -> Option<(u64, u64)> {
        Some((self.held.front()?.0, self.held.back()?.0))
    }

    /// Whether a message was taken already, be it delivered, waiting or given up.
    pub(crate) fn knows(&self, seq: u64) -> bool {
        seq < self.next || self.waiting.contains_key(&seq)
    }
}

/// Takes the first of a list away if it is this one, and room that is of no use with it.
fn pop_front(held: &mut HeldList, arrival: u64) {
    if held.front().is_some_and(|(_, first)| *first == arrival) {
        held.pop_front();
        if held.len() < held.capacity() / 4 && held.capacity() > 16 {
            held.shrink_to(held.len() * 2);
        }
    }
}

/// Bytes of memory of one origin beside messages: its state, its row in the table, its repair, the life before.
pub(crate) const ORIGIN_BYTES: usize = 2 * (std::mem::size_of::<Option<OriginState>>() + 40)
    + std::mem::size_of::<Repair>()
    + std::mem::size_of::<Former>()
    + 2 * CLAIMS_MAX * std::mem::size_of::<Claim>()
    + 64;

/// The origins of a lane by place and by name.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    slots: Vec<Option<OriginState>>,
    free: Vec<u32>,
    by_id: HashMap<Origin, u32>,
    /// The origin of the last message: runs of one origin are the common case.
    last: Option<(Origin, u32)>,
}

impl Origins {
    pub(crate) fn find(&mut self, id: &Origin) -> Option<u32> {
        if let Some((last, at)) = &self.last
            && last == id
        {
            return Some(*at);
        }
        let at = *self.by_id.get(id)?;
        self.last = Some((*id, at));
        Some(at)
    }

    /// The same, from outside a change.
    pub(crate) fn look_up(&self, id: &Origin) -> Option<&OriginState> {
        self.slots[*self.by_id.get(id)? as usize].as_ref()
    }

    pub(crate) fn insert(&mut self, state: OriginState) -> u32 {
        let at = self.free.pop().unwrap_or(self.slots.len() as u32);
        self.by_id.insert(state.id, at);
        match self.slots.get_mut(at as usize) {
            Some(slot) => *slot = Some(state),
            None => self.slots.push(Some(state)),
        }
        at
    }

    pub(crate) fn remove(&mut self, at: u32) -> Option<OriginState> {
        let state = self.slots.get_mut(at as usize)?.take()?;
        self.by_id.remove(&state.id);
        self.free.push(at);
        self.last = None;
        Some(state)
    }

    pub(crate) fn get(&self, at: u32) -> Option<&OriginState> {
        self.slots.get(at as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut OriginState> {
        self.slots.get_mut(at as usize)?.as_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &OriginState)> {
        self.slots.iter().enumerate().filter_map(|(at, state)| Some((at as u32, state.as_ref()?)))
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }
}
