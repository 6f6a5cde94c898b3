//! What travels together, in which order, and what is left behind.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::*;
use crate::batch::Done;
use crate::error::Error;

type Outcome = oneshot::Receiver<Result<Done, Error>>;

fn item(text: &str) -> (Item, Outcome) {
    let (reply, answer) = oneshot::channel();
    (Item { text: text.into(), until: now() + Duration::from_secs(1), reply }, answer)
}

fn topic(name: &str) -> Line {
    Line::Send(name.to_owned())
}

/// The texts of the next batch.
fn taken(pending: &mut Pending) -> Option<(Line, Vec<String>)> {
    let Batch { line, items } = pending.take(now())?;
    Some((line, items.iter().map(|item| String::from_utf8_lossy(&item.text).into_owned()).collect()))
}

#[tokio::test]
async fn lines_take_turns_and_keep_their_order() {
    let mut pending = Pending::default();
    let mut answers = Vec::new();
    for number in 0..250 {
        let (item, answer) = item(&format!("a{number}"));
        pending.push(&topic("a"), item);
        answers.push(answer);
    }
    for (line, text) in [(topic("b"), "b0"), (Line::Ack, "r0"), (topic("b"), "b1")] {
        let (item, answer) = item(text);
        pending.push(&line, item);
        answers.push(answer);
    }
    let numbered = |from: usize, to: usize| (from..to).map(|number| format!("a{number}")).collect::<Vec<_>>();
    assert_eq!(taken(&mut pending), Some((topic("a"), numbered(0, 100))));
    assert_eq!(taken(&mut pending), Some((topic("b"), vec!["b0".to_owned(), "b1".to_owned()])));
    assert_eq!(taken(&mut pending), Some((Line::Ack, vec!["r0".to_owned()])));
    assert_eq!(taken(&mut pending), Some((topic("a"), numbered(100, 200))));
    assert_eq!(taken(&mut pending), Some((topic("a"), numbered(200, 250))));
    assert_eq!(taken(&mut pending), None);
    assert!(pending.lines.is_empty() && pending.order.is_empty(), "topics of the past take no room");
}

#[tokio::test]
async fn who_has_gone_or_has_no_time_left_is_not_sent() {
    let mut pending = Pending::default();
    let (gone, answer) = item("gone");
    drop(answer);
    let (late, mut told) = item("late");
    let (kept, _answer) = item("kept");
    pending.push(&Line::Ack, gone);
    pending.push(&Line::Ack, Item { until: now(), ..late });
    pending.push(&Line::Ack, kept);
    assert_eq!(taken(&mut pending), Some((Line::Ack, vec!["kept".to_owned()])));
    assert_eq!(told.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    let (gone, _) = item("gone");
    pending.push(&Line::Ack, gone);
    assert_eq!(taken(&mut pending), None);
}

#[tokio::test]
async fn what_is_taken_back_does_not_leave_and_what_has_left_is_not_taken_back() {
    let mut pending = Pending::default();
    let mut answers = Vec::new();
    let mut push = |pending: &mut Pending, line: &Line, text: &str| {
        let (item, answer) = item(text);
        answers.push(answer);
        pending.push(line, item)
    };
    let numbers =
        [("a", "0"), ("b", "1"), ("a", "2"), ("a", "3")].map(|(name, text)| push(&mut pending, &topic(name), text));
    assert!(pending.withdraw(&topic("a"), numbers[2]));
    for (name, number) in [("a", numbers[2]), ("a", numbers[1]), ("c", numbers[0])] {
        assert!(!pending.withdraw(&topic(name), number), "{name} {number}");
    }
    assert_eq!(taken(&mut pending), Some((topic("a"), vec!["0".to_owned(), "3".to_owned()])));
    assert!(!pending.withdraw(&topic("a"), numbers[0]), "it has left");
    assert!(pending.withdraw(&topic("b"), numbers[1]));
    assert_eq!(taken(&mut pending), None);
    assert!(pending.lines.is_empty() && pending.order.is_empty());
}

#[tokio::test]
async fn a_request_has_a_size() {
    let mut pending = Pending::default();
    let large = "x".repeat(REQUEST_BYTES_MAX * 2);
    let half = "y".repeat(REQUEST_BYTES_MAX / 2);
    let mut answers = Vec::new();
    for text in [&large, &half, &half, &half] {
        let (item, answer) = item(text);
        pending.push(&topic("a"), item);
        answers.push(answer);
    }
    let mut sizes = Vec::new();
    while let Some(Batch { items, .. }) = pending.take(now()) {
        sizes.push(items.len());
    }
    assert_eq!(sizes, [1, 2, 1], "one that is too long travels alone, and the node says so");
}

#[tokio::test]
async fn one_connection_takes_what_came_together_and_another_what_is_left() {
    for (count, expected) in [(5, vec![5]), (150, vec![100, 50])] {
        let gather = Arc::new(Gather::default());
        let mut connections = JoinSet::new();
        for _ in 0..3 {
            let gather = Arc::clone(&gather);
            connections.spawn(async move { gather.next().await.items.len() });
        }
        while gather.lock().idle < 3 {
            tokio::task::yield_now().await;
        }
        let mut answers = Vec::new();
        for number in 0..count {
            let (item, answer) = item(&number.to_string());
            gather.push(&Line::Ack, item);
            answers.push(answer);
        }
        let mut taken = Vec::new();
        for _ in &expected {
            taken.push(connections.join_next().await.expect("a connection").expect("it goes on"));
        }
        taken.sort_unstable_by(|a, b| b.cmp(a));
        assert_eq!(taken, expected);
        assert!(gather.lock().lines.is_empty());
    }
}
