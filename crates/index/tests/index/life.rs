//! Start, reload, amnesia and drain.

use ron_kernel::bus::Heard;
use ron_store::{Record, Subject};
use ron_types::Kind;
use svc_index::words::{IndexEvent, Outcome, ResolveOptions, Source};

use crate::world::{Behaviour, TENANT, answers, content, ms, new_key, provider, setup};

#[tokio::test(start_paused = true)]
async fn a_reload_changes_the_deadline_and_the_time_answers_last() {
    let mut setup = setup();
    setup.script.peers(1..=60, &Behaviour::Silent);
    let mut options = setup.options.clone();
    setup.options.resolve_deadline = ron_types::TimeSpan(600);
    options.resolve_deadline = ron_types::TimeSpan(300);
    options.unknown_ttl = ron_types::TimeSpan(0);
    setup
        .run(|world| async move {
            assert!((ms(550)..=ms(600)).contains(&world.resolve(content(1)).await.took));
            world.live.publish(options.live());
            let answer = world.resolve(content(2)).await;
            assert!((ms(250)..=ms(300)).contains(&answer.took), "{:?}", answer.took);
            assert_eq!(world.resolve(content(2)).await.source, Source::Dht, "nothing is remembered any more");
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn amnesia_forgets_every_answer_after_each_interval() {
    let mut setup = setup();
    setup.options.purge_interval = ron_types::TimeSpan(10_000);
    setup.script.peer(1, answers(10, vec![Record::Provider(provider(content(1), &new_key(), 1))]));
    setup
        .run(|world| async move {
            let mut events = world.index.events();
            assert_eq!(world.resolve(content(1)).await.source, Source::Dht);
            assert_eq!(world.resolve(content(1)).await.source, Source::Cache);
            loop {
                if let Some(Heard::Event(IndexEvent::Purged { entries })) = events.recv().await {
                    assert_eq!(entries, 1);
                    break;
                }
            }
            assert!(world.index.recent_lookups().is_empty());
            assert_eq!(world.index.stats().await.expect("the store answers").cached, 0);
            assert_eq!(world.resolve(content(1)).await.source, Source::Dht);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn configured_keys_are_there_before_somebody_asks() {
    let mut setup = setup();
    setup.options.warmup_keys = vec![content(1).to_string(), "nonsense".to_owned()];
    setup.script.peer(1, answers(10, vec![Record::Provider(provider(content(1), &new_key(), 1))]));
    setup
        .run(|world| async move {
            tokio::time::sleep(ms(1_000)).await;
            assert_eq!((world.script.asked(), world.resolve(content(1)).await.source), (1, Source::Cache));
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_answers_what_is_under_way_and_leaves_no_task() {
    let mut setup = setup();
    // The second lookup waits in the queue when the drain begins.
    setup.resolvers = 1;
    let peer = setup.script.peer(1, answers(200, vec![Record::Provider(provider(content(1), &new_key(), 1))]));
    setup
        .run(|world| async move {
            let index = world.index.clone();
            let under_way = async {
                let resolve =
                    |number| index.resolve(TENANT, Subject::Content(content(number)), ResolveOptions::default());
                tokio::join!(resolve(1), resolve(2))
            };
            let drain = async {
                tokio::time::sleep(ms(50)).await;
                world.script.set(peer, Behaviour::Silent);
                world.kernel.drain().await.expect("the supervisor listens");
            };
            let ((first, second), ()) = tokio::join!(under_way, drain);
            assert_eq!(first.expect("it was under way").outcome, Outcome::Found);
            match second {
                Ok(answer) => assert_ne!(answer.outcome, Outcome::Degraded),
                Err(error) => assert_eq!(error.kind, Kind::Canceled),
            }
            assert_eq!(world.script.open(), 0, "no question is left");
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_keeps_records_and_documents() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || {
        let opened = ron_store::Store::open(&folder.path().join("index.redb"), ron_store::Bounds::default());
        let opened = opened.expect("the store opens");
        assert_eq!(opened.lost, None);
        crate::world::Setup { store: opened.store, is_amnesia: false, ..setup() }
    };
    let record = provider(content(1), &new_key(), 1);
    let published = record.clone();
    open()
        .run(|world| async move {
            world.index.publish_record(TENANT, Record::Provider(published)).await.expect("room");
            world.index.publish_manifest(TENANT, "a document".into()).await.expect("room");
        })
        .await;
    open()
        .run(|world| async move {
            let answer = world.resolve(content(1)).await;
            assert_eq!((answer.source, &answer.providers[0].record), (Source::Store, &record));
            let manifest = world.index.manifest(&ron_store::ContentId::of_bytes(b"a document")).await;
            assert_eq!(manifest.expect("the store answers").as_deref(), Some(&b"a document"[..]));
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn usage_is_metered_by_tenant() {
    setup()
        .run(|world| async move {
            world.kernel.meter().begin();
            world.resolve(content(1)).await;
            world.resolve(content(1)).await;
            world.index.publish_manifest("other", "four".into()).await.expect("room");
            let mut rows = Vec::new();
            world.kernel.meter().take(&mut |tenant, metric, sum| rows.push((tenant.to_owned(), metric, sum)));
            rows.sort();
            let row = |tenant: &str, metric, sum| (tenant.to_owned(), metric, sum);
            let expected = [
                row("other", "index.manifest_bytes", 4),
                row("other", "index.publications", 1),
                row(TENANT, "index.resolves", 2),
            ];
            assert_eq!(rows, expected);
        })
        .await;
}
