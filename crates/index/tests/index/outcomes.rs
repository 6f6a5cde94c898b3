//! Honest outcomes, and for how long each is remembered.

use ron_lookup::BreakerState;
use ron_store::{ProviderFields, ProviderRecord, Record, Subject};
use ron_types::Kind;
use svc_index::ports::AskError;
use svc_index::words::{Outcome, ProviderOffer, ResolveOptions, Source};
use tokio::time::advance;

use crate::world::{Behaviour, Router, TENANT, answers, content, ms, name, new_key, provider, setup, vouched};

#[tokio::test(start_paused = true)]
async fn providers_of_the_own_region_rank_higher() {
    let mut setup = setup();
    setup.options.region = "eu".to_owned();
    let in_region = |region: Option<&str>| {
        let key = new_key();
        let ProviderRecord { key: content, peer, addrs, protocols, sequence, issued_ms, expires_ms, .. } =
            provider(content(1), &key, 1);
        let region = region.map(str::to_owned);
        let fields = ProviderFields { key: content, peer, addrs, protocols, region, sequence, issued_ms, expires_ms };
        ProviderRecord::sign(fields, &key).expect("within bounds")
    };
    let records: Vec<Record> = [Some("us"), None, Some("eu")].map(|region| Record::Provider(in_region(region))).into();
    setup.script.peer(1, answers(10, records));
    setup
        .run(|world| async move {
            let answer = world.resolve(content(1)).await;
            let order: Vec<_> =
                answer.providers.iter().map(|one| (one.record.region.as_deref(), one.terms.region)).collect();
            assert_eq!(order, [(Some("eu"), 0.10), (None, 0.05), (Some("us"), 0.0)]);
            let own = world.index.publish_provider(TENANT, &content(2), own_offer()).await.expect("room");
            assert_eq!(own.region.as_deref(), Some("eu"), "and the node says where it is");
            let vouched = ProviderOffer { peer: Some(new_key().node_id().into()), ..own_offer() };
            let vouched = world.index.publish_provider(TENANT, &content(2), vouched).await.expect("room");
            assert_eq!(vouched.region, None, "but not where others are");
        })
        .await;
}

fn own_offer() -> ProviderOffer {
    let addrs = vec!["/ip4/192.0.2.1/tcp/4001".parse().expect("an address")];
    ProviderOffer { peer: None, addrs, protocols: Vec::new(), ttl: None }
}

#[tokio::test(start_paused = true)]
async fn what_is_found_says_where_it_comes_from_and_how_old_it_is() {
    let setup = setup();
    let record = provider(content(1), &new_key(), 1);
    setup.script.peer(1, answers(20, vec![Record::Provider(record.clone())]));
    setup
        .run(|world| async move {
            let first = world.resolve(content(1)).await;
            assert_eq!((first.outcome, first.source, first.providers.len()), (Outcome::Found, Source::Dht, 1));
            assert_eq!((&first.providers[0].record, first.took, first.course.len()), (&record, ms(20), 1));
            assert!(first.providers[0].score > 0.0);
            advance(ms(5_000)).await;
            let second = world.resolve(content(1)).await;
            assert_eq!((second.source, second.age, world.script.asked()), (Source::Cache, ms(5_000), 1));
            assert!(std::sync::Arc::ptr_eq(&first.made, &second.made), "one encoding serves both");
            let fresh = ResolveOptions { fresh: true, ..ResolveOptions::default() };
            assert_eq!(world.resolve_with(content(1), fresh).await.source, Source::Dht);
            assert_eq!(world.script.asked(), 2);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn absent_is_what_all_the_nearest_say_and_is_remembered_longer_than_unknown() {
    let setup = setup();
    let (absent_ttl, unknown_ttl) = (setup.options.absent_ttl.duration(), setup.options.unknown_ttl.duration());
    assert!(unknown_ttl < absent_ttl);
    let peers: Vec<_> = (1..=3).map(|number| setup.script.peer(number, answers(10, Vec::new()))).collect();
    setup
        .run(|world| async move {
            let answer = world.resolve(content(1)).await;
            assert_eq!((answer.outcome, answer.fresh_for, world.script.asked()), (Outcome::Absent, absent_ttl, 3));
            advance(absent_ttl - ms(1)).await;
            assert_eq!((world.resolve(content(1)).await.source, world.script.asked()), (Source::Cache, 3));
            advance(ms(1)).await;
            assert_eq!((world.resolve(content(1)).await.source, world.script.asked()), (Source::Dht, 6));
            // From here on nobody answers.
            peers.iter().for_each(|peer| world.script.set(*peer, Behaviour::Silent));
            let answer = world.resolve(content(2)).await;
            assert_eq!((answer.outcome, answer.fresh_for), (Outcome::Unknown, unknown_ttl));
            let asked = world.script.asked();
            advance(unknown_ttl - ms(1)).await;
            assert_eq!((world.resolve(content(2)).await.source, world.script.asked()), (Source::Cache, asked));
            advance(ms(1)).await;
            assert_eq!(world.resolve(content(2)).await.source, Source::Dht);
            assert!(world.script.asked() > asked);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn degraded_says_how_many_targets_were_left_out() {
    let setup = setup();
    let bad = setup.script.peer(1, Behaviour::Fails(ms(1), AskError::Refused));
    setup.script.peer(2, answers(1, Vec::new()));
    setup
        .run(|world| async move {
            let mut events = world.index.events();
            for number in 0..10 {
                world.resolve(content(number)).await;
            }
            let asked = world.script.asked_of(&bad);
            assert!(asked < 10, "it is left out once it failed often enough: {asked}");
            let answer = world.resolve(content(99)).await;
            assert_eq!((answer.outcome, answer.open_targets), (Outcome::Degraded, 1));
            assert_eq!(world.script.asked_of(&bad), asked, "an open breaker is not asked");
            let left_out = world.index.targets();
            assert_eq!(left_out[0].target.to_string(), bad.to_string());
            assert_eq!(left_out[0].state, ron_lookup::BreakerState::Open);
            // Observers hear of it from the janitor.
            loop {
                match events.recv().await.expect("the index lives") {
                    ron_kernel::bus::Heard::Event(svc_index::words::IndexEvent::Breaker { target, state }) => {
                        assert_eq!((target.to_string(), state), (bad.to_string(), ron_lookup::BreakerState::Open));
                        break;
                    }
                    _ => continue,
                }
            }
            let scrape = world.kernel.metrics().render();
            assert!(scrape.contains(&format!("breaker_open_total{{target=\"{bad}\"}} 1\n")), "{scrape}");
            assert!(scrape.contains(&format!("breaker_state{{target=\"{bad}\",state=\"open\"}} 1")), "{scrape}");
            assert!(scrape.contains("# TYPE resolve_deadline_hit counter\n"), "{scrape}");
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn with_nobody_to_ask_the_store_is_all_there_is() {
    setup()
        .run(|world| async move {
            let answer = world.resolve(content(1)).await;
            assert_eq!((answer.outcome, answer.took), (Outcome::Absent, ms(0)));
            let id = world.index.publish_manifest(TENANT, "a document".into()).await.expect("room");
            let answer = world.resolve(id).await;
            let manifest = answer.manifest.expect("it is kept here");
            assert_eq!((manifest.id, manifest.length, answer.outcome), (id, 10, Outcome::Found));
            assert_eq!(answer.providers_outcome, Outcome::Absent, "and nobody else has it");
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_lying_peer_cannot_make_a_wrong_record_win() {
    let (honest, liar) = (new_key(), new_key());
    let good = provider(content(1), &honest, 5);
    let mut forged = good.clone();
    forged.sequence = 9;
    forged.addrs = vec!["/ip4/203.0.113.9/tcp/1".parse().expect("an address")];
    let vouched = vouched(content(1), good.peer, &liar, 1_000);
    let setup = setup();
    let liar_peer = setup.script.peer(1, answers(5, vec![Record::Provider(forged)]));
    setup.script.peer(2, answers(40, vec![Record::Provider(good.clone()), Record::Provider(vouched)]));
    setup
        .run(|world| async move {
            let answer = world.resolve(content(1)).await;
            assert_eq!(answer.providers.len(), 1, "what a peer says of itself counts, not what others say of it");
            assert_eq!(answer.providers[0].record, good);
            let lie = answer.course.iter().find(|ask| ask.target.to_string() == liar_peer.to_string());
            assert_eq!(lie.expect("it was asked").end, ron_lookup::AskEnd::Failed);
            assert!(world.kernel.metrics().render().contains("index_forged_total 1\n"));
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn what_the_store_holds_outlives_a_network_that_knows_nothing() {
    let (owner, setup) = (new_key(), setup());
    setup.script.peers(1..=3, &answers(5, Vec::new()));
    setup
        .run(|world| async move {
            let record = name("app", content(1), &owner, 1);
            let subject: Subject = format!("name:app@{}", record.owner).parse().expect("a name");
            let mut watch = world.index.watch(&subject).expect("room");
            assert_eq!(world.index.offer(vec![Record::Name(record.clone())]), Ok(1));
            watch.next().await;
            // The first answer has the network asked in the background; what comes of that is no reason to forget.
            for _ in 0..4 {
                let answer = world.index.resolve(TENANT, subject.clone(), ResolveOptions::default()).await;
                assert_eq!(answer.expect("answered").name.as_ref(), Some(&record));
                advance(ms(1_000)).await;
            }
            assert_ne!(world.script.asked(), 0, "the network was asked");
            let fresh = ResolveOptions { fresh: true, ..ResolveOptions::default() };
            let answer = world.index.resolve(TENANT, subject, fresh).await.expect("answered");
            assert_eq!(answer.name, Some(record));
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_older_name_never_wins_over_a_newer_one() {
    let (owner, setup) = (new_key(), setup());
    let (old, new) = (name("app", content(1), &owner, 1), name("app", content(2), &owner, 2));
    // The peer that answers first still has the old one.
    setup.script.peer(1, answers(5, vec![Record::Name(old.clone())]));
    setup.script.peer(2, answers(50, vec![Record::Name(new.clone())]));
    setup
        .run(|world| async move {
            let subject: Subject = format!("name:app@{}", old.owner).parse().expect("a name");
            let mut watch = world.index.watch(&subject).expect("room");
            let first = world.index.resolve(TENANT, subject.clone(), ResolveOptions::default()).await.expect("found");
            assert_eq!(first.name.as_ref(), Some(&old), "the first valid record is the answer");
            assert_eq!(first.content, Some(content(1)));
            assert_eq!(watch.next().await, svc_index::words::Notice::Name(old));
            // Asked again, the store answers, and all targets are asked in the background.
            let second = world.index.resolve(TENANT, subject.clone(), ResolveOptions::default()).await.expect("found");
            assert_eq!(second.outcome, Outcome::Found);
            assert_eq!(watch.next().await, svc_index::words::Notice::Name(new.clone()));
            let third = world.index.resolve(TENANT, subject, ResolveOptions::default()).await.expect("found");
            assert_eq!((third.name, third.content), (Some(new), Some(content(2))));
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_newer_name_is_looked_for_once_the_first_answer_is_given() {
    let (owner, setup) = (new_key(), setup());
    let (old, new) = (name("app", content(1), &owner, 1), name("app", content(2), &owner, 2));
    setup.script.peer(1, answers(5, vec![Record::Name(old.clone())]));
    setup.script.peer(2, answers(50, vec![Record::Name(new.clone())]));
    setup
        .run(|world| async move {
            let subject: Subject = format!("name:app@{}", old.owner).parse().expect("a name");
            let first = world.index.resolve(TENANT, subject, ResolveOptions::default()).await.expect("found");
            assert_eq!(first.name.as_ref(), Some(&old), "the first valid record is the answer");
            // Nobody asks again, and nobody watches.
            tokio::time::sleep(ms(2_000)).await;
            let known = world.index.names(Some(old.owner), None, 10).await.expect("the store answers");
            assert_eq!(known, [new]);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_upstream_router_is_a_target_like_any_other() {
    let mut setup = setup();
    let record = provider(content(1), &new_key(), 1);
    setup.script.peer(1, Behaviour::Silent);
    setup.upstreams.push(std::sync::Arc::new(Router("https://router.example", vec![Record::Provider(record)])));
    setup
        .run(|world| async move {
            let answer = world.resolve(content(1)).await;
            assert_eq!((answer.outcome, answer.took), (Outcome::Found, ms(30)));
            let won = answer.course.iter().find(|ask| ask.end == ron_lookup::AskEnd::Won).expect("somebody won");
            assert_eq!(won.target.to_string(), "https://router.example");
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_no_name_and_a_record_that_does_not_hold_are_told_apart() {
    setup()
        .run(|world| async move {
            let mut forged = provider(content(1), &new_key(), 1);
            forged.sequence = 2;
            let error = world.index.publish_record(TENANT, Record::Provider(forged)).await.expect_err("forged");
            assert_eq!(error.kind, Kind::Integrity);
            let error = world.index.name_set(TENANT, "NOT A LABEL", content(1), None).await.expect_err("no label");
            assert_eq!(error.kind, Kind::Schema);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn the_course_of_a_name_shows_its_two_lookups_one_after_the_other() {
    let (owner, setup) = (new_key(), setup());
    let (named, provided) = (name("app", content(1), &owner, 1), provider(content(1), &owner, 1));
    let subject: Subject = format!("name:app@{}", named.owner).parse().expect("a name");
    setup.script.peer(1, answers(30, vec![Record::Name(named), Record::Provider(provided)]));
    setup
        .run(|world| async move {
            let answer = world.index.resolve(TENANT, subject, ResolveOptions::default()).await.expect("an answer");
            let times: Vec<_> = answer.course.iter().map(|ask| (ask.started, ask.ended)).collect();
            assert_eq!(times, [(ms(0), ms(30)), (ms(30), ms(60))]);
            assert!(answer.course.iter().all(|ask| ask.breaker == BreakerState::Closed));
        })
        .await;
}
