//! What the node itself says is kept alive until it is withdrawn, and nothing else is.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ron_kernel::{Deadline, clock};
use ron_store::{Bounds, Change, ContentId, Multiaddr, Provided, ProviderRecord, Record, Store, Subject};
use ron_types::limits::index::RENEWALS_PER_SECOND;
use svc_index::ports::Question;
use svc_index::words::{Notice, ProviderOffer, ResolveOptions};

use crate::world::{HOUR_MS, OWN_ADDR, Setup, TENANT, World, content, new_key, provider, setup, wall_clock};

/// Minutes of the wall clock pass in seconds of the runtime's.
const SPEED: u64 = 60;

fn offer(ttl: Option<Duration>) -> ProviderOffer {
    ProviderOffer { peer: None, addrs: Vec::new(), protocols: Vec::new(), ttl }
}

fn quick() -> Setup {
    Setup { wall_clock: wall_clock(clock::unix_millis(), SPEED), ..setup() }
}

/// Lets hours of the wall clock pass.
async fn hours(count: u64) {
    tokio::time::sleep(Duration::from_millis(count * HOUR_MS / SPEED)).await;
}

impl World {
    /// Live provider records of this node about content, as peers get them.
    fn own_records(&self, content: ContentId, now_ms: u64) -> Vec<ProviderRecord> {
        let reply = self.index.answer(&Question::Providers(content.key()), now_ms);
        let records = reply.records.into_iter().filter_map(|record| match record {
            Record::Provider(record) => Some(record),
            _ => None,
        });
        records.filter(|record| record.peer == self.index.node_peer()).collect()
    }

    async fn name_value(&self, label: &str) -> Option<ContentId> {
        let name = format!("name:{label}").parse().expect("a name");
        let options = ResolveOptions { fresh: true, ..ResolveOptions::default() };
        self.index.name_get(TENANT, name, options).await.expect("an answer").record.map(|record| record.value)
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_node_says_is_renewed_before_it_ends_and_goes_on_standing() {
    let setup = quick();
    let wall = Arc::clone(&setup.wall_clock);
    setup
        .run(|world| async move {
            let first = world.index.publish_provider(TENANT, &content(1), offer(None)).await.expect("room");
            let name = world.index.name_set(TENANT, "app", content(1), None).await.expect("room");
            assert_eq!(first.addrs, [OWN_ADDR.parse::<Multiaddr>().expect("an address")]);
            hours(11).await;
            assert_eq!(world.script.kept().len(), 2, "more than half of their lives are left");
            hours(5).await;
            let kept = world.script.kept();
            let [.., Record::Provider(second)] = &kept[..] else { panic!("the provider is renewed: {kept:?}") };
            assert_eq!((kept.len(), second.key, &second.addrs), (3, first.key, &first.addrs));
            assert!(second.sequence > first.sequence && second.is_self_signed());
            assert!(second.issued_ms < first.expires_ms && second.expires_ms > first.expires_ms);
            assert_eq!(
                world.own_records(content(1), wall()),
                std::slice::from_ref(second),
                "it takes the old one's place"
            );
            // Far beyond all that was signed at first.
            hours(84).await;
            assert_eq!(world.own_records(content(1), wall()).len(), 1);
            assert_eq!(world.name_value("app").await, Some(content(1)));
            let names = world.index.names(None, None, 10).await.expect("the store answers");
            assert!(names[0].sequence > name.sequence && names[0].expires_ms > wall());
            let scrape = world.kernel.metrics().render();
            assert!(scrape.contains("index_renewals_total{result=\"failed\"} 0\n"), "{scrape}");
        })
        .await;
}

/// A machine whose clock was ahead when the node published, and is right after its next start.
#[tokio::test(start_paused = true)]
async fn a_clock_that_was_ahead_keeps_nobody_from_saying_something_newer() {
    let (store, key) = (Store::in_memory(Bounds::default()).expect("memory"), new_key());
    let now_ms = clock::unix_millis();
    let life = |ahead_days: u64| Setup {
        store: store.clone(),
        key: key.clone(),
        wall_clock: wall_clock(now_ms + ahead_days * 24 * HOUR_MS, SPEED),
        ..setup()
    };
    life(365)
        .run(|world| async move {
            for number in 1..=4 {
                world.index.publish_provider(TENANT, &content(number), offer(None)).await.expect("room");
            }
            world.index.withdraw_provider(TENANT, &content(4), None).await.expect("withdrawn");
            world.index.name_set(TENANT, "app", content(1), None).await.expect("room");
        })
        .await;
    let second = life(0);
    let wall = Arc::clone(&second.wall_clock);
    second
        .run(|world| async move {
            for number in [1, 4] {
                let again = world.index.publish_provider(TENANT, &content(number), offer(None)).await;
                assert!(again.expect("it is published").expires_ms <= wall() + 24 * HOUR_MS);
            }
            world.index.withdraw_provider(TENANT, &content(2), None).await.expect("it is taken back");
            assert_eq!(world.own_records(content(2), wall()), []);
            // What nobody touches is signed anew: others refuse what is dated a year ahead.
            let renewed = async {
                let is_now = |record: &ProviderRecord| record.issued_ms <= wall();
                while !world.own_records(content(3), wall()).iter().all(is_now) {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                let names = || world.index.names(None, None, 10);
                while names().await.expect("the store answers")[0].issued_ms > wall() {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            };
            let soon = Deadline::after(Duration::from_secs(180)).run("renewals", renewed).await;
            soon.expect("both are renewed with the first sweeps");
            assert_eq!(world.own_records(content(3), wall()).len(), 1);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_away_past_the_end_renews_at_once() {
    let (store, key) = (Store::in_memory(Bounds::default()).expect("memory"), new_key());
    let from_ms = clock::unix_millis();
    let life = |days: u64| Setup {
        store: store.clone(),
        key: key.clone(),
        wall_clock: wall_clock(from_ms + days * 24 * HOUR_MS, SPEED),
        ..setup()
    };
    life(0)
        .run(|world| async move {
            world.index.publish_provider(TENANT, &content(1), offer(None)).await.expect("room");
            world.index.name_set(TENANT, "app", content(2), None).await.expect("room");
        })
        .await;
    let second = life(7);
    let wall = Arc::clone(&second.wall_clock);
    second
        .run(|world| async move {
            let renewed = async {
                while world.script.kept().len() < 2 {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            };
            let soon = Deadline::after(Duration::from_secs(3)).run("renewals", renewed).await;
            soon.expect("both are renewed within the first turns");
            assert_eq!(world.own_records(content(1), wall()).len(), 1);
            assert_eq!(world.name_value("app").await, Some(content(2)));
            hours(1).await;
            assert_eq!(world.script.kept().len(), 2, "once");
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn what_was_withdrawn_or_given_an_end_is_not_renewed() {
    let setup = quick();
    let wall = Arc::clone(&setup.wall_clock);
    setup
        .run(|world| async move {
            let index = &world.index;
            index.publish_provider(TENANT, &content(1), offer(None)).await.expect("room");
            index.name_set(TENANT, "gone", content(1), None).await.expect("room");
            let subject: Subject = "name:gone".parse().expect("a name");
            let mut watch = index.watch(&subject).expect("room");
            index.withdraw_provider(TENANT, &content(1), None).await.expect("room");
            let removed = index.name_remove(TENANT, "gone").await.expect("room");
            assert!(removed.withdraws());
            assert_eq!(watch.next().await, Notice::Name(removed));
            assert_eq!(world.name_value("gone").await, None);
            assert_eq!(index.names(None, None, 10).await.expect("the store answers"), []);
            // An end that the publisher names is the end, also of what was to stand before.
            let hour = Some(Duration::from_millis(HOUR_MS));
            index.publish_provider(TENANT, &content(2), offer(None)).await.expect("room");
            index.publish_provider(TENANT, &content(2), offer(hour)).await.expect("room");
            index.name_set(TENANT, "brief", content(2), None).await.expect("room");
            index.name_set(TENANT, "brief", content(2), hour).await.expect("room");
            let said = world.script.kept().len();
            hours(60).await;
            assert_eq!(world.script.kept().len(), said, "nothing is said again");
            assert_eq!(world.own_records(content(1), wall()), []);
            assert_eq!(world.own_records(content(2), wall()), []);
            assert_eq!((world.name_value("gone").await, world.name_value("brief").await), (None, None));
            // A name that was removed can be set again.
            index.name_set(TENANT, "gone", content(3), None).await.expect("room");
            assert_eq!(world.name_value("gone").await, Some(content(3)));
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn what_others_say_or_the_node_says_of_others_is_not_renewed() {
    quick()
        .run(|world| async move {
            let theirs = provider(content(1), &new_key(), 1);
            world.index.publish_record(TENANT, Record::Provider(theirs)).await.expect("room");
            let peer = Some(new_key().node_id().into());
            let vouched = ProviderOffer { peer, addrs: vec![OWN_ADDR.parse().expect("an address")], ..offer(None) };
            world.index.publish_provider(TENANT, &content(1), vouched).await.expect("room");
            hours(47).await;
            assert_eq!(world.script.kept().len(), 2, "each was placed when it was published, and not since");
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn peers_that_refuse_do_not_stop_it() {
    let setup = quick();
    let wall = Arc::clone(&setup.wall_clock);
    setup
        .run(|world| async move {
            world.index.publish_provider(TENANT, &content(1), offer(None)).await.expect("room");
            world.script.refuses.store(true, Ordering::SeqCst);
            hours(40).await;
            assert_eq!(world.own_records(content(1), wall()).len(), 1, "the record of the store is a newer one");
            assert_eq!(world.script.kept().len(), 1);
            world.script.refuses.store(false, Ordering::SeqCst);
            hours(16).await;
            assert!(world.script.kept().len() >= 2, "and the network gets the next");
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_moved_says_so_in_what_it_provides() {
    let setup = quick();
    let wall = Arc::clone(&setup.wall_clock);
    setup
        .run(|world| async move {
            let fixed: Multiaddr = "/ip4/192.0.2.77/tcp/1".parse().expect("an address");
            let elsewhere = ProviderOffer { addrs: vec![fixed.clone()], ..offer(None) };
            world.index.publish_provider(TENANT, &content(1), offer(None)).await.expect("room");
            world.index.publish_provider(TENANT, &content(2), elsewhere).await.expect("room");
            let new: Multiaddr = "/ip4/192.0.2.10/udp/4001/quic-v1".parse().expect("an address");
            *world.addrs.lock().expect("no test panics with a lock held") = vec![new.clone()];
            hours(3).await;
            assert_eq!(world.own_records(content(1), wall())[0].addrs, [new]);
            assert_eq!(world.own_records(content(2), wall())[0].addrs, [fixed], "as its publisher said");
            assert_eq!(world.script.kept().len(), 3);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_records_are_renewed_a_few_each_second() {
    const COUNT: u32 = 100_000;
    let store = Store::in_memory(Bounds::default()).expect("memory");
    let provided = |number: u32| {
        let content = ContentId::of_bytes(&number.to_be_bytes());
        Change::Provide(Provided { content, addrs: Vec::new(), protocols: Vec::new(), ttl_ms: 24 * HOUR_MS })
    };
    let all: Vec<Change> = (0..COUNT).map(provided).collect();
    store.apply(&all, clock::unix_millis()).expect("memory");
    assert_eq!(store.counts().provided, COUNT as usize);
    Setup { store, ..setup() }
        .run(|world| async move {
            let mut before = world.script.kept().len();
            let first = before;
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let now = world.script.kept().len();
                assert!(now - before <= 2 * RENEWALS_PER_SECOND, "{before} to {now}: at most one turn late");
                before = now;
            }
            let renewed = before - first;
            assert!((19 * RENEWALS_PER_SECOND..=21 * RENEWALS_PER_SECOND).contains(&renewed), "{renewed}");
            // Callers are not kept waiting meanwhile.
            world.index.publish_provider(TENANT, &content(1), offer(None)).await.expect("room");
            let keys: std::collections::HashSet<_> = world.script.kept().iter().map(Record::key).collect();
            assert_eq!(keys.len(), world.script.kept().len(), "none twice");
        })
        .await;
}
