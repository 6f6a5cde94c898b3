//! The table of topics: whose dead letters are where, which names are free, and what old records say.

use ron_types::limits::mailbox as limits;

use super::*;

fn name(text: &str) -> TopicName {
    text.parse().expect("a name")
}

fn made(topics: &Topics, text: &str, settings: TopicSettings) -> Arc<Topic> {
    let planned = topics.plan_new(&name(text), settings, None).expect("allowed").expect("new");
    let stored = planned.stored(1, 1);
    topics.put(planned.id, planned.name, stored)
}

#[test]
fn a_topic_has_its_own_dead_letters_unless_it_names_others() {
    let topics = Topics::default();
    let orders = made(&topics, "orders", TopicSettings::default());
    let dead = topics.expect(&name("orders.dlq")).expect("comes with the topic");
    assert_eq!(topics.dead_letters_of(&orders).map(|part| part.topic), Some(dead.id));
    assert_eq!(topics.dead_letters_of(&dead), None, "what is dead does not die again");
    assert_eq!((dead.id.home(), topics.len()), (orders.id.0, 1));
    assert_eq!(
        topics.plan_new(&name("orders.dlq"), TopicSettings::default(), None).expect_err("taken").kind,
        Kind::Conflict
    );

    let grave = made(&topics, "grave", TopicSettings::default());
    let others = TopicSettings { dlq: Some("grave".to_owned()), ..TopicSettings::default() };
    let jobs = made(&topics, "jobs", others);
    assert_eq!(topics.dead_letters_of(&jobs).map(|part| part.topic), Some(grave.id));
    assert!(topics.get(&name("jobs.dlq")).is_some(), "what died before another topic was named is still there");
    assert_eq!(topics.users_of_dead_letters(grave.id), [name("jobs")]);
    assert_eq!(topics.users_of_dead_letters(dead.id), []);
    let others = TopicSettings { dlq: Some("grave".to_owned()), ..TopicSettings::default() };
    made(&topics, "a", others);
    assert_eq!(topics.users_of_dead_letters(grave.id), [name("a"), name("jobs")]);
}

#[test]
fn making_a_topic_again_is_fine_with_the_same_settings_only() {
    let topics = Topics::default();
    made(&topics, "a", TopicSettings::default());
    assert!(topics.plan_new(&name("a"), TopicSettings::default(), None).expect("the same").is_none());
    let other = TopicSettings { delay_ms: 5, ..TopicSettings::default() };
    assert_eq!(topics.plan_new(&name("a"), other.clone(), None).expect_err("not the same").kind, Kind::Conflict);
    assert_eq!(topics.plan_change(&name("a"), other).expect("a change").settings.delay_ms, 5);
    let buried = TopicSettings { dlq: Some("nowhere".to_owned()), ..TopicSettings::default() };
    assert_eq!(topics.plan_change(&name("a"), buried).expect_err("no such topic").kind, Kind::Schema);
    let split = TopicSettings { partitions: 2, ..TopicSettings::default() };
    assert_eq!(topics.plan_change(&name("a"), split).expect_err("fixed").kind, Kind::Conflict);
}

#[test]
fn labels_are_bounded_as_they_are_written() {
    for (value, fits) in [("\"".repeat(24_000), true), ("\u{1}".repeat(24_000), false)] {
        let settings = TopicSettings { labels: [("policy".to_owned(), value)].into(), ..TopicSettings::default() };
        check_settings(&settings).expect("within the bound of labels as they are");
        assert_eq!(StoredTopic::new(settings, 1).text().is_ok(), fits);
    }
}

#[test]
fn a_record_of_before_changes_were_timed_says_when_the_topic_was_made() {
    let mut old = serde_json::to_value(StoredTopic::new(TopicSettings::default(), 77)).expect("json");
    old.as_object_mut().expect("an object").remove("modified_ms").expect("it is written today");
    let topics = Topics::default();
    let stored = serde_json::from_value(old).expect("still read");
    assert_eq!(topics.view(&topics.put(TopicId(1), name("a"), stored)).modified_ms, 77);
    let stored = StoredTopic { created_ms: 5, modified_ms: 99, ..StoredTopic::new(TopicSettings::default(), 0) };
    let view = topics.view(&topics.put(TopicId(1), name("a"), stored));
    assert_eq!((view.created_ms, view.modified_ms), (77, 99));
}

#[test]
fn pages_of_topics_follow_each_other() {
    let topics = Topics::default();
    for text in ["b1", "a", "b2", "b3", "c"] {
        made(&topics, text, TopicSettings::default());
    }
    let names = |page: Vec<TopicView>| page.into_iter().map(|view| view.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(topics.list(None, "b", 2)), ["b1", "b2"]);
    assert_eq!(names(topics.list(Some(&name("b2")), "b", 2)), ["b3"]);
    assert_eq!(names(topics.list(None, "", 9)).len(), 5);
}

#[test]
fn a_name_of_dead_letters_is_nobody_elses() {
    let topics = Topics::default();
    for taken in ["orders.dlq", "a.dlq.dlq"] {
        let refused = topics.plan_new(&name(taken), TopicSettings::default(), None).expect_err(taken);
        assert!(refused.kind == Kind::Schema && refused.detail.contains("dead letters"), "{refused}");
    }
    // A name that is too long for the usual one.
    let long = made(&topics, &"x".repeat(78), TopicSettings::default());
    assert_eq!(long.dead_letters().expect("of its own").name, name("topic-1.dlq"));
    let refused =
        topics.plan_new(&name("topic-1"), TopicSettings::default(), None).expect_err("they would look like its own");
    assert_eq!(refused.kind, Kind::Conflict);
}

#[test]
fn a_link_is_to_a_topic_and_not_to_its_name() {
    let topics = Topics::default();
    let grave = made(&topics, "grave", TopicSettings::default());
    let buried = |dlq: &str| TopicSettings { dlq: Some(dlq.to_owned()), ..TopicSettings::default() };
    let jobs = made(&topics, "jobs", buried("grave"));
    let mails = made(&topics, "mails", buried("jobs.dlq"));
    assert_eq!(topics.dependents_of(jobs.id), [name("mails")], "its own dead letters go with it");
    assert_eq!(topics.dependents_of(grave.id), [name("jobs")]);
    assert_eq!(topics.dead_letters_of(&mails).map(|part| part.topic), jobs.id.own_dead_letters());
    topics.remove(grave.id);
    let stranger = made(&topics, "grave", TopicSettings::default());
    assert_ne!(stranger.id, grave.id);
    assert_eq!(topics.dead_letters_of(&jobs), None);
    assert_eq!(topics.view(&jobs).dead_letters, None);
    assert_eq!(topics.users_of_dead_letters(stranger.id), []);
    let planned = topics.plan_change(&name("jobs"), TopicSettings { delay_ms: 1, ..buried("grave") }).expect("allowed");
    assert_eq!(planned.dlq, Some(grave.id), "a change of something else links nothing anew");

    let itself = topics.plan_change(&name("jobs"), buried("jobs")).expect("allowed");
    let jobs = topics.put(itself.id, itself.name.clone(), itself.stored(1, 1));
    assert_eq!((topics.dead_letters_of(&jobs), topics.view(&jobs).dead_letters), (None, Some(name("jobs"))));
    assert_eq!(topics.dependents_of(jobs.id), [name("mails")], "it does not depend on itself");
}

#[test]
fn an_older_log_may_have_a_strangers_topic_with_the_name_of_dead_letters() {
    let old = |dlq: Option<&str>| {
        let settings = TopicSettings { dlq: dlq.map(str::to_owned), ..TopicSettings::default() };
        StoredTopic::new(settings, 1)
    };
    // Whichever record comes first.
    for order in [[1, 2, 3, 4], [4, 3, 2, 1]] {
        let topics = Topics::default();
        for id in order {
            let (text, dlq) = [("a.dlq", None), ("a", Some("a.dlq")), ("grave", None), ("b", Some("grave"))][id - 1];
            topics.put(TopicId(id as u32), name(text), old(dlq));
        }
        topics.link_by_name();
        let expect = |text: &str| topics.expect(&name(text)).expect("there");
        let (stranger, source, buried) = (expect("a.dlq"), expect("a"), expect("b"));
        assert_eq!((stranger.id, stranger.source()), (TopicId(1), None), "its owner finds it by its name");
        assert_eq!(topics.view(&source).dead_letters, Some(name("topic-2.dlq")), "its own, under another name");
        assert_eq!(topics.dead_letters_of(&source).map(|part| part.topic), TopicId(2).own_dead_letters());
        assert_eq!(expect("topic-2.dlq").source(), Some(&name("a")));
        assert_eq!(source.settings.dlq, None);
        assert_eq!(topics.dead_letters_of(&buried).map(|part| part.topic), Some(TopicId(3)), "named on purpose");
    }
}

#[test]
fn a_number_is_given_once_and_never_touches_those_of_dead_letters() {
    let topics = Topics::default();
    let first = made(&topics, "a", TopicSettings::default());
    topics.remove(first.id);
    topics.skip_numbers(TopicId(DEAD_LETTERS | 7));
    assert_eq!(made(&topics, "a", TopicSettings::default()).id, TopicId(8), "whoever had 7 may be named somewhere");
    topics.skip_numbers(TopicId(DEAD_LETTERS - 1));
    let refused = topics.plan_new(&name("b"), TopicSettings::default(), None).expect_err("none is left");
    assert_eq!(refused.kind, Kind::Degraded);
}

#[test]
fn nobody_has_more_topics_than_are_left_to_all_others() {
    let topics = Topics::default();
    let (greedy, modest): (Arc<str>, Arc<str>) = ("greedy".into(), "modest".into());
    let make = |text: &str, by: Option<&Arc<str>>| -> Result<TopicId, Error> {
        let planned = topics.plan_new(&name(text), TopicSettings::default(), by)?.expect("new");
        let stored = planned.stored(1, 1);
        Ok(topics.put(planned.id, planned.name, stored).id)
    };
    let mut made = 0;
    let refused = loop {
        match make(&format!("g{made}"), Some(&greedy)) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((made, refused.kind), (limits::TOPICS_MAX / 2, Kind::Busy));
    let words = ["greedy", "100000", "50000", "deleting topics of its own makes room"];
    assert!(words.iter().all(|word| refused.detail.contains(word)), "{refused}");
    assert!(!refused.detail.contains("try again"), "{refused}");
    for nth in 0..1_000 {
        make(&format!("m{nth}"), Some(&modest)).expect("others find room");
    }
    make("operators", None).expect("the operator has no share");
    // A change is none more, an end is one less, and a start knows whose they are.
    let first = topics.expect(&name("g0")).expect("made");
    let planned = topics.plan_change(&name("g0"), TopicSettings { delay_ms: 5, ..TopicSettings::default() });
    let stored = planned.expect("allowed").stored(1, 2);
    let text = stored.text().expect("it fits");
    topics.put(first.id, first.name.clone(), serde_json::from_str(&text).expect("its own text"));
    assert!(make("more", Some(&greedy)).is_err());
    for nth in 0..1_100 {
        let topic = topics.expect(&name(&format!("g{nth}"))).expect("made");
        topics.remove(topic.id);
    }
    make("more", Some(&greedy)).expect("it has deleted some");
}
