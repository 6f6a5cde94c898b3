//! Hedging, the deadline and cancellation, as the gates have them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use ron_kernel::clock;
use ron_lookup::AskEnd;
use ron_store::{Change, PeerId, Record, Subject};
use ron_types::limits::records::WIRE_RECORDS_MAX;
use svc_index::ports::{AskError, Parts, Question, Reply, Upstream, UpstreamQuestion};
use svc_index::words::{Outcome, ResolveOptions};

use crate::world::{Behaviour, Setup, TENANT, answers, content, ms, new_key, provider, setup};

#[tokio::test(start_paused = true)]
async fn an_alpha_peer_dropped_in_flight_a_beta_peer_wins_and_the_losers_are_cancelled() {
    let setup = setup();
    let record = Record::Provider(provider(content(1), &new_key(), 1));
    // Three alphas: one breaks off in flight, two are black holes, and so is the one that takes the free place.
    let mut behaviours = vec![Behaviour::Silent; 4];
    behaviours[0] = Behaviour::Fails(ms(30), AskError::Closed);
    behaviours.extend((0..6).map(|_| answers(25, vec![record.clone()])));
    setup.script.nearest_first(content(1), behaviours);
    setup
        .run(|world| async move {
            let answer = world.resolve(content(1)).await;
            assert_eq!(answer.outcome, Outcome::Found);
            assert!(answer.took < ms(400), "one dead peer does not hold the answer up: {:?}", answer.took);
            let end = |end: AskEnd| answer.course.iter().filter(|ask| ask.end == end).count();
            assert_eq!(end(AskEnd::Won), 1, "{:?}", answer.course);
            assert!(end(AskEnd::Cancelled) >= 3 && end(AskEnd::Failed) >= 1, "{:?}", answer.course);
            assert!(answer.course.iter().any(|ask| ask.hedge && ask.end == AskEnd::Won), "{:?}", answer.course);
            assert_eq!(world.script.open(), 0, "no question is left");
            assert_eq!(world.index.stats().await.expect("the store answers").flights, 0);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn the_deadline_holds_whatever_peers_do() {
    let black_holes = |script: &crate::world::Script| {
        script.peers(1..=40, &Behaviour::Silent);
    };
    let slow = |script: &crate::world::Script| {
        script.peers(1..=40, &answers(390, Vec::new()));
    };
    // Each answers with two peers more that nobody knew, for ever.
    let maze = |script: &crate::world::Script| {
        for number in 1..=250_u8 {
            let closer = [number.wrapping_add(1), number.wrapping_mul(3)].map(|next| PeerId::of_ed25519(&[next; 32]));
            let peer = PeerId::of_ed25519(&[number; 32]);
            script.set(peer, Behaviour::Answers(ms(120), Vec::new(), closer.to_vec()));
        }
        (1..=3).for_each(|number| {
            let peer = script.peer(number, Behaviour::Silent);
            script.set(peer, Behaviour::Answers(ms(120), Vec::new(), vec![PeerId::of_ed25519(&[number + 10; 32])]));
        });
    };
    let failing = |script: &crate::world::Script| {
        let fails = Behaviour::Fails(ms(200), AskError::Unreachable);
        script.peers(1..=40, &fails);
    };
    let scenes: [&dyn Fn(&crate::world::Script); 4] = [&black_holes, &slow, &maze, &failing];
    for scene in scenes {
        let setup = setup();
        scene(&setup.script);
        setup
            .run(|world| async move {
                let began = clock::now();
                let answer = world.resolve(content(1)).await;
                let took = clock::now() - began;
                assert!(took <= ms(1200), "{took:?}");
                assert!(answer.outcome != Outcome::Found && answer.providers.is_empty());
                assert_eq!(world.script.open(), 0, "no question is left");
            })
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn silence_everywhere_ends_at_the_deadline_as_unknown() {
    let setup = setup();
    setup.script.peers(1..=60, &Behaviour::Silent);
    setup
        .run(|world| async move {
            let answer = world.resolve(content(1)).await;
            assert!(matches!(answer.outcome, Outcome::Unknown | Outcome::Degraded), "{:?}", answer.outcome);
            assert!((ms(1150)..=ms(1200)).contains(&answer.took), "{:?}", answer.took);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_less_time_gets_its_answer_in_that_time() {
    let setup = setup();
    setup.script.peer(1, answers(300, vec![Record::Provider(provider(content(1), &new_key(), 1))]));
    setup
        .run(|world| async move {
            let hurried = ResolveOptions { budget: Some(ms(100)), ..ResolveOptions::default() };
            let (hurried, patient) = tokio::join!(world.resolve_with(content(1), hurried), world.resolve(content(1)));
            assert_eq!((hurried.outcome, hurried.took), (Outcome::Unknown, ms(100)));
            assert_eq!((patient.outcome, patient.took), (Outcome::Found, ms(300)), "others go on");
            assert_eq!(world.script.asked(), 1, "they shared the lookup");
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_nobody_waits_for_is_cancelled_at_its_targets() {
    let setup = setup();
    setup.script.peer(1, Behaviour::Silent);
    setup
        .run(|world| async move {
            let subject = Subject::Content(content(1));
            let mut gone = Box::pin(world.index.resolve(TENANT, subject, ResolveOptions::default()));
            let soon = ron_kernel::Deadline::after(ms(50));
            assert!(soon.run("test", &mut gone).await.is_err(), "nobody answers");
            assert_eq!(world.script.open(), 1);
            drop(gone);
            tokio::time::sleep(ms(1)).await;
            assert_eq!(world.script.open(), 0);
            assert_eq!(world.index.stats().await.expect("the store answers").flights, 0);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_hands_on_the_first_provider_before_the_second_is_known() {
    let setup = setup();
    for (number, after_ms) in [(1, 50), (2, 380)] {
        let record = provider(content(1), &new_key(), 1);
        setup.script.peer(number, answers(after_ms, vec![Record::Provider(record)]));
    }
    setup
        .run(|world| async move {
            let began = clock::now();
            let options = ResolveOptions::default();
            let mut stream = world.index.providers_stream(TENANT, content(1), options).await.expect("room");
            assert!(stream.next().await.expect("no failure").is_some());
            assert_eq!((clock::now() - began, stream.outcome()), (ms(50), None));
            assert!(stream.next().await.expect("no failure").is_some());
            assert_eq!(clock::now() - began, ms(380));
            assert!(stream.next().await.expect("no failure").is_none());
            assert_eq!(stream.outcome(), Some(Outcome::Found));
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn all_that_is_found_is_in_the_answer_and_remembered() {
    let setup = setup();
    for number in [1, 2] {
        let records = (0..WIRE_RECORDS_MAX).map(|_| Record::Provider(provider(content(1), &new_key(), 1)));
        setup.script.peer(number, answers(50, records.collect()));
    }
    setup
        .run(|world| async move {
            let options = ResolveOptions::default();
            let mut stream = world.index.providers_stream(TENANT, content(1), options).await.expect("room");
            let mut count = 0;
            while stream.next().await.expect("no failure").is_some() {
                count += 1;
            }
            assert_eq!(count, 2 * WIRE_RECORDS_MAX);
            let few = ResolveOptions { max: 5, ..options };
            assert_eq!(world.resolve_with(content(1), few).await.providers.len(), 5);
            assert_eq!(world.resolve(content(1)).await.providers.len(), 2 * WIRE_RECORDS_MAX, "remembered, too");
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_providers_of_one_content_are_all_in_the_answer_and_a_peer_gets_those_that_were_met() {
    const COUNT: usize = 1_000;
    let setup = setup();
    let store = setup.store.clone();
    setup
        .run(|world| async move {
            let record = || Record::Provider(provider(content(1), &new_key(), 1));
            let changes = (0..COUNT).map(|_| Change::Put(record()));
            store.apply(&changes.collect::<Vec<_>>(), clock::unix_millis()).expect("a batch");
            let answer = world.resolve(content(1)).await;
            assert_eq!(answer.providers.len(), COUNT);
            let reply = world.index.answer(&Question::Providers(content(1).key()), clock::unix_millis());
            assert_eq!(reply.records.len(), WIRE_RECORDS_MAX);
        })
        .await;
}

/// A router that hands its first record on at once, and is done only when the time is over.
struct SlowRouter(Vec<Record>);

impl Upstream for SlowRouter {
    fn name(&self) -> &str {
        "slow"
    }

    fn ask(&self, question: UpstreamQuestion, budget: Duration) -> BoxFuture<'static, Result<Reply, AskError>> {
        self.ask_in_parts(question, budget, Parts::default())
    }

    fn ask_in_parts(
        &self,
        _: UpstreamQuestion,
        budget: Duration,
        parts: Parts,
    ) -> BoxFuture<'static, Result<Reply, AskError>> {
        let records = self.0.clone();
        Box::pin(async move {
            tokio::time::sleep(ms(30)).await;
            parts.hand_on(records[..1].to_vec());
            tokio::time::sleep(budget - ms(60)).await;
            Ok(Reply { records, closer: Vec::new() })
        })
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_router_says_is_handed_on_while_it_goes_on_looking() {
    let records = [1, 2].map(|_| Record::Provider(provider(content(1), &new_key(), 1)));
    let upstreams: Vec<Arc<dyn Upstream>> = vec![Arc::new(SlowRouter(records.to_vec()))];
    let setup = Setup { upstreams, ..setup() };
    setup
        .run(|world| async move {
            let began = clock::now();
            let options = ResolveOptions::default();
            let mut stream = world.index.providers_stream(TENANT, content(1), options).await.expect("room");
            let first = stream.next().await.expect("no failure").expect("a provider").record;
            assert_eq!(Record::Provider(first), records[0]);
            assert!(clock::now() - began < ms(100), "{:?}", clock::now() - began);
            let second = stream.next().await.expect("no failure").expect("a provider").record;
            assert_eq!(Record::Provider(second), records[1]);
            assert!(stream.next().await.expect("no failure").is_none());
        })
        .await;
}
