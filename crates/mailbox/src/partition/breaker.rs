//! The breaker of a partition: counts how deliveries end, and decides how many may go out.

use crate::index::{Entry, Index};
use crate::types::{BreakerSettings, BreakerState, BreakerTurn, BreakerView, Millis, PartKey, Seq, State};

/// The window is as many pieces, which are forgotten one by one.
const PIECES: u64 = 4;

/// A delivery: the message and the number of its lease.
pub(crate) type Lease = (Seq, u32);

/// Counts and decides for one partition.
#[derive(Debug)]
pub(crate) struct Breaker {
    settings: BreakerSettings,
    phase: BreakerPhase,
    pieces: [Piece; PIECES as usize],
    /// It opened or closed since this was last asked: how many failed, of how many.
    turned: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
enum BreakerPhase {
    Closed,
    Open {
        opened_ms: Millis,
        until_ms: Millis,
    },
    HalfOpen {
        opened_ms: Millis,
        /// The delivery that decides; whether it is still out is known by its message.
        probe: Option<Lease>,
    },
}

/// Deliveries that ended in one piece of the window.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    /// Which piece of all time it is.
    number: u64,
    ended: u64,
    failing: u64,
}

impl Breaker {
    /// Closed, with nothing counted.
    pub fn new(settings: BreakerSettings) -> Self {
        Breaker { settings, phase: BreakerPhase::Closed, pieces: [Piece::default(); PIECES as usize], turned: None }
    }

    /// Messages that may go out now, as far as it is concerned.
    pub fn leases_left(&self, index: &Index) -> u64 {
        let is_out = |(seq, fence): Lease| {
            index.get(seq).is_some_and(|entry| entry.state() == State::Leased && entry.fence == fence)
        };
        match self.phase {
            BreakerPhase::Closed => u64::MAX,
            BreakerPhase::Open { .. } => 0,
            BreakerPhase::HalfOpen { probe, .. } => u64::from(!probe.is_some_and(is_out)),
        }
    }

    /// When it lets the next message out.
    pub fn deadline(&self) -> Option<Millis> {
        match self.phase {
            BreakerPhase::Open { until_ms, .. } => Some(until_ms),
            _ => None,
        }
    }

    /// The clock was set, and shows so many milliseconds more or less: a pause lasts as long as it would have. What was
    /// counted is forgotten, because pieces of the window have other numbers now.
    pub fn shift(&mut self, by_ms: i64) {
        self.pieces = [Piece::default(); PIECES as usize];
        match &mut self.phase {
            BreakerPhase::Closed => {}
            BreakerPhase::Open { opened_ms, until_ms } => {
                *opened_ms = opened_ms.saturating_add_signed(by_ms);
                *until_ms = until_ms.saturating_add_signed(by_ms);
            }
            BreakerPhase::HalfOpen { opened_ms, .. } => *opened_ms = opened_ms.saturating_add_signed(by_ms),
        }
    }

    /// Ends a pause whose time is over; whether there was one.
    pub fn end_pause(&mut self, now: Millis) -> bool {
        match self.phase {
            BreakerPhase::Open { opened_ms, until_ms } if until_ms <= now => {
                self.phase = BreakerPhase::HalfOpen { opened_ms, probe: None };
                true
            }
            _ => false,
        }
    }

    /// Messages went out.
    pub fn let_out(&mut self, leases: &[Lease]) {
        if let (BreakerPhase::HalfOpen { probe, .. }, Some(lease)) = (&mut self.phase, leases.first()) {
            *probe = Some(*lease);
        }
    }

    /// A delivery ended; whether that changed anything.
    pub fn count(&mut self, now: Millis, lease: Lease, good: bool) -> bool {
        match self.phase {
            BreakerPhase::Closed => {
                let (failing, ended) = self.counted(now, good);
                let opens = ended >= u64::from(self.settings.deliveries_min)
                    && failing * 100 > u64::from(self.settings.failing_percent) * ended;
                if opens {
                    self.open(now, failing, ended);
                }
                opens
            }
            BreakerPhase::HalfOpen { probe: Some(probe), .. } if probe == lease => {
                if good {
                    *self = Breaker { turned: Some((0, 1)), ..Breaker::new(self.settings) };
                } else {
                    self.open(now, 1, 1);
                }
                true
            }
            // What went out before it opened says nothing new.
            BreakerPhase::Open { .. } | BreakerPhase::HalfOpen { .. } => false,
        }
    }

    /// A failed delivery does not kill its message: it is one of those that opened it, not the one that decides.
    pub fn spares(&self, entry: &Entry) -> bool {
        match self.phase {
            BreakerPhase::Closed => false,
            BreakerPhase::Open { .. } => true,
            BreakerPhase::HalfOpen { probe, .. } => probe != Some((entry.seq, entry.fence)),
        }
    }

    /// How it stands.
    pub fn view(&self) -> BreakerView {
        match self.phase {
            BreakerPhase::Closed => BreakerView::default(),
            BreakerPhase::Open { opened_ms, until_ms } => {
                BreakerView { state: BreakerState::Open, opened_ms: Some(opened_ms), until_ms: Some(until_ms) }
            }
            BreakerPhase::HalfOpen { opened_ms, .. } => {
                BreakerView { state: BreakerState::HalfOpen, opened_ms: Some(opened_ms), until_ms: None }
            }
        }
    }

    /// What is to be told of it, once.
    pub fn take_turn(&mut self, part: PartKey) -> Option<BreakerTurn> {
        let (failing, deliveries) = self.turned.take()?;
        Some(BreakerTurn { part, view: self.view(), failing, deliveries })
    }

    fn open(&mut self, now: Millis, failing: u64, ended: u64) {
        let until_ms = now.saturating_add(self.settings.pause_ms);
        let turned = Some((failing, ended));
        *self =
            Breaker { phase: BreakerPhase::Open { opened_ms: now, until_ms }, turned, ..Breaker::new(self.settings) };
    }

    /// Counts one more; how many failed, of how many in the window.
    fn counted(&mut self, now: Millis, good: bool) -> (u64, u64) {
        let number = now / self.settings.window_ms.div_ceil(PIECES).max(1);
        let piece = &mut self.pieces[(number % PIECES) as usize];
        if piece.number != number {
            *piece = Piece { number, ..Piece::default() };
        }
        piece.ended += 1;
        piece.failing += u64::from(!good);
        let recent = self.pieces.iter().filter(|piece| piece.number + PIECES > number);
        recent.fold((0, 0), |(failing, ended), piece| (failing + piece.failing, ended + piece.ended))
    }
}
