//! What strangers put into the store: a part of the answer that silences nobody, and that costs few lookups.

use ron_store::{PeerId, Record};
use ron_types::limits::index::STRANGERS_WAIT;
use svc_index::words::{Outcome, ProviderOffer, Resolution, ResolveOptions, Source};
use tokio::time::sleep;

use crate::world::{Behaviour, Router, Setup, TENANT, World, answers, content, ms, new_key, provider, setup};

/// A node whose network, or router, knows the true provider of content 1.
fn known_elsewhere(after_ms: u64, behaviour: fn(u64, Vec<Record>) -> Behaviour) -> (Setup, PeerId) {
    let (setup, record) = (setup(), provider(content(1), &new_key(), 1));
    setup.script.peer(1, behaviour(after_ms, vec![Record::Provider(record.clone())]));
    (setup, record.peer)
}

impl World {
    /// Somebody publishes that they have content 1, with a key made up for it.
    async fn made_up(&self) -> PeerId {
        let record = provider(content(1), &new_key(), 1);
        let peer = record.peer;
        self.index.publish_record(TENANT, Record::Provider(record)).await.expect("anybody may");
        peer
    }

    async fn streamed(&self) -> Vec<PeerId> {
        let stream = self.index.providers_stream(TENANT, content(1), ResolveOptions::default()).await;
        let (mut stream, mut peers) = (stream.expect("a stream"), Vec::new());
        while let Some(provider) = stream.next().await.expect("it goes on") {
            peers.push(provider.record.peer);
        }
        peers
    }
}

fn peers(answer: &Resolution) -> Vec<PeerId> {
    answer.providers.iter().map(|provider| provider.record.peer).collect()
}

fn assert_same(mut found: Vec<PeerId>, mut expected: Vec<PeerId>) {
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[tokio::test(start_paused = true)]
async fn a_strangers_record_does_not_silence_the_provider_that_the_network_knows() {
    let (setup, true_peer) = known_elsewhere(20, answers);
    setup
        .run(|world| async move {
            let stranger = world.made_up().await;
            let answer = world.resolve(content(1)).await;
            assert_eq!((answer.outcome, answer.source, answer.took), (Outcome::Found, Source::Dht, ms(20)));
            assert_same(peers(&answer), vec![stranger, true_peer]);
            assert_same(world.streamed().await, vec![stranger, true_peer]);
            // Another made-up record each second does not help: what was found before is looked for anew.
            let mut strangers = vec![stranger];
            for _ in 0..3 {
                strangers.push(world.made_up().await);
                let expected: Vec<PeerId> = strangers.iter().copied().chain([true_peer]).collect();
                assert_same(peers(&world.resolve(content(1)).await), expected.clone());
                assert_same(world.streamed().await, expected);
            }
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_strangers_record_does_not_silence_a_router() {
    let (mut setup, record) = (setup(), provider(content(1), &new_key(), 1));
    let true_peer = record.peer;
    setup.upstreams.push(std::sync::Arc::new(Router("https://router.example", vec![Record::Provider(record)])));
    setup
        .run(|world| async move {
            let stranger = world.made_up().await;
            assert_same(peers(&world.resolve(content(1)).await), vec![stranger, true_peer]);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_network_costs_a_short_wait_and_is_heard_in_the_background() {
    let (setup, true_peer) = known_elsewhere(300, answers);
    setup.script.peers(2..=4, &Behaviour::Silent);
    setup
        .run(|world| async move {
            let stranger = world.made_up().await;
            let answer = world.resolve(content(1)).await;
            assert_eq!((answer.outcome, answer.source), (Outcome::Found, Source::Store));
            assert_eq!((answer.took, peers(&answer)), (STRANGERS_WAIT, vec![stranger]));
            assert_eq!(answer.fresh_for, ms(0), "it is no answer to be kept");
            sleep(ms(2_000)).await;
            let answer = world.resolve(content(1)).await;
            assert_eq!((answer.source, answer.took), (Source::Cache, ms(0)));
            assert_same(peers(&answer), vec![stranger, true_peer]);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_key_that_many_ask_for_is_looked_up_once_while_its_answer_is_remembered() {
    // Nobody answers: all there is are strangers' records, for all who ask.
    let setup = setup();
    let silent = setup.script.peer(1, Behaviour::Silent);
    setup
        .run(|world| async move {
            world.made_up().await;
            for _ in 0..20 {
                let ask = || world.resolve(content(1));
                let answers = futures_util::future::join_all((0..50).map(|_| ask())).await;
                assert!(answers.iter().all(|answer| answer.providers.len() == 1 && answer.took <= STRANGERS_WAIT));
                sleep(ms(100)).await;
            }
            // Callers come for two seconds; the background asks for 1.2 of them, and then it is remembered.
            let asked = world.script.asked_of(&silent);
            assert!(asked <= 12, "{asked} questions for a thousand callers");
            sleep(ms(30_000)).await;
            assert_eq!(world.resolve(content(1)).await.source, Source::Cache);
            assert_eq!(world.script.asked_of(&silent), asked);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn what_this_node_or_its_operator_says_needs_nobody_else() {
    let (setup, _) = known_elsewhere(20, answers);
    setup
        .run(|world| async move {
            let own = ProviderOffer { peer: None, addrs: Vec::new(), protocols: Vec::new(), ttl: None };
            world.index.publish_provider(TENANT, &content(1), own).await.expect("room");
            let answer = world.resolve(content(1)).await;
            assert_eq!((answer.source, answer.took, world.script.asked()), (Source::Store, ms(0), 0));
            assert_eq!((world.streamed().await.len(), world.script.asked()), (1, 0));
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn the_first_answer_that_came_is_no_answer_to_who_wants_all() {
    let (setup, first) = known_elsewhere(5, answers);
    let record = provider(content(1), &new_key(), 1);
    let second = record.peer;
    setup.script.peer(2, answers(100, vec![Record::Provider(record)]));
    setup
        .run(|world| async move {
            assert_eq!(peers(&world.resolve(content(1)).await), [first]);
            assert_eq!(
                world.resolve(content(1)).await.source,
                Source::Cache,
                "the same question is answered from memory"
            );
            assert_same(world.streamed().await, vec![first, second]);
            let asked = world.script.asked();
            let answer = world.resolve(content(1)).await;
            assert_same(peers(&answer), vec![first, second]);
            assert_same(world.streamed().await, vec![first, second]);
            assert_eq!((answer.source, world.script.asked()), (Source::Cache, asked), "and that answers both");
        })
        .await;
}
