//! The bytes of a record: a byte of kind and version, then varints, fixed little-endian hashes, strings with lengths.

use std::borrow::Cow;

use ron_types::limits::mailbox as limits;

use super::*;

const VERSION: u8 = 1;
const KIND_BITS: u8 = 5;
/// Names, groups and consumers are far shorter; settings carry labels.
const SETTINGS_BYTES_MAX: usize = 64 * 1024;

/// What a record is, in its first byte; numbers are never given again.
const fn kind(record: &Record<'_>) -> u8 {
    match record {
        Record::Topic { .. } => 1,
        Record::TopicGone { .. } => 2,
        Record::Send(..) => 3,
        Record::Lease { .. } => 4,
        Record::Ack { .. } => 5,
        Record::Nack { .. } => 6,
        Record::Extend { .. } => 7,
        Record::Unlease { .. } => 8,
        Record::Returned { .. } => 9,
        Record::Move { .. } => 10,
        Record::Cancel { .. } => 11,
        Record::Edit(..) => 12,
        Record::Reschedule { .. } => 13,
        Record::Relocated(..) => 14,
        Record::Remember { .. } => 15,
        Record::Purge { .. } => 16,
        Record::Expired { .. } => 17,
        Record::Mark { boot: None, .. } => 18,
        Record::Moves { .. } => 19,
        Record::Held { .. } => 20,
        Record::Mark { boot: Some(_), .. } => 21,
        Record::TopicNumbers { .. } => 22,
    }
}

pub(super) fn encode(record: &Record<'_>, out: &mut Vec<u8>) {
    out.push(VERSION << KIND_BITS | kind(record));
    match record {
        Record::Topic { id, name, settings } => {
            put(out, u64::from(id.0));
            put_text(out, name);
            put_text(out, settings);
        }
        Record::TopicGone { id } | Record::TopicNumbers { taken: id } => put(out, u64::from(id.0)),
        Record::Send(taken) => put_taken(out, taken),
        Record::Lease { part, until_ms, now_ms, consumer, items } => {
            put_part(out, *part);
            put(out, *now_ms);
            put(out, *until_ms);
            put_text(out, consumer);
            put(out, items.len() as u64);
            for (seq, fence) in items.iter() {
                put(out, *seq);
                put(out, u64::from(*fence));
            }
        }
        Record::Ack { part, seqs } | Record::Returned { part, seqs } | Record::Expired { part, seqs } => {
            put_part(out, *part);
            put_seqs(out, seqs);
        }
        Record::Nack { part, seq, due_ms, now_ms, reason } => {
            put_message(out, *part, *seq);
            put(out, *due_ms);
            put(out, *now_ms);
            put_text(out, reason);
        }
        Record::Extend { part, seq, until_ms, now_ms } => {
            put_message(out, *part, *seq);
            put(out, *until_ms);
            put(out, *now_ms);
        }
        Record::Unlease { part, seq } | Record::Cancel { part, seq } => put_message(out, *part, *seq),
        Record::Move { from, to, seq, reason, now_ms, attempts, error } => {
            put_part(out, *from);
            put_message(out, *to, *seq);
            out.push(reason.map_or(0, reason_code));
            put(out, *now_ms);
            put(out, u64::from(*attempts));
            put_text(out, error);
        }
        Record::Edit(whole) | Record::Relocated(whole) => put_whole(out, whole),
        Record::Reschedule { part, seq, due_ms, now_ms } => {
            put_message(out, *part, *seq);
            put(out, *due_ms);
            put(out, *now_ms);
        }
        Record::Remember { part, seq, memo } => {
            put_message(out, *part, *seq);
            put_memo(out, memo);
        }
        Record::Purge { part, upto } => put_message(out, *part, *upto),
        Record::Moves { id, now_ms, tasks } => {
            put(out, u64::from(id.0));
            put(out, *now_ms);
            put_text(out, tasks);
        }
        Record::Mark { now_ms, shards, seq, boot } => {
            put(out, *now_ms);
            put(out, u64::from(*shards));
            put(out, *seq);
            if let Some(BootTime { id, since_ms }) = boot {
                [(*id >> 64) as u64, *id as u64, *since_ms].into_iter().for_each(|number| put(out, number));
            }
        }
        Record::Held { now_ms, hold } => {
            [*now_ms, hold.before_ms, hold.jump_ms, hold.until_ms].into_iter().for_each(|number| put(out, number));
        }
    }
}

pub(super) fn decode(bytes: &[u8]) -> Result<Record<'_>, Error> {
    let mut from = Reader { bytes };
    let first = from.byte()?;
    if first >> KIND_BITS != VERSION {
        return Err(Error::schema(format!("record: version {} is not known", first >> KIND_BITS)));
    }
    let record = decode_kind(first & ((1 << KIND_BITS) - 1), &mut from)?;
    match from.bytes.len() {
        0 => Ok(record),
        left => Err(Error::schema(format!("record: {left} bytes are left over"))),
    }
}

fn decode_kind<'a>(kind: u8, from: &mut Reader<'a>) -> Result<Record<'a>, Error> {
    Ok(match kind {
        1 => Record::Topic {
            id: TopicId(from.small()?),
            name: from.text(limits::TOPIC_NAME_BYTES_MAX)?,
            settings: from.text(SETTINGS_BYTES_MAX)?,
        },
        2 => Record::TopicGone { id: TopicId(from.small()?) },
        3 => Record::Send(from.taken()?),
        4 => {
            let (part, now_ms, until_ms) = (from.part()?, from.number()?, from.number()?);
            let consumer = from.text(limits::KEY_BYTES_MAX)?;
            let items = from.list(|from| Ok((from.number()?, from.small()?)))?;
            Record::Lease { part, until_ms, now_ms, consumer, items: Cow::Owned(items) }
        }
        5 => Record::Ack { part: from.part()?, seqs: from.seqs()? },
        6 => Record::Nack {
            part: from.part()?,
            seq: from.number()?,
            due_ms: from.number()?,
            now_ms: from.number()?,
            reason: from.text(limits::REASON_BYTES_MAX)?,
        },
        7 => {
            Record::Extend { part: from.part()?, seq: from.number()?, until_ms: from.number()?, now_ms: from.number()? }
        }
        8 => Record::Unlease { part: from.part()?, seq: from.number()? },
        9 => Record::Returned { part: from.part()?, seqs: from.seqs()? },
        10 => Record::Move {
            from: from.part()?,
            to: from.part()?,
            seq: from.number()?,
            reason: from.reason()?,
            now_ms: from.number()?,
            attempts: from.small()?,
            error: from.text(limits::REASON_BYTES_MAX)?,
        },
        11 => Record::Cancel { part: from.part()?, seq: from.number()? },
        12 => Record::Edit(Box::new(from.whole()?)),
        13 => Record::Reschedule {
            part: from.part()?,
            seq: from.number()?,
            due_ms: from.number()?,
            now_ms: from.number()?,
        },
        14 => Record::Relocated(Box::new(from.whole()?)),
        15 => Record::Remember { part: from.part()?, seq: from.number()?, memo: from.memo()? },
        16 => Record::Purge { part: from.part()?, upto: from.number()? },
        17 => Record::Expired { part: from.part()?, seqs: from.seqs()? },
        18 => Record::Mark { now_ms: from.number()?, shards: from.small()?, seq: from.number()?, boot: None },
        19 => {
            Record::Moves { id: TopicId(from.small()?), now_ms: from.number()?, tasks: from.text(SETTINGS_BYTES_MAX)? }
        }
        20 => {
            let now_ms = from.number()?;
            let (before_ms, jump_ms, until_ms) = (from.number()?, from.number()?, from.number()?);
            Record::Held { now_ms, hold: Hold { before_ms, jump_ms, until_ms } }
        }
        21 => {
            let (now_ms, shards, seq) = (from.number()?, from.small()?, from.number()?);
            Record::Mark { now_ms, shards, seq, boot: Some(from.boot_time()?) }
        }
        22 => Record::TopicNumbers { taken: TopicId(from.small()?) },
        other => return Err(Error::schema(format!("record: kind {other} is not known"))),
    })
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn put_part(out: &mut Vec<u8>, part: PartKey) {
    put(out, u64::from(part.topic.0));
    put(out, u64::from(part.partition));
}

fn put_message(out: &mut Vec<u8>, part: PartKey, seq: Seq) {
    put_part(out, part);
    put(out, seq);
}

fn put_seqs(out: &mut Vec<u8>, seqs: &[Seq]) {
    put(out, seqs.len() as u64);
    for seq in seqs {
        put(out, *seq);
    }
}

fn put_option<T>(out: &mut Vec<u8>, value: Option<T>, write: impl FnOnce(&mut Vec<u8>, T)) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        write(out, value);
    }
}

fn put_key(out: &mut Vec<u8>, key: Key) {
    out.extend_from_slice(&key.hash.to_le_bytes());
    out.extend_from_slice(&key.payload.to_le_bytes());
}

fn put_memo(out: &mut Vec<u8>, memo: &Memo) {
    put_key(out, memo.key);
    put(out, memo.sent_ms);
    put(out, memo.until_ms);
}

fn put_taken(out: &mut Vec<u8>, taken: &Taken<'_>) {
    put_message(out, taken.part, taken.seq);
    put(out, taken.sent_ms);
    put(out, taken.due_ms);
    put(out, u64::from(taken.body_len));
    put_option(out, taken.group, put_text);
    put_option(out, taken.key, |out, (key, until_ms)| {
        put_key(out, key);
        put(out, until_ms);
    });
}

fn put_whole(out: &mut Vec<u8>, whole: &Whole<'_>) {
    put_message(out, whole.part, whole.seq);
    put(out, whole.sent_ms);
    put(out, whole.now_ms);
    put(out, u64::from(whole.body_len));
    put_option(out, whole.group, put_text);
    put(out, u64::from(whole.attempts));
    put(out, u64::from(whole.fence));
    let (code, time) = match whole.stand {
        Stand::Ready => (0, 0),
        Stand::Freed => (1, 0),
        Stand::Delayed(due_ms) => (2, due_ms),
        Stand::Leased(until_ms) => (3, until_ms),
    };
    out.push(code);
    if code > 1 {
        put(out, time);
    }
    put_option(out, whole.moved_ms, put);
    put_option(out, whole.dead, |out, dead| {
        out.push(reason_code(dead.reason));
        put_part(out, dead.source);
        put(out, u64::from(dead.attempts));
        put(out, dead.since_ms);
        put_text(out, dead.last_error);
    });
    put(out, whole.first_leased_ms);
    put(out, whole.tries.len() as u64);
    for tried in &whole.tries {
        put(out, u64::from(tried.number));
        put_text(out, tried.consumer);
        put(out, tried.leased_ms);
        put_text(out, tried.outcome);
    }
    put_option(out, whole.memo.as_ref(), put_memo);
}

fn reason_code(reason: DeadReason) -> u8 {
    match reason {
        DeadReason::MaxAttempts => 1,
        DeadReason::Expired => 2,
        DeadReason::Integrity => 3,
        DeadReason::Rejected => 4,
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) =
            self.bytes.split_at_checked(len).ok_or_else(|| Error::schema("record: it ends too early"))?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn byte(&mut self) -> Result<u8, Error> {
        Ok(self.array::<1>()?[0])
    }

    fn boot_time(&mut self) -> Result<BootTime, Error> {
        let id = u128::from(self.number()?) << 64 | u128::from(self.number()?);
        Ok(BootTime { id, since_ms: self.number()? })
    }

    fn number(&mut self) -> Result<u64, Error> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Error::schema("record: a number has more than 64 bits"))
    }

    fn small(&mut self) -> Result<u32, Error> {
        self.number()?.try_into().map_err(|_| Error::schema("record: a number has more than 32 bits"))
    }

    fn text(&mut self, bytes_max: usize) -> Result<&'a str, Error> {
        let len = self.number()?;
        if len > bytes_max as u64 {
            return Err(Error::schema(format!("record: a text of {len} bytes is over the limit of {bytes_max}")));
        }
        std::str::from_utf8(self.take(len as usize)?).map_err(|_| Error::schema("record: a text is not UTF-8"))
    }

    fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<Option<T>, Error> {
        match self.byte()? {
            0 => Ok(None),
            1 => read(self).map(Some),
            other => Err(Error::schema(format!("record: {other} is neither yes nor no"))),
        }
    }

    fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Result<T, Error>) -> Result<Vec<T>, Error> {
        let len = self.number()?;
        // Every item takes a byte at least, so a length that lies cannot make us reserve more than we were given.
        if len > self.bytes.len().min(ITEMS_MAX) as u64 {
            return Err(Error::schema(format!("record: a list of {len} items is too long")));
        }
        (0..len).map(|_| read(self)).collect()
    }

    fn seqs(&mut self) -> Result<Cow<'a, [Seq]>, Error> {
        self.list(Self::number).map(Cow::Owned)
    }

    fn part(&mut self) -> Result<PartKey, Error> {
        let topic = TopicId(self.small()?);
        let partition = self.number()?.try_into().map_err(|_| Error::schema("record: no partition has this number"))?;
        Ok(PartKey { topic, partition })
    }

    fn reason(&mut self) -> Result<Option<DeadReason>, Error> {
        Ok(match self.byte()? {
            0 => None,
            1 => Some(DeadReason::MaxAttempts),
            2 => Some(DeadReason::Expired),
            3 => Some(DeadReason::Integrity),
            4 => Some(DeadReason::Rejected),
            other => return Err(Error::schema(format!("record: {other} is no reason to be dead"))),
        })
    }

    fn key(&mut self) -> Result<Key, Error> {
        Ok(Key { hash: u128::from_le_bytes(self.array()?), payload: u64::from_le_bytes(self.array()?) })
    }

    fn memo(&mut self) -> Result<Memo, Error> {
        Ok(Memo { key: self.key()?, sent_ms: self.number()?, until_ms: self.number()? })
    }

    fn taken(&mut self) -> Result<Taken<'a>, Error> {
        Ok(Taken {
            part: self.part()?,
            seq: self.number()?,
            sent_ms: self.number()?,
            due_ms: self.number()?,
            body_len: self.small()?,
            group: self.option(|from| from.text(limits::KEY_BYTES_MAX))?,
            key: self.option(|from| Ok((from.key()?, from.number()?)))?,
        })
    }

    fn whole(&mut self) -> Result<Whole<'a>, Error> {
        Ok(Whole {
            part: self.part()?,
            seq: self.number()?,
            sent_ms: self.number()?,
            now_ms: self.number()?,
            body_len: self.small()?,
            group: self.option(|from| from.text(limits::KEY_BYTES_MAX))?,
            attempts: self.small()?,
            fence: self.small()?,
            stand: self.stand()?,
            moved_ms: self.option(Self::number)?,
            dead: self.option(Self::death)?,
            first_leased_ms: self.number()?,
            tries: self.list(Self::tried)?,
            memo: self.option(Self::memo)?,
        })
    }

    fn stand(&mut self) -> Result<Stand, Error> {
        Ok(match self.byte()? {
            0 => Stand::Ready,
            1 => Stand::Freed,
            2 => Stand::Delayed(self.number()?),
            3 => Stand::Leased(self.number()?),
            other => return Err(Error::schema(format!("record: {other} is no state of a message"))),
        })
    }

    fn death(&mut self) -> Result<Death<'a>, Error> {
        let reason = self.reason()?.ok_or_else(|| Error::schema("record: a dead message without a reason"))?;
        Ok(Death {
            reason,
            source: self.part()?,
            attempts: self.small()?,
            since_ms: self.number()?,
            last_error: self.text(limits::REASON_BYTES_MAX)?,
        })
    }

    fn tried(&mut self) -> Result<Tried<'a>, Error> {
        Ok(Tried {
            number: self.small()?,
            consumer: self.text(limits::KEY_BYTES_MAX)?,
            leased_ms: self.number()?,
            outcome: self.text(limits::REASON_BYTES_MAX)?,
        })
    }
}
