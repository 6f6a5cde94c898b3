//! Single flight, bounded queues and the share of one address.

use std::task::Poll;

use futures_util::future::join_all;
use futures_util::poll;
use ron_store::{Record, Subject};
use ron_types::Kind;
use ron_types::limits::index::WORK_CAPACITY;
use svc_index::words::{Outcome, ResolveOptions};
use tokio::sync::oneshot;

use crate::world::{Behaviour, Router, Setup, TENANT, World, answers, content, ms, new_key, provider, setup};

#[tokio::test(start_paused = true)]
async fn a_thousand_misses_of_one_key_are_one_lookup() {
    let setup = setup();
    let peer = setup.script.peer(1, answers(40, vec![Record::Provider(provider(content(1), &new_key(), 1))]));
    setup
        .run(|world| async move {
            let answers = join_all((0..1_000).map(|_| world.resolve(content(1)))).await;
            assert!(answers.iter().all(|answer| answer.outcome == Outcome::Found && answer.took == ms(40)));
            assert_eq!(world.script.asked_of(&peer), 1);
            let scrape = world.kernel.metrics().render();
            assert!(scrape.contains("index_lookups_total{outcome=\"found\"} 1\n"), "{scrape}");
            assert!(scrape.contains("index_cache_misses_total 1000\n"), "{scrape}");
        })
        .await;
}

/// Runs a node whose store is read on the only thread that may block, with that thread held up until the result of
/// `hold_store` is dropped: whoever leads a lookup waits for the store for certain.
fn run_with_one_blocking_thread<F: Future<Output = ()>>(setup: Setup, test: impl FnOnce(World) -> F) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).max_blocking_threads(1).build().expect("a runtime");
    runtime.block_on(Setup { is_amnesia: false, ..setup }.run(test));
}

fn hold_store() -> oneshot::Sender<()> {
    let (release, released) = oneshot::channel();
    // Ends with an error when the other side is dropped, which is what it waits for.
    tokio::task::spawn_blocking(move || released.blocking_recv());
    release
}

#[test]
fn who_leads_a_lookup_may_leave_and_the_others_are_answered() {
    let setup = setup();
    let peer = setup.script.peer(1, answers(40, vec![Record::Provider(provider(content(1), &new_key(), 1))]));
    run_with_one_blocking_thread(setup, |world| async move {
        let held = hold_store();
        let resolve = || Box::pin(world.resolve(content(1)));
        // Two leaders leave, one after the other, before the store has answered them.
        let (mut first, mut second, mut third) = (resolve(), resolve(), resolve());
        for caller in [&mut first, &mut second, &mut third] {
            assert!(poll!(caller).is_pending());
        }
        drop(first);
        assert!(poll!(&mut second).is_pending(), "it leads now");
        assert!(poll!(&mut third).is_pending(), "it joins that");
        drop(second);
        drop(held);
        assert_eq!(third.await.outcome, Outcome::Found);
        assert_eq!(world.script.asked_of(&peer), 1);
    });
}

#[test]
fn a_stream_goes_on_when_the_leader_of_its_lookup_leaves() {
    let setup = setup();
    setup.script.peer(1, answers(40, vec![Record::Provider(provider(content(1), &new_key(), 1))]));
    run_with_one_blocking_thread(setup, |world| async move {
        let held = hold_store();
        let search = || Box::pin(world.index.providers_stream(TENANT, content(1), ResolveOptions::default()));
        let mut first = search();
        assert!(poll!(&mut first).is_pending());
        let mut second = search().await.expect("it joins the first");
        drop(first);
        drop(held);
        assert!(second.next().await.expect("it goes on").is_some());
        assert!(second.next().await.expect("it ends").is_none());
        assert_eq!(second.outcome(), Some(Outcome::Found));
    });
}

#[test]
fn a_caller_does_not_begin_anew_for_ever() {
    run_with_one_blocking_thread(setup(), |world| async move {
        let _held = hold_store();
        let index = &world.index;
        let resolve = || Box::pin(index.resolve(TENANT, Subject::Content(content(1)), ResolveOptions::default()));
        let mut leader = resolve();
        assert!(poll!(&mut leader).is_pending());
        let mut patient = resolve();
        assert!(poll!(&mut patient).is_pending());
        let mut left = 0;
        let ended = loop {
            // Somebody else is quicker to lead each time, and leaves as well.
            let mut next = resolve();
            drop(leader);
            assert!(poll!(&mut next).is_pending());
            left += 1;
            match poll!(&mut patient) {
                Poll::Ready(ended) => break ended,
                Poll::Pending => leader = next,
            }
        };
        assert_eq!((ended.map(drop).map_err(|error| error.kind), left), (Err(Kind::Canceled), 4));
    });
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_is_busy_at_once_and_counted() {
    let mut setup = setup();
    setup.resolvers = 1;
    setup.script.peers(1..=3, &Behaviour::Silent);
    setup
        .run(|world| async move {
            let (index, offered) = (&world.index, WORK_CAPACITY + 20);
            let resolve = |number: usize| async move {
                let id = ron_store::ContentId::of_bytes(&number.to_le_bytes());
                let answer = index.resolve(TENANT, Subject::Content(id), ResolveOptions::default()).await;
                answer.map(|answer| answer.took)
            };
            let began = ron_kernel::clock::now();
            let answers = join_all((0..offered).map(resolve)).await;
            let refused: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
            assert!((19..=20).contains(&refused.len()), "the resolver may have taken one: {}", refused.len());
            assert!(refused.iter().all(|error| error.kind == Kind::Busy && error.retry_after.is_some()));
            let longest = answers.iter().filter_map(|answer| answer.as_ref().ok()).max().expect("answers");
            assert!(*longest <= ms(1200), "who waits in the queue is answered in time as well: {longest:?}");
            assert!(ron_kernel::clock::now() - began <= ms(1200));
            let scrape = world.kernel.metrics().render();
            let counted = format!("busy_rejections_total{{endpoint=\"work_tx\"}} {}\n", refused.len());
            assert!(scrape.contains(&counted), "{scrape}");
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_router_is_asked_however_many_other_ids_came_meanwhile() {
    let mut setup = setup();
    setup.resolvers = 1;
    let record = Record::Provider(provider(content(1), &new_key(), 1));
    setup.upstreams.push(std::sync::Arc::new(Router("https://router.example", vec![record])));
    setup
        .run(|world| async move {
            let ask = |number: usize| {
                let id = Subject::Content(ron_store::ContentId::of_bytes(&number.to_le_bytes()));
                Box::pin(world.index.resolve(TENANT, id, ResolveOptions::default()))
            };
            let (mut before, mut asked) = (ask(0), Box::pin(world.resolve(content(1))));
            assert!(poll!(&mut before).is_pending());
            assert!(poll!(&mut asked).is_pending(), "it waits for the only resolver");
            for number in 1..10_000 {
                // Whoever asks these is gone at once, and most find the queue full.
                drop(poll!(ask(number)));
            }
            assert_eq!(asked.await.outcome, Outcome::Found);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn one_address_meets_its_cap_and_others_do_not() {
    setup()
        .run(|world| async move {
            let flooder = "192.0.2.7".parse().expect("an address");
            let mut held = Vec::new();
            while let Ok(slot) = world.index.admit(flooder) {
                held.push(slot);
            }
            assert_eq!(held.len(), 256);
            assert!(world.index.admit("192.0.2.8".parse().expect("an address")).is_ok());
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn the_capacity_rule_follows_the_load() {
    let setup = setup();
    setup.script.peer(1, answers(100, Vec::new()));
    setup
        .run(|world| async move {
            for number in 0..20_u8 {
                join_all((0..8).map(|other| {
                    let id = ron_store::ContentId::of_bytes(&[number, other]);
                    world.resolve_with(id, ResolveOptions::default())
                }))
                .await;
            }
            let capacity = world.index.capacity();
            assert!((capacity.service_s - 0.1).abs() < 0.01, "{capacity:?}");
            assert!(capacity.lambda > 40.0 && capacity.workers == 8, "{capacity:?}");
            let wanted = (capacity.lambda * capacity.service_s / 0.7).ceil() as usize;
            assert_eq!(capacity.workers_wanted, wanted);
        })
        .await;
}
