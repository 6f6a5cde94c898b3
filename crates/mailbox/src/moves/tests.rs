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
    let open = moves.open(TOPIC).expect("one runs");
    assert_eq!((open.id, open.moved, open.on_failure, open.limit), (9, 1, OnFailure::Stop, None));
    assert!(open.filter.is_empty() && open.last_error.is_none());
    moves.put_text(TOPIC, &Moves::text(&open.ended(MoveState::Failed, None)).expect("text")).expect("new text");
    assert_eq!((ids(&moves), moves.open(TOPIC)), (vec![7, 9], None));
    assert!(moves.put_text(TOPIC, "{}").is_err() && moves.put_text(TOPIC, "7").is_err());
}

#[test]
fn the_first_that_has_not_ended_is_open_and_the_last_that_ended_are_remembered() {
    let moves = Moves::default();
    for id in 1..=25 {
        moves.put(TOPIC, task(id, MoveState::Running));
        moves.put(TOPIC, task(id + 100, MoveState::Waiting));
        assert_eq!(moves.open(TOPIC).map(|open| open.id), Some(id));
        moves.put(TOPIC, task(id, MoveState::Failed));
    }
    let remembered = ids(&moves);
    assert_eq!(remembered[..10], (16..=25).collect::<Vec<_>>());
    assert_eq!(remembered[10..], (101..=125).collect::<Vec<_>>(), "what waits is never forgotten");
    assert_eq!(moves.all_open().iter().map(|order| order.id).collect::<Vec<_>>(), (101..=125).collect::<Vec<_>>());
    assert_eq!((moves.topic_of(101), moves.topic_of(1)), (Some(TOPIC), None));
    assert_eq!(moves.all()[0].1.id, 125, "the newest first");
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
        let changed = task(1, state).controlled(control);
        assert_eq!(changed.as_ref().ok().map(|task| task.state), expected, "{control:?} of {state:?}: {changed:?}");
    }
    let never_begun = task(1, Waiting).controlled(Pause).and_then(|paused| paused.controlled(Resume));
    assert_eq!(never_begun.expect("it has not ended").state, Waiting, "its turn has not come");
}

#[test]
fn what_is_written_down_comes_back() {
    let filter = Filter { error_contains: Some("boom \u{1}".to_owned()), ..Filter::default() };
    let full = MoveTask {
        filter,
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
    assert!(ended.filter.is_empty() && ended.failed == 2, "what nobody needs any more is not kept");
}

#[test]
fn only_the_open_move_counts_and_numbers_are_never_given_again() {
    let moves = Moves::default();
    assert_eq!(moves.next_id(50), 50);
    moves.put(TOPIC, task(50, MoveState::Running));
    moves.put(TOPIC, task(60, MoveState::Waiting));
    assert_eq!((moves.next_id(50), moves.next_id(70)), (61, 70));
    moves.count(TOPIC, 2);
    moves.count(TopicId(5), 2);
    moves.count_seen(TOPIC, 5, &[MoveFailure::NoOrigin, MoveFailure::NoDestination]);
    let open = moves.open(TOPIC).expect("it runs");
    assert_eq!((open.moved, open.looked_at, open.failed), (2, 5, 2));
    assert_eq!(open.last_error, Some(MoveFailure::NoDestination.to_string()));
    moves.start_pass(TOPIC);
    assert_eq!(moves.get(TOPIC, 50).map(|task| (task.moved, task.looked_at, task.failed)), Some((2, 2, 0)));
    moves.put(TOPIC, open.ended(MoveState::Completed, None));
    moves.count(TOPIC, 1);
    assert_eq!(moves.of(TOPIC).iter().map(|task| task.moved).collect::<Vec<_>>(), [2, 1], "the next one counts now");
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
