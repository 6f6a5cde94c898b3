//! Requests of this node on their way: so many at once to each node, so many in all, each with somebody who waits.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use libp2p::Swarm;
use libp2p::request_response::{Event, InboundFailure, Message, OutboundFailure, OutboundRequestId};
use ron_kernel::clock;
use ron_store::wire::{Answer, AskError, Question, Request};
use ron_store::{PeerId, Record};
use ron_types::limits::dht as limits;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::network::Behaviour;
use crate::network::codec::Asking;
use crate::shared::{Order, Sending, Shared};
use crate::swarm::inbound::Inbound;

/// A node that did not answer for this time, though it was connected, failed.
const SILENT_AFTER: Duration = Duration::from_millis(300);

/// Requests of this node.
pub(super) struct Outbound {
    shared: Arc<Shared>,
    in_flight: HashMap<OutboundRequestId, InFlight>,
    windows: HashMap<libp2p::PeerId, Window>,
    /// All that wait in windows.
    waiting: usize,
}

struct InFlight {
    peer: PeerId,
    since: Instant,
    waits: Waits,
}

/// Who waits for an answer.
enum Waits {
    /// A caller.
    Caller(oneshot::Sender<Result<Answer, AskError>>),
    /// The network itself, which wants to know what a node says of itself.
    Introduction,
}

/// Requests to one node; libp2p would refuse what is over its bound instead of letting it wait.
#[derive(Default)]
struct Window {
    in_flight: usize,
    waiting: VecDeque<Sending>,
}

impl Outbound {
    pub fn new(shared: Arc<Shared>) -> Self {
        Outbound { shared, in_flight: HashMap::new(), windows: HashMap::new(), waiting: 0 }
    }

    /// Sends a request now, or as soon as the node has answered an earlier one.
    pub fn take(&mut self, swarm: &mut Swarm<Behaviour>, sending: Sending) {
        let Some(peer) = crate::convert::theirs(&sending.peer) else {
            let _ = sending.reply.send(Err(AskError::Unreachable));
            return;
        };
        if self.in_flight.len() + self.waiting >= limits::ASKS_IN_FLIGHT_MAX {
            self.shared.counts.asks.busy.inc();
            let _ = sending.reply.send(Err(AskError::Busy));
            return;
        }
        let window = self.windows.entry(peer).or_default();
        if window.in_flight >= limits::ASKS_PER_PEER_AT_ONCE_MAX {
            window.waiting.push_back(sending);
            self.waiting += 1;
            return;
        }
        self.send(swarm, peer, sending);
    }

    fn send(&mut self, swarm: &mut Swarm<Behaviour>, peer: libp2p::PeerId, sending: Sending) {
        let asking = Asking { request: sending.request, cancelled: Some(sending.cancelled), bytes: 0 };
        let id = swarm.behaviour_mut().index.send_request_with_addresses(&peer, asking, sending.addrs);
        self.windows.entry(peer).or_default().in_flight += 1;
        let waits = Waits::Caller(sending.reply);
        self.in_flight.insert(id, InFlight { peer: sending.peer, since: clock::now(), waits });
    }

    /// Asks a connected node for its own record, which others will want to see.
    pub fn ask_who_it_is(&mut self, swarm: &mut Swarm<Behaviour>, peer: libp2p::PeerId, ours: PeerId) {
        let is_asked = |one: &InFlight| one.peer == ours && matches!(one.waits, Waits::Introduction);
        if self.in_flight.len() >= limits::ASKS_IN_FLIGHT_MAX || self.in_flight.values().any(is_asked) {
            return;
        }
        let budget_ms = limits::ASK_TIME_MAX.as_millis() as u32;
        let request = Request::Ask { question: Question::Peer(ours), budget_ms };
        let asking = Asking { request, cancelled: None, bytes: 0 };
        let id = swarm.behaviour_mut().index.send_request(&peer, asking);
        self.windows.entry(peer).or_default().in_flight += 1;
        self.in_flight.insert(id, InFlight { peer: ours, since: clock::now(), waits: Waits::Introduction });
    }

    /// Takes what became of a request of this node; what another one asks goes to `inbound`.
    pub fn on_event(&mut self, swarm: &mut Swarm<Behaviour>, inbound: &mut Inbound, event: Event<Asking, Answer>) {
        match event {
            Event::Message { peer, message: Message::Request { request, channel, .. }, .. } => {
                inbound.take(swarm, peer, request, channel);
            }
            Event::Message { peer, message: Message::Response { request_id, response }, .. } => {
                self.ended(request_id, Ok(response));
                self.next(swarm, peer);
            }
            Event::OutboundFailure { peer, request_id, error, .. } => {
                self.ended(request_id, Err(error));
                self.next(swarm, peer);
            }
            Event::InboundFailure { peer, error, .. } => {
                if matches!(error, InboundFailure::Timeout) {
                    self.shared.counts.asked.late.inc();
                }
                inbound.ended(&peer);
            }
            Event::ResponseSent { peer, .. } => {
                self.shared.counts.asked.answered.inc();
                inbound.ended(&peer);
            }
        }
    }

    fn ended(&mut self, id: OutboundRequestId, result: Result<Answer, OutboundFailure>) {
        let Some(InFlight { peer, since, waits }) = self.in_flight.remove(&id) else { return };
        let asks = &self.shared.counts.asks;
        let result = match result {
            Ok(answer) => {
                asks.answered.inc();
                self.shared.members.answered(&peer, since.elapsed(), self.shared.now_ms());
                Ok(answer)
            }
            Err(OutboundFailure::Io(error)) if error.kind() == io::ErrorKind::Interrupted => {
                asks.cancelled.inc();
                // The loser of a race says nothing about itself, but one that was waited for so long does.
                if since.elapsed() >= SILENT_AFTER {
                    self.note_silence(peer);
                }
                return;
            }
            Err(failure) => {
                asks.failed.inc();
                Err(reason_of(&failure))
            }
        };
        match waits {
            Waits::Caller(reply) => drop(reply.send(result)),
            Waits::Introduction => self.introduced(peer, result),
        }
    }

    fn note_silence(&self, peer: PeerId) {
        if self.shared.members.failed(&peer, self.shared.now_ms()) {
            let _ = self.shared.orders.offer(Order::Forget { peer });
        }
    }

    fn introduced(&self, peer: PeerId, result: Result<Answer, AskError>) {
        let Ok(Answer::Reply(reply)) = result else { return };
        let own = reply.records.into_iter().find_map(|record| match record {
            Record::Peer(record) if record.peer == peer => Some(record),
            _ => None,
        });
        let Some(record) = own else { return };
        match Record::Peer(record.clone()).verify(self.shared.now_ms()) {
            Ok(()) => self.shared.members.introduced(record),
            Err(error) => {
                if crate::handle::note_refused(&self.shared, &error) {
                    self.shared.expel(peer);
                }
            }
        }
    }

    /// A place is free: the next request that somebody still waits for takes it.
    fn next(&mut self, swarm: &mut Swarm<Behaviour>, peer: libp2p::PeerId) {
        let Some(window) = self.windows.get_mut(&peer) else { return };
        window.in_flight = window.in_flight.saturating_sub(1);
        let mut next = None;
        while next.is_none() {
            let Some(sending) = window.waiting.pop_front() else { break };
            self.waiting -= 1;
            if !sending.reply.is_closed() {
                next = Some(sending);
            }
        }
        match next {
            Some(sending) => self.send(swarm, peer, sending),
            None if window.in_flight == 0 => drop(self.windows.remove(&peer)),
            None => {}
        }
    }
}

fn reason_of(failure: &OutboundFailure) -> AskError {
    match failure {
        OutboundFailure::DialFailure => AskError::Unreachable,
        OutboundFailure::Timeout => AskError::TimedOut,
        OutboundFailure::ConnectionClosed => AskError::Closed,
        OutboundFailure::UnsupportedProtocols => AskError::Unsupported,
        OutboundFailure::Io(error) if error.kind() == io::ErrorKind::InvalidData => AskError::Malformed,
        // A node that closes the stream without a word has no room for the request.
        OutboundFailure::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => AskError::Busy,
        OutboundFailure::Io(_) => AskError::Closed,
    }
}
