//! The reference queue: a list of messages and linear scans, slow and obviously right.

use std::collections::BTreeMap;

use svc_mailbox::shard::Fencing;
use svc_mailbox::types::{DeadReason, Expired, Groups, Millis, PartKey, Seq, TopicSettings};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    Ready,
    Freed,
    Delayed(Millis),
    Leased(Millis),
}

#[derive(Clone, Debug)]
pub struct Message {
    pub part: PartKey,
    pub seq: Seq,
    pub group: Option<String>,
    pub body: Vec<u8>,
    /// From when it is kept: when it was sent or moved.
    pub since_ms: Millis,
    pub attempts: u32,
    pub fence: u32,
    pub stand: Stand,
    pub dead: Option<(DeadReason, u32)>,
    /// It came from another partition, where the leases before had been given.
    pub moved: bool,
}

impl Message {
    /// A message as it is sent.
    pub fn new(part: PartKey, seq: Seq, group: Option<String>, body: Vec<u8>, since_ms: Millis, stand: Stand) -> Self {
        Message { part, seq, group, body, since_ms, attempts: 0, fence: 0, stand, dead: None, moved: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    Acked,
    Canceled,
    Expired,
    Purged,
}

#[derive(Clone, Debug)]
pub struct Known {
    pub part: PartKey,
    pub hash: u128,
    pub payload: u64,
    pub seq: Seq,
    pub until_ms: Millis,
}

#[derive(Clone)]
pub struct Rules {
    pub settings: TopicSettings,
    pub dlq: Option<PartKey>,
}

/// All partitions, their messages in order of their numbers, and how messages ended.
#[derive(Clone)]
pub struct Reference {
    pub rules: BTreeMap<PartKey, Rules>,
    pub messages: Vec<Message>,
    pub keys: Vec<Known>,
    pub ended: BTreeMap<Seq, End>,
    /// Groups of which a message came back: the newest message at that time, and which coming back it was.
    pub behind: BTreeMap<(PartKey, Option<String>), (Seq, u64)>,
    pub returns: u64,
}

impl Reference {
    pub fn new(rules: BTreeMap<PartKey, Rules>) -> Self {
        Reference {
            rules,
            messages: Vec::new(),
            keys: Vec::new(),
            ended: BTreeMap::new(),
            behind: BTreeMap::new(),
            returns: 0,
        }
    }

    pub fn get(&mut self, part: PartKey, seq: Seq) -> Option<&mut Message> {
        self.messages.iter_mut().find(|message| message.part == part && message.seq == seq)
    }

    pub fn end(&mut self, seq: Seq, how: End) {
        self.messages.retain(|message| message.seq != seq);
        self.forget_empty_groups();
        assert_eq!(self.ended.insert(seq, how), None, "{seq} ended twice");
    }

    pub fn is_fifo(&self, part: PartKey) -> bool {
        self.rules[&part].settings.groups == Groups::Fifo
    }

    pub fn is_spent(&self, message: &Message) -> bool {
        let rules = &self.rules[&message.part];
        rules.dlq.is_some() && rules.settings.max_attempts > 0 && message.attempts >= rules.settings.max_attempts
    }

    /// The message a key stands for.
    pub fn known(&self, now: Millis, part: PartKey, hash: u128) -> Option<&Known> {
        self.keys.iter().rev().find(|known| known.part == part && known.hash == hash && now < known.until_ms)
    }

    /// The lease that holds.
    pub fn leased(&mut self, now: Millis, part: PartKey, seq: Seq, fence: u32) -> Option<&mut Message> {
        self.get(part, seq).filter(|message| {
            message.fence == fence && matches!(message.stand, Stand::Leased(until_ms) if until_ms > now)
        })
    }

    /// A lease given by this partition, ended or not.
    pub fn known_lease(&mut self, part: PartKey, seq: Seq, fence: u32) -> Option<&mut Message> {
        self.get(part, seq).filter(|message| {
            let before = if message.moved { message.fence - message.attempts } else { 0 };
            before < fence && fence <= message.fence
        })
    }

    pub fn may_ack(&mut self, now: Millis, part: PartKey, (seq, fence): (Seq, u32), fencing: Fencing) -> bool {
        if fencing == Fencing::Any && !self.is_fifo(part) {
            return self.known_lease(part, seq, fence).is_some();
        }
        let current = self.get(part, seq).is_some_and(|message| message.fence == fence && message.attempts > 0);
        current && (!self.is_fifo(part) || self.leased(now, part, seq, fence).is_some())
    }

    /// Moves a message to where the dead of its partition go.
    pub fn die(&mut self, now: Millis, seq: Seq, reason: DeadReason) {
        let at = self.messages.iter().position(|message| message.seq == seq).expect("it is there");
        let dlq = self.rules[&self.messages[at].part].dlq.expect("it has dead letters");
        let message = &mut self.messages[at];
        message.dead = Some((reason, message.attempts));
        self.arrive(now, seq, dlq);
    }

    pub fn arrive(&mut self, now: Millis, seq: Seq, to: PartKey) {
        let message = self.messages.iter_mut().find(|message| message.seq == seq).expect("it is there");
        message.part = to;
        message.since_ms = now;
        message.attempts = 0;
        message.stand = Stand::Ready;
        message.moved = true;
        self.forget_empty_groups();
    }

    /// A message came back: its group goes behind the others that wait.
    pub fn go_behind(&mut self, part: PartKey, seq: Seq) {
        let newest = self.messages.iter().filter(|message| message.part == part).map(|message| message.seq).max();
        self.returns += 1;
        if let (Some(newest), Some(message)) = (newest, self.get(part, seq)) {
            let group = (part, message.group.clone());
            self.behind.insert(group, (newest, self.returns));
        }
    }

    fn forget_empty_groups(&mut self) {
        let messages = &self.messages;
        let is_there = |part: PartKey, group: &Option<String>| {
            messages.iter().any(|message| message.part == part && message.group == *group)
        };
        self.behind.retain(|(part, group), _| is_there(*part, group));
    }

    /// What happens by itself in a partition when the clock shows `now`; which messages leave it.
    pub fn settle(&mut self, now: Millis, part: PartKey) -> Vec<Seq> {
        let mut left = self.end_waits(now, part);
        let here: Vec<Seq> = self.messages.iter().filter(|one| one.part == part).map(|one| one.seq).collect();
        for seq in here {
            let rules = self.rules[&part].clone();
            let message = self.get(part, seq).expect("it is there").clone();
            let leased = matches!(message.stand, Stand::Leased(_));
            if message.since_ms + rules.settings.retention_ms <= now && !leased {
                let buries = rules.settings.expired == Expired::DeadLetter && message.dead.is_none();
                if buries && rules.dlq.is_some() {
                    self.die(now, seq, DeadReason::Expired);
                    left.push(seq);
                } else {
                    self.end(seq, End::Expired);
                }
            }
        }
        left
    }

    /// Ends leases and delays; which messages die of it.
    fn end_waits(&mut self, now: Millis, part: PartKey) -> Vec<Seq> {
        let (mut left, mut back) = (Vec::new(), Vec::new());
        let here: Vec<Message> = self.messages.iter().filter(|one| one.part == part).cloned().collect();
        for message in here {
            let seq = message.seq;
            match message.stand {
                Stand::Leased(until_ms) if until_ms <= now && self.is_spent(&message) => {
                    self.die(now, seq, DeadReason::MaxAttempts);
                    left.push(seq);
                }
                Stand::Leased(at) | Stand::Delayed(at) if at <= now => {
                    self.get(part, seq).expect("it is there").stand = Stand::Ready;
                    back.extend((message.attempts > 0).then_some((at, seq)));
                }
                _ => {}
            }
        }
        back.sort_unstable();
        back.into_iter().for_each(|(_, seq)| self.go_behind(part, seq));
        left
    }

    /// Settles everything everywhere.
    pub fn settle_all(&mut self, now: Millis) {
        for _ in 0..2 {
            for part in self.rules.clone().keys() {
                self.settle(now, *part);
            }
        }
    }

    /// What may be delivered of a partition now: for each group its messages in order.
    pub fn deliverable(&self, part: PartKey) -> BTreeMap<Option<String>, Vec<Seq>> {
        let here = || self.messages.iter().filter(|message| message.part == part);
        let mut groups: BTreeMap<Option<String>, Vec<Seq>> = BTreeMap::new();
        for message in here() {
            let holds = |other: &Message| {
                let out = match other.stand {
                    Stand::Leased(_) => true,
                    Stand::Delayed(_) => other.attempts > 0,
                    _ => false,
                };
                out && other.group == message.group && other.seq < message.seq
            };
            let blocked = self.is_fifo(part) && here().any(holds);
            if message.stand == Stand::Freed || message.stand == Stand::Ready && !blocked {
                groups.entry(message.group.clone()).or_default().push(message.seq);
            }
        }
        groups
    }

    /// What one receive of a first-in-first-out partition gives, and what it buries on the way.
    pub fn fifo_order(&self, part: PartKey, max: usize) -> (Vec<Seq>, Vec<Seq>) {
        let mut groups: Vec<_> = self.deliverable(part).into_iter().collect();
        groups.sort_unstable_by_key(|(group, seqs)| match self.behind.get(&(part, group.clone())) {
            Some((newest, nth)) if seqs[0] <= *newest => (*newest, *nth),
            _ => (seqs[0], 0),
        });
        let (mut given, mut buried) = (Vec::new(), Vec::new());
        for seq in groups.into_iter().flat_map(|(_, seqs)| seqs) {
            if given.len() == max {
                break;
            }
            let message = self.messages.iter().find(|message| message.seq == seq).expect("it is there");
            if self.is_spent(message) { buried.push(seq) } else { given.push(seq) }
        }
        (given, buried)
    }

    /// A restart: what waited long enough is ready, and the oldest groups go first again.
    pub fn restart(&mut self, now: Millis) {
        self.behind.clear();
        for message in &mut self.messages {
            if matches!(message.stand, Stand::Delayed(due_ms) if due_ms <= now) {
                message.stand = Stand::Ready;
            }
        }
    }
}
