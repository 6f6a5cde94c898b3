//! The tree of a lane: which links are pushed over.
//!
//! A second copy means that two links do the work of one, and one of them is given up. With many origins at once every
//! link of a circle would be given up by somebody, each for a good reason. So the tree is the ways to one origin, the
//! leader: each node keeps the link that brought the leader's last message first, tells the peer so, and gives up any
//! other link that brings second copies. What is wrongly given up is mended by grafts.

use crate::CONTROL_FLOW;
use crate::lane::Lane;
use crate::names::{Micros, Origin};
use crate::peers::Session;
use crate::shell::Shell;
use crate::turn::Turn;
use crate::wire::Body;

/// A link is asked to stop pushing at most once in this time: what is on the way comes anyhow.
const PRUNE_EVERY: Micros = 100_000;
/// An origin that was quiet for this time leads no longer.
const LEADS_FOR: Micros = 10_000_000;

/// Who leads, and the way to it.
#[derive(Debug)]
pub(crate) struct Tree {
    /// The origin that the tree leads to: the lowest of those that publish.
    leader: Option<(Origin, u32)>,
    heard_at: Micros,
    /// This node leads.
    is_own: bool,
    /// The link that brought the leader's last message first.
    pub(super) parent: Session,
}

impl Default for Tree {
    fn default() -> Self {
        Tree { leader: None, heard_at: 0, is_own: false, parent: Session::NONE }
    }
}

impl Tree {
    /// A first copy came: of the leader, of one that takes its place, or of another. Gives the way before.
    pub(super) fn lead(&mut self, now: Micros, origin: (Origin, u32), from: Session) -> Session {
        let before = self.parent;
        match self.leader {
            Some(leader) if leader == origin => {
                (self.heard_at, self.parent) = (now, from);
            }
            Some(leader) if self.leads_on(now) && leader < origin => {}
            _ => {
                let is_own = from == Session::NONE;
                *self = Tree { leader: Some(origin), heard_at: now, is_own, parent: from };
            }
        }
        before
    }

    /// Whether the leader stays: it was heard of late, and the way to it is known (at the leader itself there is none).
    fn leads_on(&self, now: Micros) -> bool {
        (self.is_own || self.parent != Session::NONE) && now.saturating_sub(self.heard_at) < LEADS_FOR
    }

    fn leads(&self, origin: u32) -> bool {
        self.leader.is_some_and(|(_, leader)| leader == origin)
    }

    pub(super) fn peer_down(&mut self, session: Session) {
        if self.parent == session {
            self.parent = Session::NONE;
        }
    }

    pub(super) fn forget(&mut self, origin: u32) {
        if self.leads(origin) {
            *self = Tree::default();
        }
    }
}

impl Lane {
    /// A second copy came over a link; the first had come over another.
    pub(super) fn on_second_copy<S: Shell>(&mut self, turn: &mut Turn<'_, S>, session: Session, first: Session) {
        if self.tree.parent == Session::NONE && !self.tree.is_own {
            return; // the way to the leader is not known yet
        }
        if !self.is_needed(session) {
            self.prune(turn, session);
        } else if session == self.tree.parent && !self.is_needed(first) {
            self.prune(turn, first); // raced ahead of the parent
        }
    }

    /// Whether a link is part of the tree: the way to the leader, or the way of somebody behind to it.
    fn is_needed(&self, session: Session) -> bool {
        let link = self.links.get(session.slot()).filter(|link| link.session == session);
        session == self.tree.parent || link.is_some_and(|link| link.is_child)
    }

    /// Tells the parent that it is one, so that it does not take this link for a needless one; and the former parent
    /// that it is none.
    pub(super) fn change_parent<S: Shell>(&mut self, turn: &mut Turn<'_, S>, before: Session) {
        if self.link_mut(before).is_some_and(|link| std::mem::replace(&mut link.has_joined, false)) {
            let message = self.encode(Body::Leave);
            self.send_control(turn, before, CONTROL_FLOW, message);
        }
        let parent = self.tree.parent;
        self.become_eager(turn, parent);
        if self.link_mut(parent).is_some_and(|link| !std::mem::replace(&mut link.has_joined, true)) {
            let message = self.encode(Body::Join);
            self.send_control(turn, parent, CONTROL_FLOW, message);
        }
    }

    /// Asks a peer to stop pushing.
    pub(super) fn prune<S: Shell>(&mut self, turn: &mut Turn<'_, S>, session: Session) {
        let Some(link) = self.link_mut(session) else { return };
        if link.pruned_at.is_some_and(|at| turn.now.saturating_sub(at) < PRUNE_EVERY) {
            return;
        }
        link.pruned_at = Some(turn.now);
        self.set_lazy(turn.now, session);
        let message = self.encode(Body::Prune { is_full: false });
        self.send_control(turn, session, CONTROL_FLOW, message);
    }

    pub(super) fn on_prune<S: Shell>(&mut self, turn: &mut Turn<'_, S>, session: Session, is_full: bool) {
        if is_full {
            // It will not push here; what is pushed there goes on.
            if let Some(link) = self.link_mut(session) {
                link.refused_at = Some(turn.now);
            }
        } else if session == self.tree.parent {
            // The peer saw a copy that had raced ahead of its own, and took this link for a needless one.
            let message = self.encode(Body::Join);
            self.send_control(turn, session, CONTROL_FLOW, message);
        } else {
            self.set_lazy(turn.now, session);
        }
    }

    /// Pushes to a peer from now on. Where the fan-out is full the peer is told, and goes on asking for each message:
    /// replacing another link would only move the miss to that one.
    pub(super) fn on_graft<S: Shell>(&mut self, turn: &mut Turn<'_, S>, session: Session) {
        self.become_eager(turn, session);
        if self.link_mut(session).is_some_and(|link| !link.eager) {
            let message = self.encode(Body::Prune { is_full: true });
            self.send_control(turn, session, CONTROL_FLOW, message);
        }
    }

    /// A peer's way to the leader is over this link.
    pub(super) fn on_join<S: Shell>(&mut self, turn: &mut Turn<'_, S>, session: Session) {
        self.on_graft(turn, session);
        if let Some(link) = self.link_mut(session) {
            link.is_child = link.eager;
        }
    }

    /// What gathered for lazy links is told first: an eager link gets no digests.
    pub(super) fn become_eager<S: Shell>(&mut self, turn: &mut Turn<'_, S>, session: Session) {
        if self.link_mut(session).is_some_and(|link| !link.eager) && turn.shared.is_in_good_standing(turn.now, session)
        {
            self.flush_news(turn);
            self.set_eager(session);
        }
    }
}
