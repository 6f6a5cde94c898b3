//! Single flight, bounded queues and the share of one address.

use futures_util::future::join_all;
use ron_store::{Record, Subject};
use ron_types::Kind;
use ron_types::limits::index::WORK_CAPACITY;
use svc_index::words::{Outcome, ResolveOptions};

use crate::world::{Behaviour, TENANT, answers, content, ms, new_key, provider, setup};

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
