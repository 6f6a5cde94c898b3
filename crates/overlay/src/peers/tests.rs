//! A model of two nodes that dial each other at the same moment: every order in which that can happen.

use std::collections::HashSet;

use super::*;

/// Ids of the two nodes; the first is the lesser.
fn id(node: usize) -> NodeId {
    NodeId::from_bytes([node as u8 + 1; 32])
}

/// Session 1 is opened by node 0, session 2 by node 1.
const SESSIONS: [u64; 2] = [1, 2];

fn direction(node: usize, session: u64) -> Direction {
    if session == SESSIONS[node] { Direction::Out } else { Direction::In }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Known {
    peer: usize,
    session: u64,
}

impl Numbered for Known {
    fn peer(&self) -> Peer {
        Peer(*id(self.peer).as_bytes())
    }

    fn session(&self) -> u64 {
        self.session
    }
}

/// How a session stands at one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// Its handshake is not over here.
    Coming,
    Entered,
    /// Refused, replaced or gone: the other node hears its end.
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Node {
    stages: [Stage; 2],
    /// The session in the table.
    table: Option<u64>,
    /// Its version, and the one that the engine has seen.
    versions: (u64, u64),
    /// The session that the engine sends over.
    engine: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World([Node; 2]);

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The handshake of a session is over at a node.
    Enter(usize, usize),
    /// A node hears that the other one ended a session.
    HearEnd(usize, usize),
    /// The engine of a node looks at the table.
    Look(usize),
}

impl World {
    fn new() -> World {
        let node = || Node { stages: [Stage::Coming; 2], table: None, versions: (1, 0), engine: None };
        World([node(), node()])
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (me, node) in self.0.iter().enumerate() {
            for (at, stage) in node.stages.iter().enumerate() {
                match stage {
                    Stage::Coming => steps.push(Step::Enter(me, at)),
                    Stage::Entered if self.0[1 - me].stages[at] == Stage::Over => steps.push(Step::HearEnd(me, at)),
                    Stage::Entered | Stage::Over => {}
                }
            }
            if node.versions.0 != node.versions.1 {
                steps.push(Step::Look(me));
            }
        }
        steps
    }

    fn after(&self, step: Step) -> World {
        let mut world = self.clone();
        match step {
            Step::Enter(me, at) => {
                let node = &mut world.0[me];
                let (session, other) = (SESSIONS[at], id(1 - me));
                let first = node.table.map(|first| direction(me, first));
                if first.is_some_and(|first| keeps_first((id(me), other), first, direction(me, session))) {
                    node.stages[at] = Stage::Over;
                } else {
                    if let Some(first) = node.table.replace(session) {
                        node.stages[first as usize - 1] = Stage::Over;
                    }
                    node.stages[at] = Stage::Entered;
                    node.versions.0 += 1;
                }
            }
            Step::HearEnd(me, at) => {
                let node = &mut world.0[me];
                node.stages[at] = Stage::Over;
                if node.table == Some(SESSIONS[at]) {
                    node.table = None;
                    node.versions.0 += 1;
                }
            }
            Step::Look(me) => {
                let node = &mut world.0[me];
                let known = |session: u64| Known { peer: 1 - me, session };
                let held = node.engine.map(known).map(|known| (known.peer(), known)).into_iter().collect();
                for change in changes(&held, node.table.map(known).into_iter().collect()) {
                    node.engine = match change {
                        Change::Up(known) => Some(known.session),
                        Change::Down(_) => None,
                    };
                }
                node.versions.1 = node.versions.0;
            }
        }
        world
    }
}

#[test]
fn two_nodes_that_dial_each_other_end_with_one_session_in_every_order() {
    let (mut seen, mut open, mut ends) = (HashSet::new(), vec![World::new()], 0);
    while let Some(world) = open.pop() {
        if !seen.insert(world.clone()) {
            continue;
        }
        let steps = world.steps();
        if steps.is_empty() {
            ends += 1;
            for node in &world.0 {
                assert_eq!((node.table, node.engine), (Some(SESSIONS[0]), Some(SESSIONS[0])), "{world:?}");
            }
        }
        open.extend(steps.into_iter().map(|step| world.after(step)));
    }
    assert!(seen.len() > 200 && ends > 4, "{} states, {ends} ends", seen.len());
}

#[test]
fn an_engine_ends_with_the_sessions_of_the_table() {
    let known = |peer, session| Known { peer, session };
    let held: HashMap<Peer, Known> = [known(0, 1), known(1, 2), known(2, 3)].map(|it| (it.peer(), it)).into();
    let (mut up, mut down) = (Vec::new(), Vec::new());
    for change in changes(&held, vec![known(0, 1), known(2, 9), known(3, 4)]) {
        match change {
            Change::Up(known) => up.push(known),
            Change::Down(peer) => down.push(peer),
        }
    }
    assert_eq!((up, down), (vec![known(2, 9), known(3, 4)], vec![known(1, 2).peer()]));
}
