//! What those who watch hear of changes that happen elsewhere.

use std::time::Duration;

use ron_kernel::Deadline;
use ron_store::{ContentId, Record, Subject};
use ron_types::limits::index::{WATCHED_LOOKED_UP_EVERY, WATCHED_LOOKED_UP_PER_SECOND};
use svc_index::Watch;
use svc_index::words::Notice;
use tokio::time::sleep;

use crate::world::{TENANT, answers, content, ms, name, new_key, provider, setup};

/// The next change that is heard in this time.
async fn within(time: Duration, watch: &mut Watch) -> Option<Notice> {
    Deadline::after(time).run("watch", watch.next()).await.ok()
}

#[tokio::test(start_paused = true)]
async fn a_watcher_hears_of_providers_that_only_the_network_knows() {
    let (setup, before, after) = (setup(), provider(content(1), &new_key(), 1), provider(content(1), &new_key(), 1));
    let peer = setup.script.peer(1, answers(5, vec![Record::Provider(before.clone())]));
    setup
        .run(|world| async move {
            let mut watch = world.index.watch(&Subject::Content(content(1))).expect("room");
            assert!(within(ms(5_000), &mut watch).await.is_none(), "what was there before is no change");
            let both = vec![Record::Provider(before), Record::Provider(after.clone())];
            world.script.set(peer, answers(5, both));
            let heard = within(WATCHED_LOOKED_UP_EVERY + ms(2_000), &mut watch).await;
            assert_eq!(heard, Some(Notice::Provider { record: after.clone(), withdrawn: false }));
            assert!(within(3 * WATCHED_LOOKED_UP_EVERY, &mut watch).await.is_none(), "and hears it once");
            // What the store told is not told again when it is found elsewhere too.
            let here = provider(content(1), &new_key(), 1);
            world.index.publish_record(TENANT, Record::Provider(here.clone())).await.expect("room");
            assert_eq!(watch.next().await, Notice::Provider { record: here, withdrawn: false });
            assert!(within(3 * WATCHED_LOOKED_UP_EVERY, &mut watch).await.is_none());
            drop(watch);
            let asked = world.script.asked();
            sleep(3 * WATCHED_LOOKED_UP_EVERY).await;
            assert_eq!(world.script.asked(), asked, "nobody watches any more");
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_watcher_hears_of_a_name_that_was_pointed_elsewhere_at_another_node() {
    let (owner, setup) = (new_key(), setup());
    let peer = setup.script.peer(1, answers(5, Vec::new()));
    setup
        .run(|world| async move {
            let record = name("app", content(1), &owner, 1);
            let subject: Subject = format!("name:app@{}", record.owner).parse().expect("a name");
            let mut watch = world.index.watch(&subject).expect("room");
            for record in [record, name("app", content(2), &owner, 2)] {
                world.script.set(peer, answers(5, vec![Record::Name(record.clone())]));
                let heard = within(WATCHED_LOOKED_UP_EVERY + ms(2_000), &mut watch).await;
                assert_eq!(heard, Some(Notice::Name(record)));
            }
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn many_watchers_cost_a_few_lookups_a_second_and_each_has_its_turn() {
    const SUBJECTS: usize = 1_000;
    let setup = setup();
    let peer = setup.script.peer(1, answers(5, Vec::new()));
    setup
        .run(|world| async move {
            let watch = |number: usize| {
                let subject = Subject::Content(ContentId::of_bytes(&number.to_le_bytes()));
                world.index.watch(&subject).expect("room")
            };
            let watches: Vec<_> = (0..SUBJECTS).map(watch).collect();
            let seconds = SUBJECTS / WATCHED_LOOKED_UP_PER_SECOND;
            sleep(ms(1_000 * seconds as u64)).await;
            let asked = world.script.asked_of(&peer);
            assert!(asked.abs_diff(SUBJECTS) <= 2 * WATCHED_LOOKED_UP_PER_SECOND, "{asked} questions in {seconds} s");
            drop(watches);
        })
        .await;
}
