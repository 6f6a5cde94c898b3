//! The table of moves: order, states, what is remembered, and what old records say.

use super::*;

const TOPIC: TopicId = TopicId(4);

fn task(id: u64, state: MoveState) -> MoveTask {
    let from: TopicName = "here".parse().expect("a name");
    let to = id.is_multiple_of(2).then(|| "there".parse().expect("a name"));
    let order = MoveOrder { to, rate_per_second: Some(7), ..MoveOrder::all_of(from) };
    let must_wait = state == MoveState::Waiting;
    MoveTask { state, ..order.task(id, 3, id, must_wait) }
}

fn ids(moves: &Moves) -> Vec<u64> {
    moves.of(TOPIC).iter().map(|task| task.id).collect()
}

#[test]
fn reasons_are_read_in_old_and_new_words() {
    for (text, expected) in [
        ("no_destination", MoveFailure::NoDestination),
        ("AWS.SimpleQueueService.NonExistentQueue", MoveFailure::NoDestination),
        ("no_origin", MoveFailure::NoOrigin),
        ("CouldNotDetermineMessageSource", MoveFailure::NoOrigin),
    ] {
        let read: MoveFailure = serde_json::from_value(text.into()).expect("known");
        assert_eq!(read, expected, "{text}");
    }
}

#[test]
fn the_list_of_an_old_log_is_read_and_goes_on_as_single_moves() {
    let old = r#"[{"id":7,"to":null,"rate_per_second":5,"state":"completed","moved":4,"to_move":4,"failure":null,
        "started_ms":70},{"id":9,"to":"there","rate_per_second":null,"state":"running","moved":1,"to_move":8,
        "failure":null,"started_ms":90}]"#;
    let moves = Moves::default();
    moves.put_text(TOPIC, old).expect("old text");
    let open = moves.get(TOPIC, 9).expect("it runs");
    assert_eq!((open.moved, open.on_failure, open.limit, open.to_id), (1, OnFailure::Stop, None, None));
    assert!(open.filter.is_empty() && open.last_error.is_none());
    moves.put_text(TOPIC, &Moves::text(&open.ended(MoveState::Failed, None)).expect("text")).expect("new text");
    assert_eq!((ids(&moves), moves.all_open()), (vec![7, 9], vec![]));
    assert!(moves.put_text(TOPIC, "{}").is_err() && moves.put_text(TOPIC, "7").is_err());
}

#[test]
fn the_last_that_ended_are_remembered_and_what_waits_is_never_forgotten() {
    let moves = Moves::default();
    for id in 1..=25 {
        moves.put(TOPIC, task(id, MoveState::Running));
        moves.put(TOPIC, task(id + 100, MoveState::Waiting));
        moves.put(TOPIC, task(id, MoveState::Failed));
    }
    let remembered = ids(&moves);
    assert_eq!(remembered[..10], (16..=25).collect::<Vec<_>>());
    assert_eq!(remembered[10..], (101..=125).collect::<Vec<_>>());
    assert_eq!(moves.all_open().iter().map(|order| order.id).collect::<Vec<_>>(), (101..=125).collect::<Vec<_>>());
    assert_eq!((moves.topic_of(101), moves.topic_of(1)), (Some(TOPIC), None));
    let before: Vec<u64> = moves.before(103, 3).iter().map(|order| order.id).collect();
    assert_eq!(before, [102, 101, 25], "the newest first");
}

#[test]
fn what_an_operator_may_do_depends_on_where_a_move_stands() {
    use MoveControl::{Cancel, Pause, Resume};
    use MoveState::{Canceled, Canceling, Completed, Paused, Running, Waiting};
    for (state, control, expected) in [
        (Running, Pause, Some(Paused)),
        (Running, Resume, Some(Running)),
        (Running, Cancel, Some(Canceling)),
        (Paused, Resume, Some(Running)),
        (Paused, Cancel, Some(Canceling)),
        (Waiting, Pause, Some(Paused)),
        (Waiting, Resume, Some(Waiting)),
        (Waiting, Cancel, Some(Canceled)),
        (Canceling, Resume, Some(Canceling)),
        (Canceling, Pause, Some(Canceling)),
        (Completed, Cancel, None),
        (Canceled, Resume, None),
    ] {
        let changed = task(1, state).controlled(control, &[]);
        assert_eq!(changed.as_ref().ok().map(|task| task.state), expected, "{control:?} of {state:?}: {changed:?}");
    }
    let never_begun = task(1, Waiting).controlled(Pause, &[]).and_then(|paused| paused.controlled(Resume, &[]));
    assert_eq!(never_begun.expect("it has not ended").state, Waiting, "its turn has not come");
    let resumed = task(1, Paused).controlled(Resume, &[task(2, Running)]).expect("it has not ended");
    assert_eq!((resumed.state, resumed.started_ms), (Waiting, 1), "another one began meanwhile");
}

#[test]
fn a_move_waits_only_for_those_that_want_the_same_messages_and_are_not_paused() {
    let of = |origins: &[u32], task: MoveTask| {
        let origins = (!origins.is_empty()).then(|| origins.iter().copied().map(TopicId).collect());
        MoveTask { origins, ..task }
    };
    for (other_origins, other, waits) in [
        (&[][..], task(1, MoveState::Running), true),
        (&[], task(9, MoveState::Running), true),
        (&[], task(1, MoveState::Canceling), true),
        (&[], task(1, MoveState::Waiting), true),
        (&[], task(9, MoveState::Waiting), false),
        (&[], task(1, MoveState::Paused), false),
        (&[], task(1, MoveState::Completed), false),
        (&[7], task(1, MoveState::Running), true),
        (&[6, 5], task(1, MoveState::Running), false),
        (&[6, 7], task(1, MoveState::Waiting), true),
    ] {
        let other = of(other_origins, other);
        let ours = of(&[7, 8], task(4, MoveState::Waiting));
        assert_eq!(ours.must_wait(&[ours.clone(), other.clone()]), waits, "{other:?}");
    }
}

#[test]
fn what_is_written_down_comes_back() {
    let filter = Filter { error_contains: Some("boom \u{1}".to_owned()), ..Filter::default() };
    let full = MoveTask {
        filter,
        to_id: Some(TopicId(9)),
        origins: Some(vec![TopicId(3), TopicId(1 << 31 | 3)]),
        limit: Some(5),
        looked_at: 9,
        failed: 2,
        last_error: Some("no way".to_owned()),
        ..task(2, MoveState::Paused)
    };
    let again = Moves::default();
    again.put_text(TOPIC, &Moves::text(&full).expect("text")).expect("its own text");
    assert_eq!(again.of(TOPIC), vec![full.clone()]);
    let ended = full.ended(MoveState::Canceled, None);
    let is_short = ended.filter.is_empty() && ended.origins.is_none();
    assert!(is_short && ended.failed == 2, "what nobody needs any more is not kept");
}

#[test]
fn each_move_counts_its_own_and_numbers_are_never_given_again() {
    let moves = Moves::default();
    assert_eq!(moves.next_id(50), 50);
    moves.put(TOPIC, task(50, MoveState::Running));
    moves.put(TOPIC, MoveTask { limit: Some(3), ..task(60, MoveState::Running) });
    assert_eq!((moves.next_id(50), moves.next_id(70)), (61, 70));
    for (topic, moved_by) in [(TOPIC, "60"), (TOPIC, "60"), (TOPIC, "50"), (TOPIC, "99"), (TopicId(5), "60")] {
        moves.count_replayed(topic, moved_by);
    }
    let moved = || moves.of(TOPIC).iter().map(|task| task.moved).collect::<Vec<_>>();
    assert_eq!(moved(), [1, 2]);
    assert!(moves.may_go_on(TOPIC, 60) && !moves.may_go_on(TOPIC, 61));
    moves.count(TOPIC, 60);
    assert!(!moves.may_go_on(TOPIC, 60), "its limit is reached");
    moves.count_seen(TOPIC, 50, 5, &[MoveFailure::NoOrigin, MoveFailure::NoDestination]);
    let first = moves.get(TOPIC, 50).expect("it runs");
    assert_eq!((first.moved, first.looked_at, first.failed), (1, 5, 2));
    assert_eq!(first.last_error, Some(MoveFailure::NoDestination.to_string()));
    moves.start_pass(TOPIC, 50);
    assert_eq!(moves.get(TOPIC, 50).map(|task| (task.moved, task.looked_at, task.failed)), Some((1, 1, 0)));
    // An older log does not say which move it was: the first one open.
    moves.count_replayed(TOPIC, "");
    moves.put(TOPIC, moves.get(TOPIC, 50).expect("it runs").ended(MoveState::Completed, None));
    moves.count_replayed(TOPIC, "");
    assert_eq!(moved(), [2, 4]);
    moves.put(TopicId(TOPIC.0 | 1 << 31), task(61, MoveState::Running));
    moves.forget(TOPIC);
    assert!(moves.of(TOPIC).is_empty() && moves.all_open().is_empty(), "dead letters go with their topic");
}

#[test]
fn an_order_is_held_to_its_limits() {
    let from: TopicName = "here".parse().expect("a name");
    let base = || MoveOrder::all_of("here".parse().expect("a name"));
    let long = Filter { payload_contains: Some("x".repeat(FILTER_BYTES_MAX)), ..Filter::default() };
    for (field, order) in [
        ("to", MoveOrder { to: Some(from), ..base() }),
        ("rate_per_second", MoveOrder { rate_per_second: Some(0), ..base() }),
        ("limit", MoveOrder { limit: Some(0), ..base() }),
        ("filter", MoveOrder { filter: long, ..base() }),
        ("to", MoveOrder { origins: Some(vec!["t".parse().expect("a name"); ORIGINS_MAX + 1]), ..base() }),
    ] {
        let error = order.check().expect_err(field);
        assert!(error.kind == Kind::Schema && error.detail.starts_with(field), "{error}");
    }
    base().check().expect("everything is a good order");
}

#[test]
fn the_end_is_estimated_from_the_pace_so_far() {
    let running = MoveTask { to_move: 100, looked_at: 25, started_ms: 1_000, ..task(1, MoveState::Running) };
    let view = |task| MoveView { from: "here".parse().expect("a name"), task };
    assert_eq!(view(running.clone()).eta_ms(2_000), Some(5_000));
    assert_eq!(view(MoveTask { state: MoveState::Paused, ..running.clone() }).eta_ms(2_000), None);
    assert_eq!(view(MoveTask { looked_at: 0, ..running }).eta_ms(2_000), None);
}

#[test]
fn the_order_of_numbers_knows_what_a_walk_over_all_topics_would_find() {
    use MoveState::{Completed, Failed, Paused, Running, Waiting};
    let moves = Moves::default();
    let mut dice = 1_u64;
    let mut roll = |sides: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % sides
    };
    for _ in 0..2_000 {
        let topic = TopicId(1 + roll(7) as u32);
        let known = moves.of(topic);
        match (roll(40), known.get(roll(20) as usize)) {
            (0, _) => moves.forget(topic),
            (nth, Some(task)) if nth < 30 => {
                let state = [Waiting, Running, Paused, Completed, Failed][roll(5) as usize];
                moves.put(topic, MoveTask { state, ..task.clone() });
            }
            _ => {
                let ordered_by = Some(format!("subject {}", roll(3)));
                moves.put(topic, MoveTask { ordered_by, ..task(moves.next_id(roll(5)), Running) });
            }
        }
        let mut all: Vec<(u64, TopicId, MoveTask)> = moves
            .topics()
            .into_iter()
            .flat_map(|of| moves.of(of).into_iter().map(move |one| (one.id, of, one)))
            .collect();
        all.sort_by_key(|(id, ..)| *id);
        let of = |is_meant: &dyn Fn(&MoveTask) -> bool| -> Vec<OrderedMove> {
            let meant = all.iter().filter(|(.., task)| is_meant(task));
            meant.map(|(id, topic, _)| OrderedMove { topic: *topic, id: *id }).collect()
        };
        let open = of(&|task| !task.state.has_ended());
        assert_eq!((moves.all_open(), moves.open()), (open.clone(), open.len()));
        let of_subject = of(&|task| !task.state.has_ended() && task.ordered_by.as_deref() == Some("subject 1"));
        assert_eq!(moves.open_of("subject 1"), of_subject.len());
        let newest = all.last().map_or(0, |(id, ..)| *id);
        assert_eq!(moves.next_id(0), newest + u64::from(!all.is_empty()));
        assert!(
            all.iter().all(|(id, topic, _)| moves.topic_of(*id) == Some(*topic))
                && moves.topic_of(newest + 1).is_none()
        );
        let before = newest.saturating_sub(roll(4));
        let mut expected = of(&|task| task.id < before);
        expected.reverse();
        expected.truncate(5);
        assert_eq!(moves.before(before, 5), expected);
    }
}
