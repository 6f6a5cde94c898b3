//! What ends: the day for which an idempotency key is remembered, and the permits of the gate `index_ingest`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use ron_kernel::clock;
use ron_store::{Record, Subject};
use ron_types::Kind;
use ron_types::limits::index::IDEMPOTENCY_WINDOW;
use svc_index::words::{AdminAction, AdminRequest, ProviderOffer};
use tokio::task::JoinSet;

use crate::world::{TENANT, content, new_key, provider, setup};

#[tokio::test(start_paused = true)]
async fn an_idempotency_key_stands_for_one_request_for_a_day() {
    let now_ms = Arc::new(AtomicU64::new(clock::unix_millis()));
    let mut setup = setup();
    setup.wall_clock = {
        let now_ms = Arc::clone(&now_ms);
        Arc::new(move || now_ms.load(Ordering::SeqCst))
    };
    setup
        .run(|world| async move {
            let ask = |action, key: Option<&str>| {
                let (index, key) = (world.index.clone(), key.map(str::to_owned));
                let subject = Subject::Content(content(1));
                let request = AdminRequest { action, subject, by: "ann".to_owned(), idempotency_key: key };
                async move { index.administer(request).await.map(|done| (done.changed, done.replayed)) }
            };
            let pins = async || world.index.pins(None, 10).await.expect("read").len();
            assert_eq!(ask(AdminAction::Pin, Some("k")).await, Ok((true, false)));
            assert_eq!(ask(AdminAction::Unpin, None).await, Ok((true, false)));

            // A millisecond before the day is over: the answer of then, and nothing is done.
            let day_ms = IDEMPOTENCY_WINDOW.as_millis() as u64;
            assert_eq!(day_ms, 24 * 3_600_000);
            now_ms.fetch_add(day_ms - 1, Ordering::SeqCst);
            assert_eq!(ask(AdminAction::Pin, Some("k")).await, Ok((true, true)));
            assert_eq!(pins().await, 0);
            let other = ask(AdminAction::Unpin, Some("k")).await;
            assert_eq!(other.map_err(|error| error.kind), Err(Kind::Conflict));

            // Afterwards the key is as good as new, also for something else.
            now_ms.fetch_add(1, Ordering::SeqCst);
            assert_eq!(ask(AdminAction::Pin, Some("k")).await, Ok((true, false)));
            assert_eq!(pins().await, 1);
            now_ms.fetch_add(day_ms, Ordering::SeqCst);
            assert_eq!(ask(AdminAction::Unpin, Some("k")).await, Ok((true, false)));
            assert_eq!(pins().await, 0);
        })
        .await;
}

/// Threads for two that are held up while they have a permit, and for everybody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn a_gate_without_permits_refuses_at_once_and_takes_the_same_again_later() {
    setup()
        .run(|world| async move {
            let offer = |addrs: &[&str]| ProviderOffer {
                peer: None,
                addrs: addrs.iter().map(|addr| addr.parse().expect("an address")).collect(),
                protocols: Vec::new(),
                ttl: None,
            };
            // Who publishes without addresses asks where the node is, under a permit, and is held up there.
            let (locked, is_locked) = mpsc::channel();
            let (release, released) = mpsc::channel::<()>();
            let addrs = Arc::clone(&world.addrs);
            let holder = std::thread::spawn(move || {
                let _held = addrs.lock().expect("nobody panicked");
                locked.send(()).expect("the test waits");
                released.recv().expect("the test says so");
            });
            is_locked.recv().expect("locked");
            let mut held_up = JoinSet::new();
            for number in 1..=2 {
                let (index, offer) = (world.index.clone(), offer(&[]));
                held_up.spawn(async move { index.publish_provider(TENANT, &content(number), offer).await });
            }
            // A try meanwhile could have the permit that one of the two is to be held up with.
            let in_use = || {
                let gates = world.kernel.topology().gates;
                gates.iter().filter(|gate| gate.facet == "index").map(|gate| gate.in_flight).sum::<usize>()
            };
            while in_use() < 2 {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            let named = offer(&["/ip4/192.0.2.1/tcp/4001"]);
            let refused = world.index.publish_provider(TENANT, &content(3), named.clone()).await;
            let refused = refused.expect_err("no permit is left");
            assert_eq!(refused.kind, Kind::Busy, "{refused:?}");
            assert!(refused.detail.contains("facet index "), "{refused:?}");
            let record = Record::Provider(provider(content(4), &new_key(), 1));
            let signed = world.index.publish_record(TENANT, record.clone()).await;
            assert_eq!(signed.map_err(|error| error.kind), Err(Kind::Busy));
            assert_eq!(world.index.offer(vec![record.clone()]).map_err(|error| error.kind), Err(Kind::Busy));
            let scrape = world.kernel.metrics().render();
            assert!(scrape.contains("facet_busy_total{facet=\"index\"} 3\n"), "{scrape}");

            release.send(()).expect("it waits");
            for published in held_up.join_all().await {
                published.expect("it had its permit");
            }
            world.index.publish_provider(TENANT, &content(3), named).await.expect("permits are back");
            world.index.publish_record(TENANT, record).await.expect("permits are back");
            holder.join().expect("no panic");
        })
        .await;
}
