//! Hedging, the deadline and cancellation, as the gates have them.

use ron_kernel::clock;
use ron_lookup::AskEnd;
use ron_store::{PeerId, Record, Subject};
use ron_types::limits::index::{CANDIDATES_MAX, PROVIDERS_MAX};
use svc_index::ports::AskError;
use svc_index::words::{Outcome, ResolveOptions};

use crate::world::{Behaviour, TENANT, answers, content, ms, new_key, provider, setup};

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
async fn who_filters_what_is_found_sees_more_than_the_best_of_it() {
    let setup = setup();
    for number in [1, 2] {
        let records = (0..PROVIDERS_MAX).map(|_| Record::Provider(provider(content(1), &new_key(), 1)));
        setup.script.peer(number, answers(50, records.collect()));
    }
    setup
        .run(|world| async move {
            let options = ResolveOptions { max: CANDIDATES_MAX, ..ResolveOptions::default() };
            let mut stream = world.index.providers_stream(TENANT, content(1), options).await.expect("room");
            let mut count = 0;
            while stream.next().await.expect("no failure").is_some() {
                count += 1;
            }
            assert_eq!(count, 2 * PROVIDERS_MAX);
            let known = world.resolve_with(content(1), options).await.providers.len();
            assert_eq!(known, 2 * PROVIDERS_MAX, "remembered, too");
            assert_eq!(world.resolve(content(1)).await.providers.len(), PROVIDERS_MAX, "the best, for all others");
        })
        .await;
}
