//! What reclaiming asks for, copies and waits for.

use ron_auth::Subject;
use ron_log::{Class, Disk as _, SimDisk};

use super::*;
use crate::job::{Job, ShardCall, Turn};
use crate::record::Record;
use crate::stage::{Stage, soon};
use crate::types::{PartKey, TopicId, TopicName, TopicSettings};
use crate::{LogLocation, MailboxOptions, Outgoing, Receive};

const SEGMENT_BYTES: u32 = 16 << 10;

fn stage(disk: &SimDisk) -> Stage {
    let options = MailboxOptions { segment_bytes: SEGMENT_BYTES, disk_bytes_max: 8 << 20, ..MailboxOptions::default() };
    Stage::open(Arc::new(disk.clone()), options, 2)
}

/// As [`stage`], with what a log has in files only: segments made ahead and sidecars.
fn stage_in_files(disk: &SimDisk, disk_bytes_max: u64) -> Stage {
    let location = LogLocation::Directory("simulated".into());
    let options =
        MailboxOptions { location, segment_bytes: SEGMENT_BYTES, disk_bytes_max, ..MailboxOptions::default() };
    Stage::open(Arc::new(disk.clone()), options, 2)
}

/// Sends with a key if `keyed` says so; nobody waits for the answers, which come when the log is flushed.
async fn send(stage: &Stage, topic: &str, count: usize, keyed: impl Fn(usize) -> bool) {
    let topic: TopicName = topic.parse().expect("a name");
    for number in 0..count {
        let idem_key = keyed(number).then(|| format!("k{number}"));
        let message = Outgoing { payload: vec![b'x'; 200].into(), idem_key, ..Outgoing::default() };
        answered(stage, stage.mailbox.send(&Subject::operator("test"), &topic, message, soon())).await.expect("sent");
    }
}

/// Receives and acknowledges this many.
async fn consume(stage: &Stage, topic: &str, count: usize) {
    let topic: TopicName = topic.parse().expect("a name");
    let mut left = count;
    while left > 0 {
        let (visibility_ms, consumer) = (Some(600_000), "test".to_owned());
        let receive = Receive { max_messages: left.min(100), max_bytes: 1 << 20, visibility_ms, wait_ms: 0, consumer };
        let received = answered(stage, stage.mailbox.recv(&crate::running::anybody(), &topic, receive, soon()))
            .await
            .expect("received");
        assert!(!received.is_empty(), "{left} of {count} are left");
        left -= received.len();
        let receipts = received.iter().map(|delivery| delivery.receipt).collect();
        assert!(answered(stage, stage.mailbox.ack(receipts, soon())).await.iter().all(Result::is_ok));
    }
}

/// Waits for an answer that comes once the log is durable.
async fn answered<F: Future>(stage: &Stage, asked: F) -> F::Output {
    let mut asked = std::pin::pin!(asked);
    loop {
        if let std::task::Poll::Ready(answer) = futures_util::poll!(&mut asked) {
            return answer;
        }
        let durable = stage.log().flush().expect("the disk works");
        for handle in &stage.engine().shards {
            let replies = crate::engine::lock(&handle.shared.slot).pending.take_durable(durable);
            replies.into_iter().for_each(crate::slot::Reply::send);
        }
        tokio::task::yield_now().await;
    }
}

/// The file of a segment is lost, so that reading it would fail.
fn lose_file(disk: &SimDisk, segment: u32) {
    for ending in ["log", "idx"] {
        let _ = disk.remove(&format!("{segment:08}.{ending}"));
    }
}

#[tokio::test]
async fn segments_in_which_nothing_is_needed_go_unread() {
    let disk = SimDisk::new(1);
    let stage = stage(&disk);
    send(&stage, "t", 1_500, |_| false).await;
    consume(&stage, "t", 1_500).await;
    let segments = stage.log().usage().segments;
    // More than are kept open, so that the oldest would have to be opened again.
    assert!(segments > 20, "{segments}");
    let oldest = stage.log().reclaimable().expect("nothing in it is needed");
    lose_file(&disk, oldest);
    Reclaimer::default().look(stage.engine(), stage.log()).await;
    let left = stage.log().usage().segments;
    assert!(left <= 2, "{left} of {segments} are left after one look");
}

#[tokio::test]
async fn only_what_is_needed_of_a_segment_is_asked_for() {
    let disk = SimDisk::new(1);
    let stage = stage(&disk);
    send(&stage, "slow", 1, |_| false).await;
    send(&stage, "keyed", 20, |number| number % 2 == 0).await;
    send(&stage, "t", 100, |_| false).await;
    consume(&stage, "keyed", 20).await;
    consume(&stage, "t", 100).await;
    let needed = needed_of(stage.engine(), stage.log(), 1).expect("it can be read");
    assert_eq!(needed.len(), 11, "the message that is there, and ten keys");
    consume(&stage, "slow", 1).await;
    send(&stage, "t", 100, |_| false).await;
    assert!(stage.log().is_dead(1));
    let needed = needed_of(stage.engine(), stage.log(), 1).expect("it can be read");
    assert_eq!(needed.len(), 10, "keys outlive their messages");
}

#[tokio::test]
async fn stragglers_and_keys_are_copied_and_survive() {
    let disk = SimDisk::new(1);
    let stage = stage(&disk);
    send(&stage, "slow", 3, |_| true).await;
    send(&stage, "t", 1_500, |_| false).await;
    consume(&stage, "slow", 1).await;
    consume(&stage, "t", 1_500).await;
    Reclaimer::default().look(stage.engine(), stage.log()).await;
    assert!(stage.log().usage().segments <= 3, "{:?}", stage.log().usage());
    stage.log().flush().expect("the disk works");
    let again = self::stage(&disk.crash(0));
    let topic = again.engine().topics.expect(&"slow".parse().expect("a name")).expect("it is still there");
    let held = again.browse(PartKey { topic: topic.id, partition: 0 });
    assert_eq!(held.len(), 2, "{held:?}");
    let keyed = Outgoing { payload: vec![b'x'; 200].into(), idem_key: Some("k0".to_owned()), ..Outgoing::default() };
    let by = Subject::operator("test");
    let sent = answered(&again, again.mailbox.send(&by, &topic.name, keyed, soon())).await.expect("answered");
    assert!(sent.duplicate, "the key of the message that is gone");
}

#[tokio::test]
async fn a_segment_that_nobody_needs_does_not_stay_for_a_release_that_was_lost() {
    let disk = SimDisk::new(1);
    let stage = stage(&disk);
    // As a turn that panicked leaves it: a body in the log that no shard holds and nobody released.
    let mut head = Vec::new();
    Record::Cancel { part: PartKey { topic: TopicId(77), partition: 0 }, seq: 1 }.encode(&mut head);
    stage.log().appender().append(Class::Data, &head, &[0; 100]).expect("there is room");
    send(&stage, "t", 400, |_| false).await;
    consume(&stage, "t", 400).await;
    assert!(!stage.log().is_dead(1));
    let mut reclaimer = Reclaimer::default();
    for _ in 0..4 {
        reclaimer.look(stage.engine(), stage.log()).await;
    }
    assert!(stage.log().usage().segments <= 2, "{:?}", stage.log().usage());
}

/// Fills the log with records that say nothing new, until not even the shortest copy finds room.
fn fill(log: &Log) {
    let mut head = Vec::new();
    Record::TopicNumbers { taken: TopicId(1) }.encode(&mut head);
    while log.appender().append(Class::Copy, &head, &[]).is_ok() {
        if log.usage().gathered_bytes > 4096 {
            log.flush().expect("the device has room for what is taken");
        }
    }
    log.flush().expect("the device has room for what is taken");
}

#[tokio::test]
async fn a_segment_stays_until_the_numbers_that_were_given_out_are_written_down() {
    let disk = SimDisk::new(1);
    let stage = stage_in_files(&disk, 8 << 20);
    stage.make_topic("t", TopicSettings::default());
    let gone = stage.make_topic("passing", TopicSettings::default()).topic;
    stage.engine().remove_topic(&"passing".parse().expect("a name"), None).expect("nobody uses it");
    send(&stage, "t", 200, |_| false).await;
    consume(&stage, "t", 200).await;
    let (engine, log) = (stage.engine(), stage.log());
    let segment = log.reclaimable().expect("nothing in it is needed");
    let mut reclaim = Reclaim::begin(engine, log, segment).await.expect("there is room");
    let bytes = disk.names().into_iter().filter_map(|name| disk.bytes_of(&name)).map(|bytes| bytes.len() as u64);
    disk.limit_bytes(Some(bytes.sum::<u64>() + 6 * u64::from(SEGMENT_BYTES)));
    fill(log);
    let mut pace = Pace::default();
    let refused = reclaim.run(engine, log, &mut pace).await.expect_err("not even the mark finds room");
    assert_eq!(refused.kind, Kind::Busy, "{refused}");
    disk.limit_bytes(None);
    log.look_for_room();
    log.flush().expect("the device has room again");
    reclaim.run(engine, log, &mut pace).await.expect("now the mark finds room");
    let again = stage_in_files(&disk.crash(0), 8 << 20);
    let taken = again.engine().topics.numbers_taken();
    assert!(taken >= gone, "{gone:?} would be given again after {taken:?}");
}

/// The bytes of a message are where the medium has gone bad.
fn spoil(disk: &SimDisk, stage: &Stage, part: PartKey) {
    let held = stage.turn(0, move |turn| turn.shard.positions().collect::<Vec<_>>());
    let other = stage.turn(1, move |turn| turn.shard.positions().collect::<Vec<_>>());
    let all = [held, other].into_iter().flat_map(|positions| positions.expect("the shard is free"));
    let (.., position) = all.into_iter().find(|(of, ..)| *of == part).expect("it holds a message");
    let at = position.offset as usize;
    disk.fail_reads(&format!("{:08}.log", position.segment), at..at + position.len as usize);
}

#[tokio::test]
async fn a_message_that_the_disk_does_not_give_is_lost_before_the_log_refuses_everybody_for_ever() {
    let disk = SimDisk::new(1);
    let stage = stage_in_files(&disk, 256 << 10);
    let slow = stage.make_topic("slow", TopicSettings::default());
    send(&stage, "slow", 1, |_| false).await;
    // Enough to begin another segment, so that this one has its sidecar.
    send(&stage, "t", 60, |_| false).await;
    consume(&stage, "t", 60).await;
    spoil(&disk, &stage, slow);
    let (mut reclaimer, mut used) = (Reclaimer::default(), 0);
    while stage.browse(slow).len() == 1 {
        used = stage.log().usage().bytes_total;
        send(&stage, "t", 4, |_| false).await;
        consume(&stage, "t", 4).await;
        for _ in 0..10 {
            reclaimer.look(stage.engine(), stage.log()).await;
        }
    }
    let usage = stage.log().usage();
    assert!(used >= usage.data_bytes_max / 10 * 9, "with room it may take its time to be read: {used} of {usage:?}");
    assert_eq!(usage.shortage, None);
    assert!(usage.segments <= 2, "{usage:?}");
}

#[tokio::test]
async fn a_full_queue_of_a_shard_holds_up_nobody_who_has_time() {
    let disk = SimDisk::new(1);
    let stage = stage(&disk);
    let job = || Job::Do(ShardCall::new(0, |_: &mut Turn<'_>| ()).0);
    while stage.engine().shards[0].jobs.offer(job()).is_ok() {}
    let mut asking = std::pin::pin!(stage.engine().ask_when_free(0, job(), soon()));
    {
        let _held = crate::engine::lock(&stage.engine().shards[0].shared.slot);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(asking.as_mut().poll(&mut context).is_pending(), "it waits");
    }
    asking.await.expect("the shard is free");
}

#[test]
fn tries_become_rare_and_never_end() {
    let looks = |kind| (1..12).map(|failures| looks_left_out(failures, kind)).collect::<Vec<u32>>();
    assert_eq!(looks(Kind::Integrity), [1, 3, 7, 15, 31, 63, 127, 240, 240, 240, 240]);
    assert_eq!(looks(Kind::Busy), [1, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3]);
    assert_eq!(looks_left_out(u32::MAX, Kind::Integrity), LOOKS_LEFT_OUT_MAX);
}

#[test]
fn copying_is_paced_by_its_bytes_and_by_how_full_the_log_is() {
    let at = |bytes_total| Usage { bytes_total, data_bytes_max: 1_000, ..Usage::default() };
    assert_eq!(rate_at(100, &at(499)), Some(100));
    assert_eq!(rate_at(100, &at(500)), Some(400));
    assert_eq!(rate_at(100, &at(749)), Some(400));
    assert_eq!(rate_at(100, &at(750)), None);
    assert_eq!(rate_at(100, &Usage { shortage: Some(ron_log::Shortage::Device), ..at(0) }), None);

    let mut pace = Pace::default();
    assert_eq!(pace.next_slice(1_000, &at(0)), None, "nothing was copied");
    pace.owed_bytes = 1;
    assert_eq!(pace.next_slice(1_000, &at(0)), None, "too little for a timer");
    pace.owed_bytes = 100;
    assert_eq!(pace.next_slice(1_000, &at(0)), Some((Duration::from_millis(100), 100)));
    pace.owed_bytes = 10_000;
    assert_eq!(pace.next_slice(1_000, &at(0)), Some((LOOK_EVERY, 250)), "then it looks how full the log is");
    assert_eq!((pace.next_slice(1_000, &at(900)), pace.owed_bytes), (None, 0), "a full log waits for nothing");
}
