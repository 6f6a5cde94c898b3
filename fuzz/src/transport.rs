//! The scheduler of the transport: bounds hold, sums are right, and a flow keeps its order.

use std::collections::VecDeque;

use bytes::Bytes;
use oap::{AppId, Frame};
use ron_transport::scheduler::{Bounds, Scheduler};

use crate::{Seed, Target};

/// Targets of the crate.
pub const TARGETS: [Target; 1] =
    [Target { name: "transport_scheduler", body: scheduler, is_read: begins_with_push, seeds: scheduler_seeds }];

const BOUNDS: Bounds = Bounds { bytes_max: 300_000, frames_max: 20, control_bytes_max: 500 };

static ZEROS: [u8; 1 << 17] = [0; 1 << 17];

/// What waits, in the order it came: flow, number, bytes.
type Model = Vec<(u64, u64, usize)>;

/// Whatever is pushed, taken and shed, in whatever order.
pub fn scheduler(commands: &[u8]) {
    let (mut scheduler, mut model, mut controls) = (Scheduler::new(BOUNDS), Model::new(), 0);
    for (number, command) in commands.chunks_exact(3).enumerate() {
        let (flow, size) = (u64::from(command[0] >> 4), usize::from(u16::from_be_bytes([command[1], command[2]])) * 2);
        match command[0] & 7 {
            0..=3 => push(&mut scheduler, &mut model, flow, number as u64, size),
            4 => controls += usize::from(scheduler.push_control(Frame::event(AppId::CONTROL, 0, Bytes::new())).is_ok()),
            5 => shed(&mut scheduler, &mut model, flow, size),
            6 => take(&mut scheduler, &mut model, &mut controls, size),
            _ => scheduler.shrink(),
        }
        let bytes: usize = model.iter().map(|(_, _, len)| len).sum();
        assert_eq!((scheduler.bytes(), scheduler.frames()), (bytes, model.len()));
        assert!(bytes <= BOUNDS.bytes_max && model.len() <= BOUNDS.frames_max);
        assert!(scheduler.control_bytes() <= BOUNDS.control_bytes_max);
    }
    take(&mut scheduler, &mut model, &mut controls, usize::MAX);
    assert!(scheduler.is_empty() && model.is_empty());
}

fn push(scheduler: &mut Scheduler, model: &mut Model, flow: u64, number: u64, size: usize) {
    let frame = Frame::event(AppId::GOSSIP, number, Bytes::from_static(&ZEROS[..size.min(ZEROS.len())]));
    let len = frame.encoded_len();
    if scheduler.push(flow, frame).is_ok() {
        model.push((flow, number, len));
    }
}

fn shed(scheduler: &mut Scheduler, model: &mut Model, flow: u64, bytes: usize) {
    let (mut shed_bytes, mut count) = (0, 0);
    while shed_bytes < bytes
        && let Some(at) = model.iter().position(|(other, _, _)| *other == flow)
    {
        shed_bytes += model.remove(at).2;
        count += 1;
    }
    assert_eq!(scheduler.shed_oldest(flow, bytes).0, count);
}

fn take(scheduler: &mut Scheduler, model: &mut Model, controls: &mut usize, bytes: usize) {
    let mut batch = VecDeque::new();
    scheduler.take(bytes, &mut batch);
    for _ in 0..std::mem::take(controls) {
        assert_eq!(batch.pop_front().map(|frame| frame.app), Some(AppId::CONTROL), "control first");
    }
    let mut taken = 0;
    for frame in &batch {
        assert!(taken < bytes, "no more than one frame beyond what was asked for");
        taken += frame.encoded_len();
        let at = model.iter().position(|(_, number, _)| *number == frame.corr).expect("it waited");
        let (flow, _, _) = model.remove(at);
        assert!(model[..at].iter().all(|(other, _, _)| *other != flow), "an older one of the flow waits");
    }
    assert!(taken >= bytes || model.is_empty(), "no less than asked for");
}

/// A first command that is no push does nothing to an empty scheduler.
fn begins_with_push(commands: &[u8]) -> bool {
    commands.len() >= 3 && commands[0] & 7 <= 3
}

fn scheduler_seeds() -> Vec<Seed> {
    const PUSH: u8 = 0;
    const CONTROL: u8 = 4;
    const SHED: u8 = 5;
    const TAKE: u8 = 6;
    let written = |commands: &[(u8, u8, u16)]| -> Vec<u8> {
        let command = |(what, flow, half): &(u8, u8, u16)| {
            let [high, low] = half.to_be_bytes();
            [flow << 4 | what, high, low]
        };
        commands.iter().flat_map(command).collect()
    };
    let two_flows = [(PUSH, 1, 40_000), (PUSH, 2, 100), (CONTROL, 0, 0), (PUSH, 1, 100), (TAKE, 0, 1000)];
    let sheds = [(PUSH, 3, 500), (PUSH, 3, 500), (PUSH, 4, 9), (SHED, 3, 600), (SHED, 4, 1), (TAKE, 0, 1)];
    let full: Vec<(u8, u8, u16)> = (0..24).map(|number| (PUSH, number % 5, 6000)).chain([(TAKE, 0, 50_000)]).collect();
    vec![("two-flows.seed", written(&two_flows)), ("sheds.seed", written(&sheds)), ("full.seed", written(&full))]
}
