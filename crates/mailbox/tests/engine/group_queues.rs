//! Keys, groups and settings: what a first-in-first-out topic promises across restarts.

use std::collections::BTreeMap;

use svc_mailbox::{Dedup, Receipted, TopicView};

use super::*;

fn keyed(key: &str, group: &str, payload: &str, dedup: Dedup) -> Outgoing {
    Outgoing {
        idem_key: Some(key.to_owned()),
        group: Some(group.to_owned()),
        payload: payload.to_owned().into(),
        dedup,
        ..Outgoing::default()
    }
}

async fn fifo(running: &RunningMailbox, topic: &str) {
    let settings = TopicSettings { groups: Groups::Fifo, ..TopicSettings::default() };
    running.mailbox.create_topic(&name(topic), settings, soon()).await.expect("made");
}

fn texts(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(|delivery| String::from_utf8_lossy(&delivery.payload).into_owned()).collect()
}

/// Sends each key again with another payload: which message it stands for.
async fn again(running: &RunningMailbox, topic: &str, key: &str, group: &str, dedup: Dedup) -> Receipted {
    running.send_as(topic, keyed(key, group, "something else", dedup)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_and_order_survive_receives_acknowledgements_and_restarts() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = RunningMailbox::start(on_disk(folder.path())).await;
    fifo(&running, "whole").await;
    fifo(&running, "grouped").await;
    let first = running.send_as("whole", keyed("k", "a", "a0", Dedup::Topic)).await;
    let mut of_groups = Vec::new();
    for group in ["a", "b"] {
        let sent = running.send_as("grouped", keyed("k", group, group, Dedup::Group)).await;
        assert!(!sent.duplicate, "the key is another in another group");
        of_groups.push(sent.msg_id);
    }
    for n in 1..6 {
        for group in ["b", "a"] {
            let text = format!("{group}{n}");
            assert!(!running.send_as("whole", keyed(&text, group, &text, Dedup::Topic)).await.duplicate);
        }
    }
    let head = running.recv("whole", 1).await.remove(0);
    assert_eq!(head.msg_id, first.msg_id);
    running.ack(&head).await;
    let out = running.recv("whole", 2).await;
    assert_eq!(texts(&out), ["b1", "b2"]);
    assert_eq!(running.stop().await, 0);

    let running = RunningMailbox::start(on_disk(folder.path())).await;
    let known = again(&running, "whole", "k", "b", Dedup::Topic).await;
    assert!(known.duplicate && known.msg_id == first.msg_id, "acknowledged, and still known");
    let conflict = running.mailbox.send(&anybody(), &name("whole"), keyed("k", "a", "x", Dedup::Payload), soon()).await;
    assert_eq!(conflict.expect_err("another payload").kind, Kind::Conflict);
    for (group, id) in ["a", "b"].into_iter().zip(of_groups) {
        let known = again(&running, "grouped", "k", group, Dedup::Group).await;
        assert!(known.duplicate && known.msg_id == id, "{group}");
    }
    assert!(!again(&running, "grouped", "k", "c", Dedup::Group).await.duplicate);
    assert_eq!(texts(&running.recv("whole", 100).await), ["a1", "a2", "a3", "a4", "a5"], "group b is with a consumer");
    running.ack(&out[0]).await;
    assert!(running.recv("whole", 100).await.is_empty(), "one of two is not enough");
    running.ack(&out[1]).await;
    assert_eq!(texts(&running.recv("whole", 100).await), ["b3", "b4", "b5"]);
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_forgets_keys_also_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = RunningMailbox::start(on_disk(folder.path())).await;
    let settings = TopicSettings { groups: Groups::Fifo, partitions: 3, ..TopicSettings::default() };
    running.mailbox.create_topic(&name("t"), settings, soon()).await.expect("made");
    let keys = ["k0", "k1", "k2", "k3", "k4", "k5"];
    for key in keys {
        running.send_as("t", keyed(key, key, key, Dedup::Topic)).await;
    }
    let [settled] = &running.recv("t", 1).await[..] else { panic!("one message") };
    running.ack(settled).await;
    assert_eq!(running.mailbox.purge(&name("t"), soon()).await.expect("purged"), 5);
    let anew = again(&running, "t", "k0", "k0", Dedup::Topic).await;
    assert!(!anew.duplicate);
    assert_eq!(running.stop().await, 0);

    let running = RunningMailbox::start(on_disk(folder.path())).await;
    for key in keys {
        let sent = again(&running, "t", key, key, Dedup::Topic).await;
        assert_eq!(sent.duplicate, key == "k0", "{key}");
        assert_eq!(sent.msg_id == anew.msg_id, key == "k0", "{key}");
    }
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_edited_by_many_at_once_lose_no_change() {
    let folder = tempfile::tempdir().expect("a folder");
    let running = RunningMailbox::start(on_disk(folder.path())).await;
    let (made, _) = running.mailbox.create_topic(&name("t"), TopicSettings::default(), soon()).await.expect("made");
    assert_eq!(made.modified_ms, made.created_ms);
    let edits = (0..40).map(|n| {
        let put = move |settings: &mut TopicSettings| {
            settings.labels.insert(format!("tag.{n}"), n.to_string());
            Ok(())
        };
        running.mailbox.edit_topic(&made.name, put, soon())
    });
    let edited: Vec<TopicView> = futures_util::future::try_join_all(edits).await.expect("edited");
    assert!(edited.iter().all(|view| view.modified_ms >= made.created_ms));
    let refused = running.mailbox.edit_topic(&made.name, |_| Err(ron_types::Error::schema("no")), soon()).await;
    assert_eq!(refused.expect_err("as the change said").detail, "no");
    let nowhere = |settings: &mut TopicSettings| {
        settings.dlq = Some("nowhere".to_owned());
        Ok(())
    };
    assert_eq!(
        running.mailbox.edit_topic(&made.name, nowhere, soon()).await.expect_err("no such topic").kind,
        Kind::Schema
    );
    assert_eq!(running.mailbox.topic(&name("nowhere")).expect_err("not made").kind, Kind::NotFound);
    running.mailbox.create_topic(&name("nowhere"), TopicSettings::default(), soon()).await.expect("made");
    let view = running.mailbox.edit_topic(&made.name, nowhere, soon()).await.expect("it is there now");
    assert_eq!(running.mailbox.sources_of(&name("nowhere")), std::slice::from_ref(&made.name));
    let same = running.mailbox.edit_topic(&made.name, nowhere, soon()).await.expect("nothing to change");
    assert_eq!(same.modified_ms, view.modified_ms);
    assert_eq!(running.stop().await, 0);

    let running = RunningMailbox::start(on_disk(folder.path())).await;
    let found = running.mailbox.topic(&made.name).expect("it is there");
    assert_eq!((found.created_ms, found.modified_ms), (made.created_ms, view.modified_ms));
    let labels: BTreeMap<_, _> = (0..40).map(|n| (format!("tag.{n}"), n.to_string())).collect();
    assert_eq!((&found.settings.labels, &found.settings), (&labels, &view.settings));
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_received_for_no_time_is_there_for_the_next_and_may_still_be_acknowledged() {
    let running = RunningMailbox::start(LogLocation::Memory).await;
    running.send("t", "x").await;
    let short = || Receive { visibility_ms: Some(0), ..once() };
    let first = running.recv_as("t", short()).await.remove(0);
    let second = running.recv_as("t", short()).await.remove(0);
    assert_eq!((second.msg_id, second.attempt), (first.msg_id, 2));
    for (visibility_ms, is_allowed) in [(0, false), (249, false), (250, true), (43_200_001, false)] {
        assert_eq!(running.mailbox.check_visibility(visibility_ms).is_ok(), is_allowed, "{visibility_ms}");
    }
    let over = Receive { visibility_ms: Some(43_200_001), ..once() };
    let refused = running.mailbox.recv(&anybody(), &name("t"), over, soon()).await.expect_err("over twelve hours");
    assert_eq!(refused.kind, Kind::Schema);

    let outcome = running.mailbox.ack(vec![first.receipt], soon()).await.remove(0);
    assert_eq!(outcome.expect_err("somebody else has had it since").kind, Kind::NotFound);
    assert!(running.mailbox.is_held(&first.receipt, soon()).await.expect("known"), "the message is there all the same");
    running.ack(&second).await;
    assert!(!running.mailbox.is_held(&first.receipt, soon()).await.expect("known"));

    running.send("t", "y").await;
    let third = running.recv("t", 1).await.remove(0);
    assert!(running.mailbox.is_held(&third.receipt, soon()).await.expect("known"));
    running.mailbox.nack(vec![third.receipt], "no", None, true, soon()).await.remove(0).expect("rejected");
    assert!(!running.mailbox.is_held(&third.receipt, soon()).await.expect("known"), "it is in another topic now");
    running.mailbox.delete_topic(&name("t"), soon()).await.expect("deleted");
    assert!(!running.mailbox.is_held(&third.receipt, soon()).await.expect("known"));
    assert_eq!(running.stop().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attributes_may_be_as_large_as_other_surfaces_allow() {
    let folder = tempfile::tempdir().expect("a folder");
    let max = ron_types::limits::mailbox::ENVELOPE_ATTRIBUTE_BYTES_MAX;
    let with = |bytes: usize| Outgoing {
        attrs: vec![("$type.".to_owned() + &"n".repeat(256), "v".repeat(bytes))],
        payload: vec![7; 1 << 20].into(),
        ..Outgoing::default()
    };
    let running =
        RunningMailbox::with(MailboxOptions { location: on_disk(folder.path()), ..MailboxOptions::default() }).await;
    running.send_as("t", with(max - 262)).await;
    let refused = running.mailbox.send(&anybody(), &name("t"), with(max - 261), soon()).await;
    assert_eq!(refused.expect_err("one byte too many").kind, Kind::Schema);
    assert_eq!(running.stop().await, 0);
    let running =
        RunningMailbox::with(MailboxOptions { location: on_disk(folder.path()), ..MailboxOptions::default() }).await;
    let delivery = running.recv("t", 1).await.remove(0);
    assert_eq!((delivery.attrs[0].1.len(), delivery.payload.len()), (max - 262, 1 << 20));
    assert_eq!(running.stop().await, 0);
}
