//! A scrub of a log in memory or on a disk: when it runs, how fast, and what it tells.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ron_kernel::Deadline;
use ron_log::{Class, LogOptions, Position, RamDisk, RealDisk};

use super::*;

const MIB: u64 = 1 << 20;

/// A log with a scrub, as the keeper runs it.
struct ScrubbedLog {
    log: Log,
    scrubber: Arc<Scrubber>,
    told: Arc<AtomicU64>,
}

fn options() -> LogOptions {
    LogOptions { segment_bytes: 2 << 20, quota_bytes: 64 << 20, reserve_bytes: 1 << 20, ..LogOptions::default() }
}

impl ScrubbedLog {
    fn new(disk: Arc<dyn ron_log::Disk>) -> ScrubbedLog {
        let (log, _) = Log::open(disk, options(), &mut |_, _| {}).expect("opened");
        ScrubbedLog { log, scrubber: Arc::default(), told: Arc::default() }
    }

    fn in_memory() -> ScrubbedLog {
        ScrubbedLog::new(Arc::new(RamDisk::default()))
    }

    fn on_disk(directory: &Path) -> ScrubbedLog {
        ScrubbedLog::new(Arc::new(RealDisk::open(directory).expect("free")))
    }

    /// Records of 64 KiB, so that 32 of them fill a segment.
    fn fill(&self, records: u64) -> Vec<Position> {
        let append = |number: u64| {
            let head = number.to_le_bytes();
            let position = self.log.appender().append(Class::Data, &head, &vec![7; 64 << 10]).expect("room");
            self.log.flush().expect("durable");
            position
        };
        (0..records).map(append).collect()
    }

    /// One life of the keeper, as far as the scrub is concerned; dropping it ends that life.
    async fn live(&self, bytes_per_second: u64) {
        let now = clock::now();
        let told = Arc::clone(&self.told);
        let context = ScrubContext {
            log: &self.log,
            scrubber: &self.scrubber,
            bytes_per_second: &|| bytes_per_second,
            now_ms: &|| clock::now().saturating_duration_since(now).as_millis() as u64,
            name: &|head| {
                let msg_id = u64::from_le_bytes(head.try_into().ok()?).to_string();
                Some(DamagedMessage { topic: "orders".parse().ok()?, partition: 0, msg_id })
            },
            damaged: &move |records| {
                told.fetch_add(records, Ordering::Relaxed);
            },
        };
        context.run().await;
    }

    /// Lets the scrub live until this many passes have ended; gives the last one.
    async fn passes(&self, bytes_per_second: u64, runs: u64) -> ScrubPass {
        self.passes_seen_every(Duration::from_millis(100), bytes_per_second, runs).await
    }

    async fn passes_seen_every(&self, look: Duration, bytes_per_second: u64, runs: u64) -> ScrubPass {
        let ended = async {
            loop {
                if let Some(last) = self.scrubber.view().last.filter(|last| last.run >= runs) {
                    return last;
                }
                tokio::time::sleep(look).await;
            }
        };
        tokio::select! {
            last = ended => last,
            () = self.live(bytes_per_second) => unreachable!("it never ends by itself"),
        }
    }
}

fn flip(directory: &Path, position: Position) {
    use std::os::unix::fs::FileExt as _;
    let path = directory.join(format!("{:08}.log", position.segment));
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("there");
    let at = u64::from(position.offset + position.len - 1000);
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("readable");
    file.write_all_at(&[byte[0] ^ 4], at).expect("written");
}

#[tokio::test(start_paused = true)]
async fn a_pass_takes_its_share_of_the_rate_and_one_asked_for_takes_all() {
    let scrubbed = ScrubbedLog::in_memory();
    scrubbed.fill(100);
    let began = clock::now();
    let pass = scrubbed.passes(4 * MIB, 1).await;
    let took = clock::now() - began - FIRST_AFTER;
    assert!(pass.is_clean() && pass.records == 100 && !pass.asked_for, "{pass:?}");
    assert_eq!((pass.bytes_done, pass.ratio()), (pass.bytes_total, 1.0));
    let bytes = scrubbed.scrubber.view().bytes_checked;
    assert!((100 * (64 << 10)..8 * MIB).contains(&bytes), "{bytes}");
    // A quarter of 4 MiB in a second.
    let expected = Duration::from_secs_f64(bytes as f64 / MIB as f64);
    assert!(took >= expected && took < expected + Duration::from_secs(1), "{took:?} for {bytes} bytes");

    let began = clock::now();
    scrubbed.scrubber.ask(0);
    let pass = scrubbed.passes(4 * MIB, 2).await;
    let took = clock::now() - began;
    assert!(pass.asked_for, "{pass:?}");
    assert!(took >= expected / 4 && took < expected / 4 + Duration::from_secs(1), "{took:?} for {bytes} bytes");
}

#[tokio::test(start_paused = true)]
async fn a_pass_begins_every_day() {
    let scrubbed = ScrubbedLog::in_memory();
    scrubbed.fill(3);
    let began = clock::now();
    let minute = Duration::from_secs(60);
    scrubbed.passes_seen_every(minute, 64 * MIB, 1).await;
    assert!(clock::now() - began >= FIRST_AFTER);
    let third = scrubbed.passes_seen_every(minute, 64 * MIB, 3).await;
    let took = clock::now() - began;
    assert!(took >= FIRST_AFTER + 2 * EVERY && took < FIRST_AFTER + 2 * EVERY + 3 * minute, "{took:?}");
    assert!(third.is_clean() && third.finished_ms.is_some());
    assert_eq!(third.records, 3);
}

#[tokio::test(start_paused = true)]
async fn a_keeper_that_is_restarted_goes_on_where_the_last_one_was() {
    let scrubbed = ScrubbedLog::in_memory();
    scrubbed.fill(200);
    scrubbed.scrubber.ask(0);
    let slow = Deadline::after(Duration::from_secs(5)).run("a life of the keeper", scrubbed.live(MIB)).await;
    assert!(slow.is_err(), "it was ended in the middle");
    let before = scrubbed.scrubber.view().running.expect("it has not ended");
    assert!(before.segments >= 1 && before.ratio() < 1.0, "{before:?}");
    let pass = scrubbed.passes(64 * MIB, 1).await;
    assert_eq!(
        (pass.run, pass.records, pass.segments),
        (1, 200, scrubbed.log.settled_segments().len() as u64),
        "{pass:?}"
    );
    assert_eq!(pass.bytes_done, pass.bytes_total);
}

#[tokio::test(start_paused = true)]
async fn damage_is_named_and_told_once() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let scrubbed = ScrubbedLog::on_disk(folder.path());
    let positions = scrubbed.fill(100);
    flip(folder.path(), positions[5]);
    scrubbed.scrubber.ask(0);
    let pass = scrubbed.passes(64 * MIB, 1).await;
    assert_eq!((pass.damaged_records, pass.damaged_stretches, pass.records), (1, 1, 99), "{pass:?}");
    let [finding] = &pass.findings[..] else { panic!("{pass:?}") };
    assert_eq!((finding.segment, finding.offset), (positions[5].segment, positions[5].offset));
    assert!(finding.is_new && finding.messages[0].msg_id == "5", "{finding:?}");
    assert_eq!(scrubbed.told.load(Ordering::Relaxed), 1);

    flip(folder.path(), positions[70]);
    scrubbed.scrubber.ask(0);
    let pass = scrubbed.passes(64 * MIB, 2).await;
    let told: Vec<_> = pass.findings.iter().map(|found| (found.messages[0].msg_id.as_str(), found.is_new)).collect();
    assert_eq!(told, [("5", false), ("70", true)]);
    assert_eq!((pass.damaged_records, scrubbed.told.load(Ordering::Relaxed)), (2, 2), "old damage is not told anew");
}

#[tokio::test(start_paused = true)]
async fn segments_given_back_under_a_pass_are_passed_over() {
    let scrubbed = ScrubbedLog::in_memory();
    let positions = scrubbed.fill(200);
    scrubbed.scrubber.ask(0);
    let slow = Deadline::after(Duration::from_secs(3)).run("a life of the keeper", scrubbed.live(MIB)).await;
    assert!(slow.is_err());
    let before = scrubbed.scrubber.view().running.expect("it has not ended");
    scrubbed.log.release_all(positions.into_iter());
    while let Some(oldest) = scrubbed.log.reclaimable() {
        scrubbed.log.retire(oldest).expect("nothing in it is needed");
    }
    let pass = scrubbed.passes(64 * MIB, 1).await;
    assert!(pass.is_clean() && pass.segments == before.segments + 1, "only the open one was left: {pass:?}");
    assert_eq!(pass.bytes_done, pass.bytes_total);
}
