//! Every interleaving of the cells.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use ron_cells::{Budget, DrainGuard, Monotone, Sequence, Tally};

/// Waits for threads that all run already, and returns what each came to.
fn join<T>(threads: Vec<thread::JoinHandle<T>>) -> impl Iterator<Item = T> {
    threads.into_iter().map(|thread| thread.join().unwrap())
}

/// Producer, shutdown and drain: whoever was let in finished before the drain was seen as complete.
#[test]
fn a_drained_guard_has_nobody_at_work() {
    loom::model(|| {
        let entrance = DrainGuard::default();
        let finished = Arc::new(AtomicUsize::new(0));
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let (entrance, finished) = (entrance.clone(), Arc::clone(&finished));
                thread::spawn(move || {
                    let Some(pass) = entrance.enter() else { return 0 };
                    finished.fetch_add(1, Ordering::Relaxed);
                    drop(pass);
                    1
                })
            })
            .collect();
        entrance.close();
        let seen_at_drain = entrance.is_drained().then(|| finished.load(Ordering::Relaxed));
        let admitted: usize = join(workers).sum();
        if let Some(seen) = seen_at_drain {
            assert_eq!(seen, admitted, "work was still going on after the drain was complete");
        }
        assert!(entrance.is_drained(), "everybody has left");
    });
}

/// A missed shutdown would be an entrance after close returned.
#[test]
fn close_is_final_for_later_entrants() {
    loom::model(|| {
        let entrance = DrainGuard::default();
        let other = entrance.clone();
        let closer = thread::spawn(move || other.close());
        let early = entrance.enter();
        closer.join().unwrap();
        assert!(entrance.enter().is_none());
        drop(early);
        assert!(entrance.is_drained());
    });
}

/// Configuration swap: whoever reads the raised version also sees what was written before it.
#[test]
fn a_raised_number_publishes_what_came_before_it() {
    loom::model(|| {
        let value = Arc::new(AtomicUsize::new(0));
        let version = Arc::new(Monotone::new(0));
        let writer = {
            let (value, version) = (Arc::clone(&value), Arc::clone(&version));
            thread::spawn(move || {
                value.store(7, Ordering::Relaxed);
                version.raise(1);
            })
        };
        if version.get() == 1 {
            assert_eq!(value.load(Ordering::Relaxed), 7);
        }
        writer.join().unwrap();
    });
}

/// Two writers never make the number go back, and exactly one of them raises it to the top.
#[test]
fn a_number_only_grows_and_next_is_unique() {
    loom::model(|| {
        let number = Arc::new(Monotone::new(0));
        let raised: Vec<_> = [3, 5]
            .into_iter()
            .map(|to| {
                let number = Arc::clone(&number);
                thread::spawn(move || {
                    number.raise(to);
                    assert!(number.get() >= to);
                })
            })
            .collect();
        for writer in raised {
            writer.join().unwrap();
        }
        assert_eq!(number.get(), 5);
        assert!(!number.raise(4), "a lower number raises nothing");
        let other = Arc::clone(&number);
        let next = thread::spawn(move || other.next());
        let mine = number.next();
        assert_ne!(mine, next.join().unwrap());
    });
}

/// Takers of two thirds each: never more than the limit out at once, and all of it comes back.
#[test]
fn a_budget_is_never_overdrawn_and_comes_back_whole() {
    loom::model(|| {
        let budget = Arc::new(Budget::new(3));
        let granted = Arc::new(AtomicUsize::new(0));
        let takers: Vec<_> = (0..2)
            .map(|keeps| {
                let (budget, granted) = (Arc::clone(&budget), Arc::clone(&granted));
                thread::spawn(move || {
                    let Some(share) = budget.try_take(2) else { return false };
                    assert!(granted.fetch_add(2, Ordering::SeqCst) + 2 <= budget.limit());
                    granted.fetch_sub(2, Ordering::SeqCst);
                    if keeps == 1 {
                        share.keep();
                        budget.give_back(2);
                    }
                    true
                })
            })
            .collect();
        let took = join(takers).filter(|took| *took).count();
        assert!(took >= 1, "one of them must fit");
        assert_eq!(budget.used(), 0);
    });
}

/// Nothing always fits, more than the limit never does, and neither is seen by somebody who takes all of it.
#[test]
fn taking_nothing_or_too_much_leaves_a_budget_alone() {
    loom::model(|| {
        let budget = Arc::new(Budget::new(1));
        let other = {
            let budget = Arc::clone(&budget);
            thread::spawn(move || {
                drop(budget.try_take(0).expect("nothing fits"));
                assert!(budget.try_take(2).is_none());
            })
        };
        drop(budget.try_take(1).expect("nobody else has any of it"));
        other.join().unwrap();
        assert_eq!(budget.used(), 0);
    });
}

/// A service that is restarted opens its entrance again: who comes after that is let in, who is inside is counted.
#[test]
fn an_entrance_that_is_opened_again_lets_in() {
    loom::model(|| {
        let entrance = DrainGuard::default();
        entrance.close();
        let other = entrance.clone();
        let opener = thread::spawn(move || other.open());
        let early = entrance.enter();
        opener.join().unwrap();
        assert!(!entrance.is_closed());
        let late = entrance.enter();
        assert!(late.is_some());
        assert_eq!(entrance.inside(), 1 + usize::from(early.is_some()));
        drop((early, late));
        assert_eq!(entrance.inside(), 0);
    });
}

/// Two askers never get the same number, and none that was skipped.
#[test]
fn a_number_is_given_out_once() {
    loom::model(|| {
        let numbers = Arc::new(Sequence::new(1));
        let asker = {
            let numbers = Arc::clone(&numbers);
            thread::spawn(move || numbers.next())
        };
        numbers.skip_past(5);
        let (mine, theirs) = (numbers.next(), asker.join().unwrap());
        assert!(mine > 5 && mine != theirs);
    });
}

/// Two who add and one who takes meanwhile: everything is taken, and nothing twice.
#[test]
fn what_is_added_is_taken_once() {
    loom::model(|| {
        let tally = Arc::new(Tally::new());
        let adders: Vec<_> = [3, 5]
            .into_iter()
            .map(|amount| {
                let tally = Arc::clone(&tally);
                thread::spawn(move || {
                    tally.add(amount);
                    tally.add(1);
                })
            })
            .collect();
        let early = tally.take();
        let between = tally.take();
        for adder in adders {
            adder.join().unwrap();
        }
        assert_eq!(early + between + tally.take(), 10);
        assert_eq!(tally.take(), 0);
    });
}
