//! Which frame goes out next: control frames first, then flows in turn by bytes. Pure: no lock, no clock.

use std::collections::VecDeque;

use hashbrown::HashMap;
use oap::Frame;

/// Bytes a flow may send in one turn. No smaller than the 64 KiB chunks that large messages are cut into, so that a
/// turn is never spent on saving up.
pub const QUANTUM_BYTES: usize = 64 * 1024;

/// Emptied queues that keep their memory for the next flow. More would be memory that one burst over many flows pins.
const SPARE_QUEUES: usize = 2;

/// Bounds of what may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum bytes of all flows together.
    pub bytes_max: usize,
    /// Maximum frames of all flows together.
    pub frames_max: usize,
    /// Maximum bytes of control frames, which count nowhere else.
    pub control_bytes_max: usize,
}

/// There is no room for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// Frames that wait to be written, in flows that take turns (deficit round robin by bytes).
#[derive(Debug)]
pub struct Scheduler {
    bounds: Bounds,
    control: VecDeque<Frame>,
    control_bytes: usize,
    /// Flows that have frames, in no order; a flow without frames is not here.
    flows: HashMap<u64, Flow>,
    /// Flows that have frames, in the order of their turns.
    turns: VecDeque<u64>,
    spares: Vec<VecDeque<Frame>>,
    bytes: usize,
    frames: usize,
    /// Bytes and frames that have their room already and are still to come.
    kept_bytes: usize,
    kept_frames: usize,
}

#[derive(Debug)]
struct Flow {
    queue: VecDeque<Frame>,
    /// Bytes of the queue.
    bytes: usize,
    /// Bytes it may still send in this turn.
    deficit: usize,
    /// Whether this turn's quantum is already in the deficit.
    has_quantum: bool,
}

impl Scheduler {
    /// Nothing waits yet.
    pub fn new(bounds: Bounds) -> Self {
        Scheduler {
            bounds,
            control: VecDeque::new(),
            control_bytes: 0,
            flows: HashMap::new(),
            turns: VecDeque::new(),
            spares: Vec::new(),
            bytes: 0,
            frames: 0,
            kept_bytes: 0,
            kept_frames: 0,
        }
    }

    /// Puts a frame at the end of its flow.
    pub fn push(&mut self, flow: u64, frame: Frame) -> Result<(), NoRoom> {
        if !self.has_room_for(frame.encoded_len()) {
            return Err(NoRoom);
        }
        self.push_beyond(flow, frame);
        Ok(())
    }

    /// Puts all frames of something that is cut into several at the end of their flow, or none of them. What can never
    /// fit is taken while nothing else waits, as otherwise it could never be sent.
    pub fn push_whole(&mut self, flow: u64, frames: Vec<Frame>) -> Result<(), NoRoom> {
        let bytes = frames.iter().map(Frame::encoded_len).sum();
        if self.frames > 0 && !self.has_room_for_all(frames.len(), bytes) {
            return Err(NoRoom);
        }
        frames.into_iter().for_each(|frame| self.push_beyond(flow, frame));
        Ok(())
    }

    /// Puts a frame at the end of its flow, whether there is room or not: for one whose room was kept.
    pub fn push_beyond(&mut self, flow: u64, frame: Frame) {
        let len = frame.encoded_len();
        self.bytes += len;
        self.frames += 1;
        let flow = self.flows.entry(flow).or_insert_with(|| {
            self.turns.push_back(flow);
            Flow { queue: self.spares.pop().unwrap_or_default(), bytes: 0, deficit: 0, has_quantum: false }
        });
        flow.bytes += len;
        flow.queue.push_back(frame);
    }

    /// Keeps room for a frame of so many bytes, if half of all room is left to others; or if nothing else needs any.
    pub fn keep(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let is_alone = self.frames + self.kept_frames == 0;
        if !is_alone && !self.is_half_free_after(1, bytes) {
            return Err(NoRoom);
        }
        self.kept_bytes += bytes;
        self.kept_frames += 1;
        Ok(())
    }

    /// The room that was kept for a frame of so many bytes is everybody's again.
    pub fn give_back(&mut self, bytes: usize) {
        self.kept_bytes = self.kept_bytes.saturating_sub(bytes);
        self.kept_frames = self.kept_frames.saturating_sub(1);
    }

    /// Puts a control frame at the end of the control frames.
    pub fn push_control(&mut self, frame: Frame) -> Result<(), NoRoom> {
        let len = frame.encoded_len();
        if len > self.bounds.control_bytes_max.saturating_sub(self.control_bytes) {
            return Err(NoRoom);
        }
        self.push_control_beyond(frame);
        Ok(())
    }

    /// The same without the bound, for the one frame that must always find room: the farewell.
    pub fn push_control_beyond(&mut self, frame: Frame) {
        self.control_bytes += frame.encoded_len();
        self.control.push_back(frame);
    }

    /// Whether a frame of so many bytes would fit now.
    pub fn has_room_for(&self, len: usize) -> bool {
        self.has_room_for_all(1, len)
    }

    /// Whether so many frames of so many bytes together would fit now.
    pub fn has_room_for_all(&self, frames: usize, bytes: usize) -> bool {
        let fits = |held: usize, more: usize, max: usize| more <= max.saturating_sub(held);
        fits(self.frames + self.kept_frames, frames, self.bounds.frames_max)
            && fits(self.bytes + self.kept_bytes, bytes, self.bounds.bytes_max)
    }

    /// Whether they would leave half of the room to others.
    pub fn is_half_free_after(&self, frames: usize, bytes: usize) -> bool {
        let (frames, bytes) = (self.frames + self.kept_frames + frames, self.bytes + self.kept_bytes + bytes);
        frames <= self.bounds.frames_max / 2 && bytes <= self.bounds.bytes_max / 2
    }

    /// Moves frames into `batch`: all control frames, then frames of the flows in turn until at least `bytes` are out.
    pub fn take(&mut self, bytes: usize, batch: &mut VecDeque<Frame>) {
        if self.take_whole_queue(bytes, batch) {
            return;
        }
        self.control_bytes = 0;
        batch.append(&mut self.control);
        let mut taken = 0;
        while taken < bytes && !self.turns.is_empty() {
            taken += self.take_turn(bytes - taken, batch);
        }
    }

    /// [`Scheduler::take`] where each flow has its own way: frames of those flows whose way is free, with the flow of
    /// each. No flow means the control frames. What has no free way keeps its place, and its room in the bounds.
    pub fn take_free(
        &mut self,
        bytes: usize,
        mut is_free: impl FnMut(Option<u64>) -> bool,
        batch: &mut Vec<(Option<u64>, Frame)>,
    ) {
        if is_free(None) {
            self.control_bytes = 0;
            batch.extend(self.control.drain(..).map(|frame| (None, frame)));
        }
        let (mut taken, mut passed_over, mut frames) = (0, 0, VecDeque::new());
        while taken < bytes
            && passed_over < self.turns.len()
            && let Some(&flow) = self.turns.front()
        {
            if is_free(Some(flow)) {
                passed_over = 0;
                taken += self.take_turn(bytes - taken, &mut frames);
                batch.extend(frames.drain(..).map(|frame| (Some(flow), frame)));
            } else {
                passed_over += 1;
                self.turns.rotate_left(1);
            }
        }
    }

    /// The common case of one flow: its queue and the empty batch change places, which spares moving each frame while
    /// others wait for the lock.
    fn take_whole_queue(&mut self, bytes: usize, batch: &mut VecDeque<Frame>) -> bool {
        let [only] = self.turns.as_slices().0 else { return false };
        let fits = |flow: &&mut Flow| flow.bytes <= bytes;
        if !self.control.is_empty() || !batch.is_empty() || self.turns.len() != 1 {
            return false;
        }
        let Some(flow) = self.flows.get_mut(only).filter(fits) else { return false };
        std::mem::swap(&mut flow.queue, batch);
        let only = *only;
        self.bytes = 0;
        self.frames = 0;
        self.turns.clear();
        self.retire(only);
        true
    }

    /// Lets the first flow send what its turn allows, `bytes` or a little more at most; returns the bytes sent.
    fn take_turn(&mut self, bytes: usize, batch: &mut VecDeque<Frame>) -> usize {
        let Some(&id) = self.turns.front() else { return 0 };
        let flow = self.flows.get_mut(&id).expect("a flow that has a turn has frames");
        if !flow.has_quantum {
            flow.has_quantum = true;
            flow.deficit += QUANTUM_BYTES;
        }
        let mut taken = 0;
        while taken < bytes
            && let Some(len) = flow.queue.front().map(Frame::encoded_len).filter(|len| *len <= flow.deficit)
        {
            flow.deficit -= len;
            taken += len;
            self.frames -= 1;
            batch.extend(flow.queue.pop_front());
        }
        flow.bytes -= taken;
        self.bytes -= taken;
        if flow.queue.is_empty() {
            self.turns.pop_front();
            self.retire(id);
        } else if taken < bytes {
            // Its turn is over, not the room of the batch: what is left of its deficit it keeps for the next turn.
            flow.has_quantum = false;
            self.turns.rotate_left(1);
        }
        taken
    }

    /// Drops the oldest frames of a flow until at least `bytes` are free; returns the number of frames dropped, and
    /// their bytes.
    pub fn shed_oldest(&mut self, id: u64, bytes: usize) -> (usize, usize) {
        let Some(flow) = self.flows.get_mut(&id) else { return (0, 0) };
        let (mut shed_bytes, mut shed_frames) = (0, 0);
        while shed_bytes < bytes
            && let Some(frame) = flow.queue.pop_front()
        {
            shed_bytes += frame.encoded_len();
            shed_frames += 1;
        }
        flow.bytes -= shed_bytes;
        self.bytes -= shed_bytes;
        self.frames -= shed_frames;
        if flow.queue.is_empty() {
            self.turns.retain(|turn| *turn != id);
            self.retire(id);
        }
        (shed_frames, shed_bytes)
    }

    /// Drops everything but control frames; returns the number of frames dropped.
    pub fn clear_flows(&mut self) -> usize {
        self.flows.clear();
        self.turns.clear();
        self.bytes = 0;
        std::mem::take(&mut self.frames)
    }

    /// Changes how many bytes may wait; what waits already is kept.
    pub fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bounds.bytes_max = bytes_max;
    }

    /// Changes how many frames may wait; what waits already is kept.
    pub fn set_frames_max(&mut self, frames_max: usize) {
        self.bounds.frames_max = frames_max;
    }

    /// Bytes that may wait.
    pub fn bytes_max(&self) -> usize {
        self.bounds.bytes_max
    }

    /// Bytes that wait, control frames not counted.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Frames that wait, control frames not counted.
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// Bytes of frames of one flow that wait.
    pub fn bytes_of(&self, flow: u64) -> usize {
        self.flows.get(&flow).map_or(0, |flow| flow.bytes)
    }

    /// Bytes of control frames that wait.
    pub fn control_bytes(&self) -> usize {
        self.control_bytes
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.frames == 0 && self.control.is_empty()
    }

    /// Gives memory back; for a session that has gone quiet.
    pub fn shrink(&mut self) {
        if self.is_empty() {
            let Scheduler { kept_bytes, kept_frames, .. } = *self;
            *self = Scheduler { kept_bytes, kept_frames, ..Scheduler::new(self.bounds) };
        }
    }

    fn retire(&mut self, id: u64) {
        if let Some(flow) = self.flows.remove(&id)
            && self.spares.len() < SPARE_QUEUES
        {
            self.spares.push(flow.queue);
        }
    }
}

#[cfg(test)]
mod tests;
