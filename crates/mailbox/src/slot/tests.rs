//! Turns that panic, at every point of them, and replies that wait for the log.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use ron_kernel::{Builder, ExitReport, KernelHandle, KernelOptions, Metrics, Snapshot};
use ron_log::{Class, SimDisk};

use super::*;
use crate::engine::lock;
use crate::job::{ShardCall, Turn};
use crate::record::Record;
use crate::shard::{Nack, Recv, Send};
use crate::stage::{Stage, soon};
use crate::types::{DeadReason, Dedup, PartKey, Seq, TopicId, TopicName, TopicSettings};
use crate::{LiveOptions, Mailbox, MailboxOptions, Outgoing, recovery};

fn stage(disk: &SimDisk) -> Stage {
    let options = MailboxOptions { segment_bytes: 64 << 10, disk_bytes_max: 8 << 20, ..MailboxOptions::default() };
    Stage::open(Arc::new(disk.clone()), options, 2)
}

/// A topic and the one its dead letters go to, which another shard owns.
fn jobs_and_grave(stage: &Stage) -> (PartKey, PartKey) {
    let owner = |part| stage.engine().routing.get().value.shard_of(part);
    let graves = (0..20).map(|number| format!("grave{number}"));
    let graves: Vec<(String, PartKey)> =
        graves.map(|name| (name.clone(), stage.make_topic(&name, TopicSettings::default()))).collect();
    for number in 0.. {
        let (grave, part) = &graves[number % graves.len()];
        let settings = TopicSettings { dlq: Some(grave.clone()), ..TopicSettings::default() };
        let jobs = stage.make_topic(&format!("jobs{number}"), settings);
        if owner(jobs) != owner(*part) {
            return (jobs, *part);
        }
    }
    unreachable!("some topics are with different shards")
}

fn send(stage: &Stage, part: PartKey) -> Result<Seq, Error> {
    let seq = stage.engine().numbers.next();
    let sent = stage.on_part(part, move |turn| {
        let (group, key, dedup, delay_ms) = (None, None, Dedup::Topic, None);
        let (now, body) = (turn.now, Bytes::from_static(&[7; 64]));
        let send = Send { part, group, key, dedup, delay_ms, sent_ms: now, seq, body };
        turn.shard.send(now, turn.journal, send)
    });
    sent.map(|sent| sent.seq)
}

/// Numbers and leases of what was received.
fn recv(stage: &Stage, part: PartKey) -> Vec<(Seq, u32)> {
    let received = stage.on_part(part, move |turn| {
        let recv = Recv { max_messages: 10, max_bytes: 1 << 20, visibility_ms: Some(600_000), consumer: "c" };
        let mut leased = Vec::new();
        turn.shard.recv(turn.now, turn.journal, part, recv, &mut leased)?;
        Ok(leased.into_iter().map(|leased| (leased.seq, leased.fence)).collect())
    });
    received.unwrap_or_default()
}

/// A record that changes nothing.
fn idle_record() -> Vec<u8> {
    let mut head = Vec::new();
    Record::Cancel { part: PartKey { topic: TopicId(77), partition: 0 }, seq: 1 }.encode(&mut head);
    head
}

/// What a client knows after the script.
#[derive(Default)]
struct Known {
    sent: BTreeSet<Seq>,
    /// It asked for these to be ended, whatever it was answered.
    ended: BTreeSet<Seq>,
}

/// Shards whose turn panicked are read from the log again, as their workers do it.
async fn rebuild_broken(stage: &Stage) {
    for index in 0..stage.engine().shards.len() {
        if stage.engine().shards[index].shared.slot.is_poisoned() {
            recovery::rebuild(Arc::clone(stage.engine()), index).await.expect("the log is whole");
        }
    }
}

/// A bit of everything: sends, deliveries, acknowledgements, deaths, redrives.
async fn play(stage: &Stage, jobs: PartKey, grave: PartKey, known: &mut Known) {
    for _ in 0..6 {
        known.sent.extend(send(stage, jobs).ok());
        rebuild_broken(stage).await;
    }
    let received = recv(stage, jobs);
    rebuild_broken(stage).await;
    for (place, (seq, fence)) in received.into_iter().enumerate() {
        let _ = match place {
            0 => {
                known.ended.insert(seq);
                stage.on_part(jobs, move |turn| turn.shard.ack(turn.now, turn.journal, jobs, &[(seq, fence)]).remove(0))
            }
            1 | 2 => stage.on_part(jobs, move |turn| {
                let nack = Nack { reason: "no", delay_ms: Some(0), reject: true };
                turn.shard.nack(turn.now, turn.journal, jobs, seq, fence, nack, 0).map(drop)
            }),
            _ => stage.on_part(jobs, move |turn| {
                turn.shard.release_lease(turn.now, turn.journal, jobs, seq, fence)?;
                let mut later = Vec::new();
                turn.shard.browse(jobs, Some(seq), 1, &mut later);
                let dies = later.first().map_or(seq, |summary| summary.seq);
                turn.shard.kill(turn.now, turn.journal, jobs, dies, DeadReason::Rejected, "twice in one turn")?;
                turn.shard.kill(turn.now, turn.journal, jobs, seq, DeadReason::Rejected, "twice in one turn")
            }),
        };
        rebuild_broken(stage).await;
    }
    let buried = recv(stage, grave);
    rebuild_broken(stage).await;
    for (seq, fence) in buried.into_iter().take(2) {
        let _ = stage.on_part(grave, move |turn| {
            turn.shard.release_lease(turn.now, turn.journal, grave, seq, fence)?;
            turn.shard.redrive(turn.now, turn.journal, grave, seq, jobs, 1)
        });
        rebuild_broken(stage).await;
    }
    for (seq, fence) in recv(stage, jobs) {
        known.ended.insert(seq);
        let acked =
            stage.on_part(jobs, move |turn| turn.shard.ack(turn.now, turn.journal, jobs, &[(seq, fence)]).remove(0));
        let _ = acked;
        rebuild_broken(stage).await;
    }
}

/// Where each message is, and how often it was delivered.
fn view(stage: &Stage, parts: [PartKey; 2]) -> BTreeMap<Seq, (PartKey, u32)> {
    let mut seen = BTreeMap::new();
    for part in parts {
        for summary in stage.browse(part) {
            let twice = seen.insert(summary.seq, (part, summary.attempts));
            assert_eq!(twice, None, "{} is in two places", summary.seq);
        }
    }
    seen
}

fn attempts(stage: &Stage, part: PartKey) -> Vec<(Seq, u32)> {
    stage.browse(part).iter().map(|summary| (summary.seq, summary.attempts)).collect()
}

#[tokio::test]
async fn a_panic_at_any_point_of_a_turn_loses_nothing_and_the_shard_goes_on() {
    let mut points = 0;
    loop {
        let disk = SimDisk::new(1);
        let stage = stage(&disk);
        let (jobs, grave) = jobs_and_grave(&stage);
        let mut known = Known::default();
        fault::plant(points);
        play(&stage, jobs, grave, &mut known).await;
        let is_over = fault::take_out();
        rebuild_broken(&stage).await;
        assert_eq!(stage.log().failed(), None, "panic at {points}");
        let seen = view(&stage, [jobs, grave]);
        for seq in known.sent.difference(&known.ended) {
            assert!(seen.contains_key(seq), "panic at {points}: message {seq} of {seen:?}");
        }
        let next = send(&stage, jobs).expect("the shard goes on");
        assert!(stage.browse(jobs).iter().any(|summary| summary.seq == next));
        let seen = view(&stage, [jobs, grave]);
        stage.log().flush().expect("the log goes on");
        let again = self::stage(&disk.crash(0));
        assert_eq!(view(&again, [jobs, grave]), seen, "panic at {points}: what a restart finds is what is served");
        if is_over {
            break;
        }
        points += 1;
    }
    assert!(points > 60, "{points}");
}

#[tokio::test]
async fn no_read_shows_a_handover_that_is_not_durable() {
    let disk = SimDisk::new(1);
    let stage = stage(&disk);
    let (jobs, grave) = jobs_and_grave(&stage);
    let seq = send(&stage, jobs).expect("sent");
    // The shard of the grave has nothing that is not durable.
    assert!(stage.browse(grave).is_empty());
    stage.log().flush().expect("the disk works");
    stage
        .on_part(jobs, move |turn| turn.shard.kill(turn.now, turn.journal, jobs, seq, DeadReason::Rejected, "x"))
        .expect("it is there");
    let index = stage.engine().routing.get().value.shard_of(grave);
    let (work, mut answer) = ShardCall::new(0, move |turn: &mut Turn<'_>| turn.shard.is_held(grave, seq));
    drop(stage.engine().ask_and_settle(index, Job::Do(work)).expect("it is asked"));
    assert!(answer.try_recv().is_err(), "it would tell of what a crash takes back");
    let durable = stage.log().flush().expect("the disk works");
    let handle = &stage.engine().shards[index];
    let replies = lock(&handle.shared.slot).pending.take_durable(durable);
    replies.into_iter().for_each(Reply::send);
    assert_eq!(answer.try_recv(), Ok(true));
}

#[tokio::test]
async fn a_lease_that_comes_back_while_the_disk_is_behind_is_ended_later() {
    let options = MailboxOptions { disk_bytes_max: 1 << 30, ..MailboxOptions::default() };
    let stage = Stage::open(Arc::new(SimDisk::new(1)), options, 2);
    let jobs = stage.make_topic("jobs", TopicSettings::default());
    send(&stage, jobs).expect("sent");
    let (seq, fence) = recv(&stage, jobs)[0];
    let mut appender = stage.log().appender();
    for bytes in [1 << 20, 1 << 10, 0] {
        while appender.append(Class::Settle, &idle_record(), &vec![0; bytes]).is_ok() {}
    }
    drop(appender);
    let index = stage.engine().routing.get().value.shard_of(jobs);
    stage.engine().shards[index].returned.put([(jobs, seq, fence)]);
    assert_eq!(attempts(&stage, jobs), [(seq, 1)], "there is no room to say so");
    stage.log().flush().expect("the disk works");
    assert_eq!(attempts(&stage, jobs), [(seq, 0)], "a delivery to nobody");
}

#[tokio::test]
async fn a_turn_ends_a_bounded_part_of_the_leases_that_came_back() {
    let stage = stage(&SimDisk::new(1));
    let jobs = stage.make_topic("jobs", TopicSettings::default());
    let leased = stage.on_part(jobs, move |turn| {
        let mut leased = Vec::new();
        for _ in 0..1_100 {
            let (group, key, dedup, delay_ms) = (None, None, Dedup::Topic, None);
            let (now, seq, body) = (turn.now, turn.engine.numbers.next(), Bytes::from_static(&[7; 64]));
            let send = Send { part: jobs, group, key, dedup, delay_ms, sent_ms: now, seq, body };
            turn.shard.send(now, turn.journal, send)?;
            let recv = Recv { max_messages: 1, max_bytes: 1 << 20, visibility_ms: Some(600_000), consumer: "c" };
            turn.shard.recv(now, turn.journal, jobs, recv, &mut leased)?;
        }
        Ok(leased)
    });
    let leases = leased.expect("leased").into_iter().map(|leased| (jobs, leased.seq, leased.fence));
    let index = stage.engine().routing.get().value.shard_of(jobs);
    stage.engine().shards[index].returned.put(leases);
    let leased = || stage.on_part(jobs, move |turn| Ok(turn.shard.stats(jobs).leased)).expect("counted");
    assert_eq!((leased(), leased()), (76, 0));
}

/// A mailbox whose tasks run.
struct Live {
    mailbox: Mailbox,
    kernel: KernelHandle,
    running: tokio::task::JoinHandle<ExitReport>,
}

impl Live {
    #[expect(clippy::disallowed_methods, reason = "a test has no kernel to run its kernel on")]
    async fn start() -> Live {
        let mut builder = Builder::new(KernelOptions::default(), Metrics::new());
        let live = Snapshot::new(LiveOptions::default());
        let mailbox = crate::install(&mut builder, MailboxOptions::default(), live);
        let kernel = builder.build().expect("a valid plan");
        let handle = kernel.handle();
        let running = tokio::spawn(kernel.run());
        let ready = async { handle.watch_status().wait_for(|status| status.is_ready()).await.map(drop) };
        soon().run("test", ready).await.expect("ready in time").expect("the kernel lives");
        Live { mailbox, kernel: handle, running }
    }

    /// Sends until it is answered well: while a shard is read again, callers are told that nobody knows.
    async fn send(&self) {
        soon().run("test", self.try_to_send()).await.expect("the shard is read again in time");
    }

    async fn try_to_send(&self) {
        let (by, name) = (ron_auth::Subject::operator("test"), "t".parse::<TopicName>().expect("a name"));
        loop {
            let message = Outgoing { payload: "x".into(), ..Outgoing::default() };
            match self.mailbox.send(&by, &name, message, soon()).await {
                Ok(_) => return,
                Err(error) => assert!(matches!(error.kind, Kind::Canceled | Kind::Degraded | Kind::Busy), "{error}"),
            }
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_panics_costs_its_caller_the_answer_and_no_other_shard_anything() {
    let live = Live::start().await;
    live.send().await;
    for (index, by_worker) in [(0, false), (1, false), (0, true), (1, true)] {
        let (work, answer) = ShardCall::new(0, |turn: &mut Turn<'_>| -> () {
            turn.journal.append(Class::Settle, &idle_record(), &[]).expect("there is room");
            panic!("a defect of the mailbox");
        });
        let engine = &live.mailbox.engine;
        // The caller lives, and learns that nobody knows.
        if by_worker {
            engine.shards[index].jobs.offer(Job::Do(work)).expect("there is room");
        } else {
            let _ = engine.ask_and_settle(index, Job::Do(work));
        }
        assert!(answer.await.is_err());
        live.send().await;
    }
    assert_eq!(live.mailbox.engine.opened().expect("opened").log.failed(), None);
    live.kernel.drain().await.expect("the supervisor listens");
    assert_eq!(live.running.await.expect("it ends").code, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_that_leaves_the_log_in_the_middle_ends_the_process_with_its_reason() {
    let live = Live::start().await;
    live.send().await;
    let log = live.mailbox.engine.opened().expect("opened").log.clone();
    // A record that belongs to no shard: nobody reads it again, so that memory and log would differ from here on.
    let died = std::thread::spawn(move || {
        let mut appender = log.appender();
        appender.append(Class::Settle, &idle_record(), &[]).expect("there is room");
        panic!("before the table was changed");
    });
    assert!(died.join().is_err());
    let ended = soon().run("test", live.running).await.expect("it leaves by itself").expect("it ends");
    assert_eq!(ended.code, 70, "{ended:?}");
}
