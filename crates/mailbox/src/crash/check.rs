//! A disk after a power cut, opened and held against what was promised.

use std::collections::BTreeMap;

use ron_log::SimDisk;

use super::memory::{Memory, Model, View};
use super::world::{World, open_as, routing};
use crate::moves::MoveTask;
use crate::recovery::Recovered;
use crate::topics::Topics;
use crate::types::{Content, Seq, TopicId, TopicSettings};

/// Everything found, message by message. A body that cannot be read is left out and counted.
pub fn found_in(recovered: &Recovered, shards: usize) -> (BTreeMap<Seq, View>, Vec<Seq>) {
    let (mut found, mut unreadable) = (BTreeMap::new(), Vec::new());
    for (index, shard) in recovered.shards.iter().enumerate() {
        let mut summaries = Vec::new();
        for part in shard.parts() {
            assert_eq!(routing(shards).shard_of(part), index, "{part:?} is with its owner");
            shard.browse(part, None, usize::MAX, &mut summaries);
        }
        for one in summaries {
            let Content::Cold(position) = one.content else { panic!("nothing is hot after a start") };
            let Ok(record) = recovered.opened.log.read(position) else {
                unreadable.push(one.seq);
                continue;
            };
            let dead = one.dead.map(|dead| (dead.reason, dead.attempts, dead.last_error.to_string()));
            let (group, body) = (one.group.map(|group| group.to_string()), record.body.to_vec());
            let (part, attempts, state, due_ms) = (one.part, one.attempts, one.state, one.due_ms);
            let view = View { part, group, body, attempts, state, due_ms, dead };
            assert!(found.insert(one.seq, view).is_none(), "{} is there twice", one.seq);
        }
    }
    (found, unreadable)
}

fn topics_in(topics: &Topics) -> BTreeMap<String, (TopicId, TopicSettings)> {
    let all = topics.list(None, "", usize::MAX).into_iter();
    all.map(|view| (view.name.to_string(), (topics.get(&view.name).unwrap().id, (*view.settings).clone()))).collect()
}

/// What is being moved out of each topic, and what was.
fn moves_in(topics: &Topics) -> BTreeMap<TopicId, Vec<MoveTask>> {
    let all = topics.list(None, "", usize::MAX).into_iter().map(|view| topics.get(&view.name).unwrap());
    let with_dead_letters = all.flat_map(|topic| [Some(topic.id), topic.dead_letters().map(|dead| dead.id)]);
    with_dead_letters.flatten().map(|id| (id, topics.moves.of(id))).collect()
}

/// Opens the disk with this many shards; the mailbox goes on from what was found. Also how many promises were held.
pub fn check(disk: &SimDisk, memory: &Memory, shards: usize, what: &str) -> (World, usize) {
    let topics = Topics::default();
    let recovered = open_as(disk, &topics, shards, memory).unwrap_or_else(|error| panic!("{what}: {error}"));
    let recovery = &recovered.opened.recovery;
    let lsn = recovery.last.0;
    let appended = memory.past.last().map_or(0, |(lsn, _)| *lsn);
    assert!(lsn >= memory.answered, "{what}: answered up to {}, found up to {lsn}", memory.answered);
    let damage = (recovery.quarantined_records, recovery.segments_missing, recovery.chain_breaks);
    assert_eq!(damage, (0, 0, 0), "{what}: a power cut is not damage");
    assert!(!recovery.has_losses(), "{what}: a false alarm; {recovery:?}");
    let (found, unreadable) = found_in(&recovered, shards);
    assert!(unreadable.is_empty(), "{what}: the bodies of {unreadable:?} cannot be read");
    let candidates = memory.candidates(lsn);
    let model = pick(&candidates, &found, &format!("{what}: found {lsn}, answered {}, of {appended}", memory.answered));
    let promises = memory.ledger.check(&found, what);
    let there = topics_in(&topics);
    assert!(candidates.iter().any(|model| model.topics == there), "{what}: topics {there:?}");
    let moves = moves_in(&topics);
    let are_so = |model: &Model| model.moves.iter().all(|(id, tasks)| moves.get(id).unwrap_or(&Vec::new()) == tasks);
    assert!(candidates.iter().any(are_so), "{what}: moves {moves:?}");
    let known = memory.ledger.sent.iter().chain(&memory.ledger.gone).max().copied().unwrap_or(0);
    assert!(recovered.seq_max >= known, "{what}: number {known} would be given out again");
    let taken = topics.numbers_taken().0;
    assert!(taken >= memory.ledger.topic_max, "{what}: a topic's number would be given out again after {taken}");
    let memory = memory.resume(lsn, model, &found);
    (World::resume(recovered, topics, routing(shards), memory), promises)
}

/// The state that was found, put together from what each message may be.
fn pick(candidates: &[Model], found: &BTreeMap<Seq, View>, what: &str) -> Model {
    let (before, after) = (&candidates[0], &candidates[candidates.len() - 1]);
    let mut model = after.clone();
    let all = |model: &Model| model.reference.messages.iter().map(|message| message.seq).collect::<Vec<_>>();
    let mut seqs: Vec<Seq> = [all(before), all(after)].concat();
    seqs.sort_unstable();
    seqs.dedup();
    assert!(found.keys().all(|seq| seqs.contains(seq)), "{what}: {:?} of {seqs:?}", found.keys());
    model.reference.messages.clear();
    for seq in seqs {
        let is_so = |model: &&Model| model.view(seq).as_ref() == found.get(&seq);
        let Some(of) = candidates.iter().find(is_so) else {
            let views: Vec<_> = candidates.iter().map(|model| model.view(seq)).collect();
            panic!("{what}: {seq} is {:?}, must be one of {views:?}", found.get(&seq));
        };
        if let Some(message) = of.reference.messages.iter().find(|message| message.seq == seq) {
            model.reference.ended.remove(&seq);
            model.reference.messages.push(message.clone());
            if let Some(error) = of.errors.get(&seq) {
                model.errors.insert(seq, error.clone());
            }
        }
    }
    model
}
