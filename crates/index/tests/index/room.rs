//! A store that strangers filled: they are refused, the node itself publishes on, and what is refused leaves nothing.

use std::sync::Arc;
use std::time::Duration;

use ron_kernel::clock;
use ron_store::{Bounds, ContentId, Record, Store};
use ron_types::limits::index::STORE_FULL_RETRY;
use ron_types::limits::records::PROVIDERS_PER_KEY_MAX;
use ron_types::{Error, Kind, Size};
use svc_index::config::Options;
use svc_index::words::{Outcome, ProviderOffer, PublishOutcome};

use crate::world::{HOUR_MS, Setup, TENANT, World, content, new_key, provider, setup, wall_clock};

/// Minutes of the wall clock pass in seconds of the runtime's.
const SPEED: u64 = 60;

fn bounded(records_max: usize, records_bytes_max: usize) -> Setup {
    let bounds = Bounds { records_max, records_bytes_max, ..Bounds::default() };
    Setup {
        store: Store::in_memory(bounds).expect("memory"),
        wall_clock: wall_clock(clock::unix_millis(), SPEED),
        ..setup()
    }
}

fn offer() -> ProviderOffer {
    ProviderOffer { peer: None, addrs: Vec::new(), protocols: Vec::new(), ttl: None }
}

impl World {
    /// Publishes as a stranger, each time about other content, until the store is full; says how often there was room.
    async fn fill(&self) -> usize {
        let stranger = new_key();
        for number in 0..1_000_u32 {
            let record = provider(ContentId::of_bytes(&number.to_be_bytes()), &stranger, 1);
            match self.index.publish_record(TENANT, Record::Provider(record)).await {
                Ok(outcome) => assert_eq!(outcome, PublishOutcome::Stored),
                Err(error) => {
                    assert_busy(&error);
                    return number as usize;
                }
            }
        }
        panic!("the store is never full");
    }
}

fn assert_busy(error: &Error) {
    assert_eq!(error.kind, Kind::Busy, "{error}");
}

#[tokio::test(start_paused = true)]
async fn strangers_cannot_fill_the_store_for_the_node_itself() {
    for (records_max, bytes_max) in [(64, 1 << 30), (1 << 30, 16 << 10)] {
        bounded(records_max, bytes_max)
            .run(|world| async move {
                assert!((50..=100).contains(&world.fill().await));
                let stranger = Record::Provider(provider(content(1), &new_key(), 1));
                let refused = world.index.publish_record(TENANT, stranger.clone()).await.expect_err("it is full");
                assert_busy(&refused);
                // A peer's records are dropped in silence: it hears how many were queued.
                assert_eq!(world.index.offer(vec![stranger]), Ok(1));
                world.index.publish_provider(TENANT, &content(1), offer()).await.expect("room for the node itself");
                world.index.name_set(TENANT, "app", content(1), None).await.expect("room for the node itself");
                let vouched = ProviderOffer {
                    peer: Some(new_key().node_id().into()),
                    addrs: vec!["/ip4/192.0.2.1/tcp/4001".parse().expect("an address")],
                    ..offer()
                };
                world.index.publish_provider(TENANT, &content(2), vouched).await.expect("signed by the node");
                let answer = world.resolve(content(1)).await;
                assert_eq!((answer.outcome, answer.providers.len()), (Outcome::Found, 1));
                // Long after its first record, and with all strangers gone for good.
                tokio::time::sleep(Duration::from_millis(30 * HOUR_MS / SPEED)).await;
                assert_eq!(world.resolve(content(1)).await.outcome, Outcome::Found, "it is renewed");
                world.index.withdraw_provider(TENANT, &content(1), None).await.expect("room for the node itself");
            })
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn strangers_cannot_take_the_places_of_a_key_from_the_node_and_its_operator() {
    setup()
        .run(|world| async move {
            let vouched = ProviderOffer {
                peer: Some(new_key().node_id().into()),
                addrs: vec!["/ip4/192.0.2.1/tcp/4001".parse().expect("an address")],
                ..offer()
            };
            let before = world.index.publish_provider(TENANT, &content(1), vouched.clone()).await.expect("room");
            let mut refused = None;
            for _ in 0..3 * PROVIDERS_PER_KEY_MAX {
                let record = Record::Provider(provider(content(1), &new_key(), 1));
                refused = world.index.publish_record(TENANT, record).await.err().or(refused);
            }
            // Half of those who find a full key are refused; and a second later there is no more room than now.
            let refused = refused.expect("a key has few places");
            assert_busy(&refused);
            assert_eq!(refused.retry_after, Some(STORE_FULL_RETRY));
            let own = world.index.publish_provider(TENANT, &content(1), offer()).await.expect("a stranger gives way");
            let other = ProviderOffer { peer: Some(new_key().node_id().into()), ..vouched };
            let other = world.index.publish_provider(TENANT, &content(1), other).await.expect("a stranger gives way");
            let answer = world.resolve(content(1)).await;
            for record in [before, own, other] {
                assert!(answer.providers.iter().any(|provider| provider.record == record), "{record:?}");
            }
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn what_was_refused_is_not_provided_named_or_renewed_later() {
    // Too small for a reserve: also the node itself finds it full.
    let setup = bounded(10, 1 << 30);
    let store = setup.store.clone();
    let wall = Arc::clone(&setup.wall_clock);
    setup
        .run(|world| async move {
            assert_eq!(world.fill().await, 10);
            let said = world.script.kept().len();
            assert_busy(&world.index.publish_provider(TENANT, &content(1), offer()).await.expect_err("it is full"));
            assert_busy(&world.index.name_set(TENANT, "app", content(1), None).await.expect_err("it is full"));
            assert_eq!((store.counts().provided, store.counts().named), (0, 0));
            // The strangers' records are over, and nothing takes up the room.
            tokio::time::sleep(Duration::from_millis(60 * HOUR_MS / SPEED)).await;
            assert_eq!((store.count(), world.script.kept().len()), (0, said));
            assert!(store.providers(&content(1).key(), wall(), 9).expect("memory").is_empty());
            // Published again, it stands.
            world.index.publish_provider(TENANT, &content(1), offer()).await.expect("room");
            assert_eq!(store.counts().provided, 1);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_withdrawal_that_finds_no_room_ends_the_renewals() {
    let setup = bounded(10, 1 << 30);
    let store = setup.store.clone();
    setup
        .run(|world| async move {
            world.index.publish_provider(TENANT, &content(1), offer()).await.expect("room");
            world.index.name_set(TENANT, "app", content(1), None).await.expect("room");
            // The records themselves are gone, as after a file that was lost in part; what the node says is not.
            store.expire(u64::MAX / 2).expect("memory");
            assert_eq!((store.count(), store.counts().provided, store.counts().named), (0, 1, 1));
            assert_eq!(world.fill().await, 10);
            let refused = world.index.withdraw_provider(TENANT, &content(1), None).await.expect_err("it is full");
            assert_busy(&refused);
            assert_busy(&world.index.name_remove(TENANT, "app").await.expect_err("it is full"));
            assert_eq!((store.counts().provided, store.counts().named), (0, 0));
        })
        .await;
}

#[test]
fn records_take_fewer_bytes_in_memory_than_on_disk_unless_a_number_is_named() {
    let bytes = |options: &Options| [true, false].map(|is_amnesia| options.bounds(is_amnesia).records_bytes_max);
    assert_eq!(bytes(&Options::default()), [128 << 20, 4 << 30]);
    let named = Options { records_bytes_max: Size(1 << 20), ..Options::default() };
    assert_eq!(bytes(&named), [1 << 20, 1 << 20]);
}
