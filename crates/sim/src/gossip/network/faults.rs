//! What happens to nodes and sessions: clocks that are wrong, nodes that stop, die and return, sessions that break.

use std::collections::BTreeSet;

use ron_gossip::{Micros, Peer};

use super::super::node_id;
use super::{Coming, Network, sum};

impl Network {
    /// Sets the clock of a node: so much ahead of the right time. It is read at once if the node runs.
    pub fn set_clock(&mut self, node: usize, ahead_ms: u64) {
        self.nodes[node].ahead_ms = ahead_ms;
        let wall_ms = self.wall_ms(node);
        self.with_core(node, |core, now, port| core.set_wall_clock(now, wall_ms, port));
    }

    /// Holds a node still, as SIGSTOP does: what comes waits, up to what a link takes.
    pub fn stop(&mut self, node: usize) {
        self.nodes[node].stopped.get_or_insert_default();
    }

    /// Lets a node that was held still go on; of what waited, the last so many frames are lost to it.
    pub fn go_on(&mut self, node: usize, lost: usize) {
        let mut held = self.nodes[node].stopped.take().unwrap_or_default();
        let is_frame = |coming: &Coming| matches!(coming, Coming::Arrive { .. });
        let kept = held.iter().filter(|it| is_frame(it)).count().saturating_sub(lost);
        let mut frames = 0;
        held.retain(|it| {
            frames += usize::from(is_frame(it));
            !is_frame(it) || frames <= kept
        });
        for (pair, session) in &mut self.sessions {
            if pair.0 == node || pair.1 == node {
                session.directions.iter_mut().for_each(|direction| direction.waiting_bytes = 0);
            }
        }
        held.into_iter().for_each(|coming| self.at(self.now, coming));
    }

    /// Tells a node that frames of its neighbours were lost to it, once it has what came before them.
    pub fn lose(&mut self, node: usize) {
        self.run_for(1);
        for other in self.neighbours(node) {
            self.with_core(node, |core, now, _| core.frames_lost(now, &Peer(node_id(other))));
        }
    }

    /// Kills a node: its sessions break and do not come back.
    pub fn kill(&mut self, node: usize) {
        if let Some(core) = self.nodes[node].core.take() {
            self.nodes[node].past = sum(self.nodes[node].past, core.counts());
        }
        (self.nodes[node].is_alive, self.nodes[node].tick_at) = (false, Micros::MAX);
        for other in self.neighbours(node) {
            self.break_session((node.min(other), node.max(other)), false);
        }
    }

    /// Starts a dead node anew, knowing nothing, and joins it to its neighbours.
    pub fn restart(&mut self, node: usize) {
        self.witness.forget(node);
        self.start(node);
        for other in self.neighbours(node) {
            self.connect((node.min(other), node.max(other)));
        }
    }

    /// Breaks the session between two nodes; it comes back.
    pub fn interrupt(&mut self, one: usize, other: usize) {
        self.break_session((one.min(other), one.max(other)), true);
    }

    /// Breaks all sessions between a set of nodes and the rest, until [`Network::heal`].
    pub fn partition(&mut self, side: &BTreeSet<usize>) {
        let crossing = |pair: &&(usize, usize)| side.contains(&pair.0) != side.contains(&pair.1);
        let pairs: Vec<(usize, usize)> = self.sessions.keys().filter(crossing).copied().collect();
        for pair in pairs {
            self.break_session(pair, false);
            if let Some(session) = self.sessions.get_mut(&pair) {
                session.is_cut = true;
            }
        }
    }

    /// Brings cut sessions back.
    pub fn heal(&mut self) {
        let cut: Vec<(usize, usize)> =
            self.sessions.iter().filter(|(_, session)| session.is_cut).map(|(pair, _)| *pair).collect();
        for (one, other) in cut {
            self.join(one, other);
        }
    }
}
