//! Publishing, coalescing, watching, and what operators do.

use futures_util::future::join_all;
use ron_kernel::bus::Heard;
use ron_store::{ContentId, Multiaddr, Record, Subject};
use ron_types::Kind;
use svc_index::words::{
    AdminAction, AdminRequest, IndexEvent, Notice, Outcome, ProviderOffer, PublishOutcome, ResolveOptions, Source,
};

use crate::world::{OWN_ADDR, TENANT, answers, content, new_key, provider, setup};

fn offer() -> ProviderOffer {
    let addrs = vec!["/ip4/192.0.2.1/tcp/4001".parse().expect("an address")];
    ProviderOffer { peer: None, addrs, protocols: vec!["transport-ipfs-gateway-http".to_owned()], ttl: None }
}

#[tokio::test(start_paused = true)]
async fn what_is_published_is_found_at_once_told_to_watchers_and_given_to_the_network() {
    setup()
        .run(|world| async move {
            let mut watch = world.index.watch(&Subject::Content(content(1))).expect("room");
            assert_eq!(world.resolve(content(1)).await.outcome, Outcome::Absent);
            let record = world.index.publish_provider(TENANT, &content(1), offer()).await.expect("room");
            assert!(record.is_self_signed() && record.peer == world.index.node_peer());
            let answer = world.resolve(content(1)).await;
            assert_eq!((answer.outcome, answer.source), (Outcome::Found, Source::Store), "absent is forgotten");
            assert_eq!(answer.providers[0].record, record);
            assert_eq!(watch.next().await, Notice::Provider { record: record.clone(), withdrawn: false });
            assert_eq!(world.script.kept(), [Record::Provider(record)]);
            let withdrawn = world.index.withdraw_provider(TENANT, &content(1), None).await.expect("room");
            assert!(withdrawn.withdraws());
            assert_eq!(world.resolve(content(1)).await.outcome, Outcome::Absent);
            assert_eq!(watch.next().await, Notice::Provider { record: withdrawn, withdrawn: true });
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn updates_of_one_key_coalesce_and_the_newest_wins() {
    setup()
        .run(|world| async move {
            let key = new_key();
            let records = [3, 50, 7, 49].map(|sequence| Record::Provider(provider(content(1), &key, sequence)));
            let publish = |place: usize| {
                let (index, record) = (&world.index, records[place].clone());
                async move { index.publish_record(TENANT, record).await.expect("room") }
            };
            // Offered in one breath, before the writer has its turn; the newest is neither first nor last.
            let outcomes = join_all((0..4).map(publish)).await;
            use PublishOutcome::{Older, Stored};
            assert_eq!(outcomes, [Older, Stored, Older, Older]);
            let answer = world.resolve(content(1)).await;
            assert_eq!((answer.providers.len(), answer.providers[0].record.sequence), (1, 50));
            assert_eq!(publish(1).await, PublishOutcome::Same);
            assert_eq!(publish(3).await, PublishOutcome::Older);
            let scrape = world.kernel.metrics().render();
            assert!(scrape.contains("queue_dropped_total{queue=\"index_ingest\"} 3\n"), "{scrape}");
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn records_of_peers_are_kept_if_they_hold_and_answered_to_peers() {
    setup()
        .run(|world| async move {
            let good = provider(content(1), &new_key(), 1);
            let mut forged = provider(content(1), &new_key(), 1);
            forged.expires_ms += 1;
            let records = vec![Record::Provider(forged), Record::Provider(good.clone())];
            assert_eq!(world.index.offer(records), Ok(1));
            let answer = world.resolve(content(1)).await;
            assert!(answer.providers.is_empty() || answer.providers[0].record == good);
            // Once it is written, peers get it from the store.
            let mut watch = world.index.watch(&Subject::Content(content(2))).expect("room");
            assert_eq!(world.index.offer(vec![Record::Provider(provider(content(2), &new_key(), 1))]), Ok(1));
            watch.next().await;
            let question = svc_index::ports::Question::Providers(content(1).key());
            let reply = world.index.answer(&question, ron_kernel::clock::unix_millis());
            assert_eq!(reply.records, [Record::Provider(good)]);
            assert!(world.script.kept().is_empty(), "what a peer gave is not sent on");
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_name_of_this_node_leads_to_content_and_follows() {
    setup()
        .run(|world| async move {
            let first = world.index.name_set(TENANT, "app", content(1), None).await.expect("room");
            let subject: Subject = "name:app".parse().expect("a name");
            let mut watch = world.index.watch(&subject).expect("room");
            let resolve = || world.index.resolve(TENANT, subject.clone(), ResolveOptions::default());
            let answer = resolve().await.expect("an answer");
            assert_eq!((answer.outcome, answer.name, answer.content), (Outcome::Found, Some(first), Some(content(1))));
            assert_eq!(answer.providers_outcome, Outcome::Absent, "and nobody has the content");
            let second = world.index.name_set(TENANT, "app", content(2), None).await.expect("room");
            assert_eq!(resolve().await.expect("an answer").content, Some(content(2)));
            assert_eq!(watch.next().await, Notice::Name(second.clone()));
            let names = world.index.names(None, None, 10).await.expect("the store answers");
            assert_eq!(names, [second]);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_idempotency_key_does_a_request_once_and_every_request_is_audited() {
    setup()
        .run(|world| async move {
            let mut events = world.index.events();
            let request = |action: AdminAction, key: Option<&str>| AdminRequest {
                action,
                subject: Subject::Content(content(1)),
                by: "operator".to_owned(),
                idempotency_key: key.map(str::to_owned),
            };
            let pinned = world.index.administer(request(AdminAction::Pin, Some("k1"))).await.expect("done");
            assert_eq!((pinned.changed, pinned.replayed), (true, false));
            let again = world.index.administer(request(AdminAction::Pin, Some("k1"))).await.expect("replayed");
            assert_eq!((again.changed, again.replayed), (true, true));
            let error = world.index.administer(request(AdminAction::Unpin, Some("k1"))).await.expect_err("another");
            assert_eq!(error.kind, Kind::Conflict);
            let pins = world.index.pins(None, 10).await.expect("the store answers");
            assert_eq!(pins.len(), 1);
            let unpinned = world.index.administer(request(AdminAction::Unpin, None)).await.expect("done");
            assert!(unpinned.changed);
            let error = world.index.administer(request(AdminAction::Pin, Some(""))).await.expect_err("no key");
            assert_eq!(error.kind, Kind::Schema);
            let mut audited = Vec::new();
            while audited.len() < 3 {
                if let Some(Heard::Event(IndexEvent::Audited { action, done, by, .. })) = events.recv().await {
                    audited.push((action, done.replayed, by));
                }
            }
            let by = || "operator".to_owned();
            let expected =
                [(AdminAction::Pin, false, by()), (AdminAction::Pin, true, by()), (AdminAction::Unpin, false, by())];
            assert_eq!(audited, expected);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_reindex_that_found_no_room_is_not_remembered_as_done() {
    let setup = setup();
    let peer = setup.script.peer(1, crate::world::Behaviour::Silent);
    setup
        .run(|world| async move {
            let request = |subject: ContentId, key: Option<&str>| AdminRequest {
                action: AdminAction::Reindex,
                subject: Subject::Content(subject),
                by: "operator".to_owned(),
                idempotency_key: key.map(str::to_owned),
            };
            let mut others = 0_u32;
            while world.index.administer(request(ContentId::of_bytes(&others.to_le_bytes()), None)).await.is_ok() {
                others += 1;
            }
            let refused = world.index.administer(request(content(1), Some("key"))).await.expect_err("no room");
            assert_eq!(refused.kind, Kind::Busy);
            tokio::time::sleep(std::time::Duration::from_secs(120)).await;
            let asked = world.script.asked_of(&peer);
            let done = world.index.administer(request(content(1), Some("key"))).await.expect("room again");
            assert!(!done.replayed, "it was not done before");
            tokio::time::sleep(std::time::Duration::from_secs(2)).await;
            assert!(world.script.asked_of(&peer) > asked, "and it is done now");
            let again = world.index.administer(request(content(1), Some("key"))).await.expect("replayed");
            assert!(again.replayed);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn reindex_forgets_and_asks_again() {
    let setup = setup();
    let peer = setup.script.peer(1, crate::world::answers(10, Vec::new()));
    setup
        .run(|world| async move {
            assert_eq!(world.resolve(content(1)).await.outcome, Outcome::Absent);
            let record = provider(content(1), &new_key(), 1);
            world.script.set(peer, crate::world::answers(10, vec![Record::Provider(record)]));
            assert_eq!(world.resolve(content(1)).await.source, Source::Cache);
            let mut events = world.index.events();
            let request = AdminRequest {
                action: AdminAction::Reindex,
                subject: Subject::Content(content(1)),
                by: "operator".to_owned(),
                idempotency_key: None,
            };
            world.index.administer(request).await.expect("done");
            while !matches!(events.recv().await, Some(Heard::Event(IndexEvent::LookedUp(_)))) {}
            let answer = world.resolve(content(1)).await;
            assert_eq!((answer.outcome, answer.source), (Outcome::Found, Source::Cache));
            assert_eq!(world.index.recent_lookups().len(), 2);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_document_too_large_is_refused_before_anything_else() {
    setup()
        .run(|world| async move {
            let limit = world.index.live().body_bytes_max;
            let error = world.index.publish_manifest(TENANT, vec![0; limit + 1].into()).await.expect_err("too large");
            assert_eq!(error.kind, Kind::FrameTooLarge);
            let id = world.index.publish_manifest(TENANT, vec![7; limit].into()).await.expect("room");
            let bytes = world.index.manifest(&id).await.expect("the store answers").expect("it is there");
            assert_eq!((bytes.len(), id.verifies(&bytes)), (limit, Some(true)));
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn the_node_says_itself_where_it_is_and_asks_nobody() {
    let setup = setup();
    let stranger = setup.script.peer(1, answers(5, Vec::new()));
    setup
        .run(|world| async move {
            let own = world.index.node_peer();
            let ask = async |peer| {
                let answer = world.index.peer(TENANT, peer, ResolveOptions::default()).await.expect("an answer");
                (answer.outcome, answer.record.map(|record| (record.peer, record.addrs)))
            };
            let addrs: Vec<Multiaddr> = vec![OWN_ADDR.parse().expect("an address")];
            assert_eq!(ask(own).await, (Outcome::Found, Some((own, addrs))));
            assert_eq!(world.script.asked(), 0);
            // It moved; what it says is of now.
            let moved: Vec<Multiaddr> = vec!["/ip4/192.0.2.10/tcp/1".parse().expect("an address")];
            *world.addrs.lock().expect("nobody panicked") = moved.clone();
            assert_eq!(ask(own).await, (Outcome::Found, Some((own, moved))));
            // Reached nowhere, it can only ask like anybody else, and of others it always does.
            world.addrs.lock().expect("nobody panicked").clear();
            assert_eq!(ask(own).await, (Outcome::Absent, None));
            assert_eq!(ask(stranger).await, (Outcome::Absent, None));
            assert_eq!(world.script.asked(), 2);
        })
        .await;
}
