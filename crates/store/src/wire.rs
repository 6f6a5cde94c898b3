//! Messages of the index protocol `/macronode/index/1` as bytes: what is asked of a peer, and what it answers.
//!
//! A request is read to [`REQUEST_BYTES_MAX`] bytes and an answer to [`ANSWER_BYTES_MAX`]; how a message is delimited
//! on its stream is for the codec of the network to say. A request is cancelled by resetting its stream.
//!
//! | request | after its number |
//! |---|---|
//! | 1 ask | budget in ms, question |
//! | 2 keep | count, then records with their lengths |
//! | 3 prove | budget in ms, BLAKE3 digest 32, number that draws a chunk |
//!
//! | question | after its number |
//! |---|---|
//! | 1 providers | key 32 |
//! | 2 name | owner 32, label |
//! | 3 ipns, 4 peer | peer id |
//!
//! | answer | after its number |
//! |---|---|
//! | 1 reply | count, records with their lengths, count, ids of closer peers |
//! | 2 kept | records that are now kept, records that are not |
//! | 3 refused | reason 1 |
//! | 4 possession | 0, or 1 and then length, chunk drawn, hashes beside its way, last chunk, hashes beside its way |

use ron_types::limits::records::{CLOSER_MAX, LABEL_BYTES_MAX, WIRE_RECORDS_MAX};

use crate::bytes_io::{Malformed, Reader, put_bytes, put_number};
use crate::name::is_label;
use crate::peer::PEER_ID_BYTES_MAX;
use crate::{Key, PeerId, Possession, PublicKey, Record};

pub use ron_types::limits::records::{ANSWER_BYTES_MAX, REQUEST_BYTES_MAX};

/// Name of the protocol.
pub const PROTOCOL: &str = "/macronode/index/1";

/// What can be asked of a peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Question {
    /// Provider records of a key.
    Providers(Key),
    /// The record of a name.
    Name {
        /// Key whose namespace it is in.
        owner: PublicKey,
        /// Label in the namespace.
        label: String,
    },
    /// The IPNS record of a name.
    Ipns(PeerId),
    /// Where a peer is reached.
    Peer(PeerId),
}

/// What a peer knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Records that answer the question, and peer records of closer peers so that they can be reached.
    pub records: Vec<Record>,
    /// Peers nearer to the key than the one that answers.
    pub closer: Vec<PeerId>,
}

/// Reason why a peer gave no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum AskError {
    /// There is no connection to the peer, and none came to be.
    #[error("the peer is not reachable")]
    Unreachable,
    /// The connection or the stream ended before the answer.
    #[error("the peer went away before it answered")]
    Closed,
    /// The budget was over before the answer.
    #[error("the peer did not answer in time")]
    TimedOut,
    /// The peer has too much to do.
    #[error("the peer is busy")]
    Busy,
    /// The peer answers no such question, or not to us.
    #[error("the peer refused")]
    Refused,
    /// What came is no answer.
    #[error("the peer answered something that cannot be read")]
    Malformed,
    /// The peer does not speak the protocol.
    #[error("the peer does not speak {PROTOCOL}")]
    Unsupported,
}

/// A message to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A question, and how long the answer is of use.
    Ask {
        /// What is asked.
        question: Question,
        /// Milliseconds that the asker waits.
        budget_ms: u32,
    },
    /// The peer is to show a chunk of content that it keeps.
    Prove {
        /// BLAKE3 digest of the content.
        digest: [u8; 32],
        /// Decides which chunk.
        draw: u64,
        /// Milliseconds that the asker waits.
        budget_ms: u32,
    },
    /// Records that the peer is to keep.
    Keep {
        /// At most [`WIRE_RECORDS_MAX`].
        records: Vec<Record>,
    },
}

/// What a peer answers to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To a question.
    Reply(Reply),
    /// To records to keep.
    Kept {
        /// Records that are kept now, counting those that were known before.
        kept: u32,
        /// Records that are not kept: not valid, too far away, or no room.
        refused: u32,
    },
    /// To content to be proved; none if the peer does not keep it, which is no lie: it may be had from it elsewhere.
    Possession(Option<Box<Possession>>),
    /// To any request: no.
    Refused(AskError),
}

/// The bytes are no message of the protocol, or the message does not fit into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a message of {PROTOCOL}")]
pub struct WireError;

impl From<Malformed> for WireError {
    fn from(_: Malformed) -> Self {
        WireError
    }
}

impl Question {
    /// Position in the key space that the question is about: whom to ask.
    pub fn key(&self) -> Key {
        match self {
            Question::Providers(key) => *key,
            Question::Name { owner, label } => Key::of_owned_label(owner, label),
            Question::Ipns(name) => Key::of_ipns(name),
            Question::Peer(peer) => peer.key(),
        }
    }

    /// Whether a record is about what was asked. Its signature is another matter.
    pub fn is_answered_by(&self, record: &Record) -> bool {
        match (self, record) {
            (Question::Providers(key), Record::Provider(record)) => record.key == *key,
            (Question::Name { owner, label }, Record::Name(record)) => record.owner == *owner && record.label == *label,
            (Question::Ipns(name), Record::Ipns(record)) => record.name() == name,
            (Question::Peer(peer), Record::Peer(record)) => record.peer == *peer,
            _ => false,
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Question::Providers(key) => {
                out.push(1);
                out.extend_from_slice(&key.0);
            }
            Question::Name { owner, label } => {
                out.push(2);
                out.extend_from_slice(&owner.0);
                put_bytes(out, label.as_bytes());
            }
            Question::Ipns(name) => {
                out.push(3);
                put_bytes(out, name.as_bytes());
            }
            Question::Peer(peer) => {
                out.push(4);
                put_bytes(out, peer.as_bytes());
            }
        }
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        match reader.byte()? {
            1 => Ok(Question::Providers(Key(reader.array()?))),
            2 => {
                let owner = PublicKey(reader.array()?);
                let label = reader.text(LABEL_BYTES_MAX)?.to_owned();
                if is_label(&label) { Ok(Question::Name { owner, label }) } else { Err(WireError) }
            }
            3 => Ok(Question::Ipns(take_peer(reader)?)),
            4 => Ok(Question::Peer(take_peer(reader)?)),
            _ => Err(WireError),
        }
    }
}

impl Request {
    /// Requests to keep these records, as few as can hold them.
    pub fn to_keep(records: Vec<Record>) -> Vec<Request> {
        let mut requests = Vec::new();
        let (mut batch, mut bytes) = (Vec::new(), KEEP_FIXED_BYTES);
        for record in records {
            let record_bytes = record.encode().len() + LENGTH_BYTES_MAX;
            if batch.len() == WIRE_RECORDS_MAX || (bytes + record_bytes > REQUEST_BYTES_MAX && !batch.is_empty()) {
                requests.push(Request::Keep { records: std::mem::take(&mut batch) });
                bytes = KEEP_FIXED_BYTES;
            }
            bytes += record_bytes;
            batch.push(record);
        }
        if !batch.is_empty() {
            requests.push(Request::Keep { records: batch });
        }
        requests
    }

    /// Binary form, if it is within the bounds of the protocol.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        let mut bytes = Vec::with_capacity(64);
        match self {
            Request::Ask { question, budget_ms } => {
                bytes.push(1);
                put_number(&mut bytes, u64::from(*budget_ms));
                question.put(&mut bytes);
            }
            Request::Prove { digest, draw, budget_ms } => {
                bytes.push(3);
                put_number(&mut bytes, u64::from(*budget_ms));
                bytes.extend_from_slice(digest);
                put_number(&mut bytes, *draw);
            }
            Request::Keep { records } => {
                bytes.push(2);
                put_number(&mut bytes, records.len() as u64);
                records.iter().for_each(|record| put_bytes(&mut bytes, &record.encode()));
            }
        }
        let fits = bytes.len() <= REQUEST_BYTES_MAX && !matches!(self, Request::Keep { records } if !may_keep(records));
        if fits { Ok(bytes) } else { Err(WireError) }
    }

    /// The request of this binary form. Signatures of records are not looked at.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        if bytes.len() > REQUEST_BYTES_MAX {
            return Err(WireError);
        }
        let mut reader = Reader::new(bytes);
        let request = match reader.byte()? {
            1 => {
                let budget_ms = u32::try_from(reader.number()?).map_err(|_| WireError)?;
                Request::Ask { question: Question::take(&mut reader)?, budget_ms }
            }
            2 => {
                let records = take_records(&mut reader)?;
                if !may_keep(&records) {
                    return Err(WireError);
                }
                Request::Keep { records }
            }
            3 => {
                let budget_ms = take_u32(&mut reader)?;
                Request::Prove { digest: reader.array()?, draw: reader.number()?, budget_ms }
            }
            _ => return Err(WireError),
        };
        reader.end()?;
        Ok(request)
    }
}

impl Answer {
    /// Binary form. Of a reply that is over the bounds of the protocol, the last records and peers are left off: part
    /// of an answer is an answer.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64);
        match self {
            Answer::Reply(reply) => reply.put(&mut bytes),
            Answer::Kept { kept, refused } => {
                bytes.push(2);
                put_number(&mut bytes, u64::from(*kept));
                put_number(&mut bytes, u64::from(*refused));
            }
            Answer::Refused(reason) => bytes.extend_from_slice(&[3, reason.number()]),
            Answer::Possession(proof) => {
                bytes.extend_from_slice(&[4, u8::from(proof.is_some())]);
                proof.iter().for_each(|proof| proof.put(&mut bytes));
            }
        }
        bytes
    }

    /// The answer of this binary form. Signatures of records are not looked at.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        if bytes.len() > ANSWER_BYTES_MAX {
            return Err(WireError);
        }
        let mut reader = Reader::new(bytes);
        let answer = match reader.byte()? {
            1 => Answer::Reply(Reply::take(&mut reader)?),
            2 => Answer::Kept { kept: take_u32(&mut reader)?, refused: take_u32(&mut reader)? },
            4 => Answer::Possession(match reader.byte()? {
                0 => None,
                1 => Some(Box::new(Possession::take(&mut reader)?)),
                _ => return Err(WireError),
            }),
            3 => Answer::Refused(AskError::from_number(reader.byte()?).ok_or(WireError)?),
            _ => return Err(WireError),
        };
        reader.end()?;
        Ok(answer)
    }
}

impl Reply {
    fn put(&self, out: &mut Vec<u8>) {
        let closer = &self.closer[..self.closer.len().min(CLOSER_MAX)];
        let room = ANSWER_BYTES_MAX - REPLY_FIXED_BYTES - closer.len() * (PEER_ID_BYTES_MAX + 1);
        let mut records = Vec::new();
        let mut count = 0;
        for record in self.records.iter().take(WIRE_RECORDS_MAX) {
            let bytes = record.encode();
            if records.len() + bytes.len() + LENGTH_BYTES_MAX > room {
                break;
            }
            put_bytes(&mut records, &bytes);
            count += 1;
        }
        out.push(1);
        put_number(out, count);
        out.extend_from_slice(&records);
        put_number(out, closer.len() as u64);
        closer.iter().for_each(|peer| put_bytes(out, peer.as_bytes()));
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let records = take_records(reader)?;
        let count = reader.count(CLOSER_MAX)?;
        let mut closer = Vec::with_capacity(count);
        for _ in 0..count {
            closer.push(take_peer(reader)?);
        }
        Ok(Reply { records, closer })
    }
}

impl AskError {
    const ALL: [AskError; 7] = [
        AskError::Unreachable,
        AskError::Closed,
        AskError::TimedOut,
        AskError::Busy,
        AskError::Refused,
        AskError::Malformed,
        AskError::Unsupported,
    ];

    fn number(self) -> u8 {
        self as u8
    }

    fn from_number(number: u8) -> Option<Self> {
        AskError::ALL.get(usize::from(number)).copied()
    }
}

/// Length of a record before it: at most three bytes, as a request has 64 KiB and an answer 256.
const LENGTH_BYTES_MAX: usize = 3;
const KEEP_FIXED_BYTES: usize = 2;
const REPLY_FIXED_BYTES: usize = 3;

fn may_keep(records: &[Record]) -> bool {
    (1..=WIRE_RECORDS_MAX).contains(&records.len())
}

fn take_u32(reader: &mut Reader<'_>) -> Result<u32, WireError> {
    u32::try_from(reader.number()?).map_err(|_| WireError)
}

fn take_peer(reader: &mut Reader<'_>) -> Result<PeerId, WireError> {
    PeerId::from_bytes(reader.bytes(PEER_ID_BYTES_MAX)?).map_err(|_| WireError)
}

fn take_records(reader: &mut Reader<'_>) -> Result<Vec<Record>, WireError> {
    let count = reader.count(WIRE_RECORDS_MAX)?;
    let mut records = Vec::new();
    for _ in 0..count {
        records.push(Record::decode(reader.bytes(REQUEST_BYTES_MAX)?).map_err(|_| WireError)?);
    }
    Ok(records)
}
