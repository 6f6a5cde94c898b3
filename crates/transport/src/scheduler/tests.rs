//! Tests of the order in which frames go out, against a naive model and for fairness.

use super::*;
use bytes::Bytes;
use oap::{AppId, HEADER_BYTES};
use proptest::prelude::*;

const BOUNDS: Bounds = Bounds { bytes_max: 1 << 20, frames_max: 64, control_bytes_max: 1024 };

fn frame(corr: u64, len: usize) -> Frame {
    Frame::event(AppId::GOSSIP, corr, Bytes::from(vec![0; len - HEADER_BYTES]))
}

fn control(corr: u64) -> Frame {
    Frame::event(AppId::CONTROL, corr, Bytes::new())
}

fn taken(scheduler: &mut Scheduler, bytes: usize) -> Vec<u64> {
    let mut batch = VecDeque::new();
    scheduler.take(bytes, &mut batch);
    batch.iter().map(|frame| frame.corr).collect()
}

#[test]
fn control_frames_pass_a_full_queue() {
    let mut scheduler = Scheduler::new(Bounds { frames_max: 2, ..BOUNDS });
    scheduler.push(7, frame(1, 100)).expect("room");
    scheduler.push(7, frame(2, 100)).expect("room");
    assert_eq!(scheduler.push(7, frame(3, 100)), Err(NoRoom));
    scheduler.push_control(control(9)).expect("its own room");
    assert_eq!(taken(&mut scheduler, 1), [9, 1], "control first, then data");
}

#[test]
fn control_frames_have_a_bound_of_their_own() {
    let mut scheduler = Scheduler::new(BOUNDS);
    let fit = (0..1000).take_while(|corr| scheduler.push_control(control(*corr)).is_ok()).count();
    assert_eq!(fit, BOUNDS.control_bytes_max / HEADER_BYTES);
    scheduler.push_control_beyond(control(u64::MAX));
    assert_eq!(taken(&mut scheduler, 0).len(), fit + 1);
    assert_eq!(scheduler.control_bytes(), 0);
}

#[test]
fn a_frame_larger_than_the_quantum_waits_for_its_turns_and_goes() {
    let mut scheduler = Scheduler::new(BOUNDS);
    scheduler.push(1, frame(1, 5 * QUANTUM_BYTES)).expect("room");
    for corr in 10..14 {
        scheduler.push(2, frame(corr, QUANTUM_BYTES)).expect("room");
    }
    assert_eq!(taken(&mut scheduler, usize::MAX), [10, 11, 12, 13, 1]);
    assert!(scheduler.is_empty());
}

#[test]
fn what_is_cut_into_frames_is_taken_whole_or_not_at_all() {
    let mut scheduler = Scheduler::new(Bounds { frames_max: 4, bytes_max: 1000, ..BOUNDS });
    let parts = |count: u64, len| (0..count).map(|corr| frame(corr, len)).collect::<Vec<_>>();
    scheduler.push(1, frame(9, 100)).expect("room");
    assert_eq!(scheduler.push_whole(1, parts(4, 100)), Err(NoRoom), "a frame too many");
    assert_eq!(scheduler.push_whole(1, parts(2, 451)), Err(NoRoom), "a byte too many for both");
    assert_eq!((scheduler.frames(), scheduler.bytes()), (1, 100), "nothing is taken of what is refused");
    assert_eq!(scheduler.push_whole(1, parts(2, 450)), Ok(()));
    assert_eq!(taken(&mut scheduler, usize::MAX), [9, 0, 1]);
    assert_eq!(scheduler.push_whole(1, parts(8, 450)), Ok(()), "what never fits goes alone");
    assert_eq!(scheduler.push(2, frame(9, 100)), Err(NoRoom));
}

#[test]
fn shedding_takes_the_oldest_of_one_flow() {
    let mut scheduler = Scheduler::new(BOUNDS);
    for corr in 0..4 {
        scheduler.push(corr % 2, frame(corr, 100)).expect("room");
    }
    assert_eq!(scheduler.shed_oldest(0, 1), (1, 100));
    assert_eq!((scheduler.bytes(), scheduler.frames()), (300, 3));
    assert_eq!(scheduler.shed_oldest(1, 1000), (2, 200), "the flow is empty then");
    assert_eq!(scheduler.shed_oldest(5, 1), (0, 0), "no such flow");
    assert_eq!(taken(&mut scheduler, usize::MAX), [2]);
}

#[test]
fn quiet_gives_memory_back() {
    let mut scheduler = Scheduler::new(BOUNDS);
    scheduler.push(1, frame(1, 100)).expect("room");
    scheduler.shrink();
    assert_eq!(scheduler.frames(), 1, "what waits stays");
    let mut batch = VecDeque::new();
    scheduler.take(usize::MAX, &mut batch);
    scheduler.shrink();
    assert_eq!((scheduler.flows.capacity(), scheduler.spares.capacity(), scheduler.turns.capacity()), (0, 0, 0));
}

/// Jain's index of shares: 1 is the same for all.
fn jain(shares: &[usize]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    sum * sum / (shares.len() as f64 * squares)
}

/// Flows with frames of very different sizes that always have something to send.
fn shares_of_backlogged_flows(sizes: &[usize], turn_bytes: usize, total_bytes: usize) -> Vec<usize> {
    let bounds = Bounds { bytes_max: usize::MAX, frames_max: usize::MAX, control_bytes_max: 0 };
    let mut scheduler = Scheduler::new(bounds);
    let mut sent = vec![0; sizes.len()];
    let mut batch = VecDeque::new();
    while sent.iter().sum::<usize>() < total_bytes {
        for (flow, size) in sizes.iter().enumerate() {
            while scheduler.bytes_of(flow as u64) < 2 * QUANTUM_BYTES {
                scheduler.push(flow as u64, frame(flow as u64, *size)).expect("no bound");
            }
        }
        scheduler.take(turn_bytes, &mut batch);
        for frame in batch.drain(..) {
            sent[frame.corr as usize] += frame.encoded_len();
        }
    }
    sent
}

#[derive(Debug, Clone)]
enum Operation {
    Push { flow: u64, len: usize },
    Control,
    Take { bytes: usize },
    Shed { flow: u64, bytes: usize },
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => (0..5u64, HEADER_BYTES..200_000).prop_map(|(flow, len)| Operation::Push { flow, len }),
        1 => Just(Operation::Control),
        2 => (0..300_000usize).prop_map(|bytes| Operation::Take { bytes }),
        1 => (0..5u64, 0..300_000usize).prop_map(|(flow, bytes)| Operation::Shed { flow, bytes }),
    ]
}

/// The same with a list: what waits, in the order it came.
#[derive(Default)]
struct Model {
    waiting: Vec<(u64, u64, usize)>,
    controls: usize,
}

impl Model {
    fn bytes(&self) -> usize {
        self.waiting.iter().map(|(_, _, len)| len).sum()
    }

    /// A data frame that goes out has to be the oldest of its flow.
    fn goes_out(&mut self, corr: u64) {
        let at = self.waiting.iter().position(|(_, number, _)| *number == corr).expect("it waited");
        let (flow, _, _) = self.waiting.remove(at);
        assert!(self.waiting[..at].iter().all(|(other, _, _)| *other != flow), "an older one of flow {flow} waits");
    }

    fn shed(&mut self, flow: u64, bytes: usize) -> usize {
        let (mut shed_bytes, mut count) = (0, 0);
        while shed_bytes < bytes
            && let Some(at) = self.waiting.iter().position(|(other, _, _)| *other == flow)
        {
            shed_bytes += self.waiting.remove(at).2;
            count += 1;
        }
        count
    }
}

fn agree(scheduler: &mut Scheduler, model: &mut Model, number: u64, operation: &Operation) {
    match *operation {
        Operation::Push { flow, len } => {
            let fits = model.waiting.len() < BOUNDS.frames_max && model.bytes() + len <= BOUNDS.bytes_max;
            assert_eq!(scheduler.push(flow, frame(number, len)).is_ok(), fits);
            if fits {
                model.waiting.push((flow, number, len));
            }
        }
        Operation::Control => {
            let fits = (model.controls + 1) * HEADER_BYTES <= BOUNDS.control_bytes_max;
            assert_eq!(scheduler.push_control(control(number)).is_ok(), fits);
            model.controls += usize::from(fits);
        }
        Operation::Take { bytes } => {
            let before = model.bytes();
            let mut batch = VecDeque::new();
            scheduler.take(bytes, &mut batch);
            assert!(batch.iter().take(model.controls).all(|frame| frame.app == AppId::CONTROL), "control first");
            batch.drain(..std::mem::take(&mut model.controls));
            let last = batch.back().map_or(0, Frame::encoded_len);
            batch.iter().for_each(|frame| model.goes_out(frame.corr));
            let out = before - model.bytes();
            assert!(out >= bytes.min(before), "no less than asked for");
            assert!(out <= bytes.saturating_add(last), "no more than one frame beyond");
        }
        Operation::Shed { flow, bytes } => assert_eq!(scheduler.shed_oldest(flow, bytes).0, model.shed(flow, bytes)),
    }
    assert_eq!((scheduler.bytes(), scheduler.frames()), (model.bytes(), model.waiting.len()));
    assert_eq!(scheduler.control_bytes(), model.controls * HEADER_BYTES);
}

proptest! {
    #[test]
    fn it_keeps_its_bounds_and_the_order_within_a_flow(operations in prop::collection::vec(operation(), 1..80)) {
        let (mut scheduler, mut model) = (Scheduler::new(BOUNDS), Model::default());
        for (number, operation) in operations.iter().enumerate() {
            agree(&mut scheduler, &mut model, number as u64, operation);
        }
        agree(&mut scheduler, &mut model, u64::MAX, &Operation::Take { bytes: usize::MAX });
        prop_assert!(scheduler.is_empty());
    }

    #[test]
    fn sixteen_flows_share_alike(
        sizes in prop::collection::vec(HEADER_BYTES..QUANTUM_BYTES, 16),
        turn_bytes in 1..(4 * QUANTUM_BYTES),
    ) {
        let shares = shares_of_backlogged_flows(&sizes, turn_bytes, 16 * 8 * QUANTUM_BYTES);
        prop_assert!(jain(&shares) >= 0.95, "{} of {shares:?}", jain(&shares));
    }
}

#[test]
fn what_has_no_free_way_keeps_its_place_while_others_go() {
    let mut scheduler = Scheduler::new(BOUNDS);
    for number in 0..3 {
        scheduler.push(1, frame(number, 100)).expect("room");
        scheduler.push(2, frame(10 + number, 100)).expect("room");
    }
    scheduler.push_control(control(20)).expect("room");
    let held = scheduler.bytes_of(1);
    let mut batch = Vec::new();
    scheduler.take_free(usize::MAX, |flow| flow == Some(2), &mut batch);
    let taken: Vec<_> = batch.drain(..).map(|(flow, frame)| (flow, frame.corr)).collect();
    assert_eq!(taken, [(Some(2), 10), (Some(2), 11), (Some(2), 12)]);
    assert_eq!((scheduler.bytes(), scheduler.bytes_of(1), scheduler.frames()), (held, held, 3));
    scheduler.take_free(usize::MAX, |_| false, &mut batch);
    assert!(batch.is_empty() && !scheduler.is_empty());
    scheduler.take_free(usize::MAX, |_| true, &mut batch);
    let taken: Vec<_> = batch.drain(..).map(|(flow, frame)| (flow, frame.corr)).collect();
    assert_eq!(taken, [(None, 20), (Some(1), 0), (Some(1), 1), (Some(1), 2)], "control frames first");
    assert!(scheduler.is_empty());
}
