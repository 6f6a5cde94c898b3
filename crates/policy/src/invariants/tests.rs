//! Histories that break one invariant each: an observer that cannot object proves nothing.

use super::*;
use crate::{RestartLaw, ServicePlan, TaskPlan};

const BASE: TaskId = TaskId { service: 0, task: 0, instance: 0 };
const TOP: TaskId = TaskId { service: 1, task: 0, instance: 0 };

type History = Vec<(Millis, Event, Vec<Action>)>;

fn observer() -> Observer {
    let service = |name, depends_on: &[&'static str]| ServicePlan {
        name,
        required: true,
        depends_on: depends_on.to_vec(),
        serves: vec![],
        law: RestartLaw { more_than: 0, ..RestartLaw::MACRONODE },
        tasks: vec![TaskPlan { name: "main", instances: 1, phase: Phase::Work, heartbeat_ms: None }],
    };
    let services = vec![service("base", &[]), service("top", &["base"])];
    Observer::new(Plan { services, drain_deadline_ms: 1_000 }).unwrap()
}

fn ready(service: u16) -> Action {
    Action::Publish { service, state: State::Ready }
}

fn stop(services: &[u16]) -> Action {
    Action::StopPhase { phase: Phase::Work, services: services.to_vec(), deadline: 900 }
}

fn exit(task: TaskId) -> Event {
    Event::Exited { task, reason: ExitReason::Clean }
}

/// Both services up.
fn up() -> History {
    vec![
        (0, Event::Boot, vec![Action::Start { task: BASE }]),
        (0, Event::BootReady { task: BASE }, vec![ready(0), Action::Start { task: TOP }]),
        (0, Event::BootReady { task: TOP }, vec![ready(1)]),
    ]
}

fn check_last(id: &str, what: &str, last: &[(Millis, Event, Vec<Action>)]) {
    let mut observer = observer();
    let history: Vec<_> = up().into_iter().chain(last.iter().cloned()).collect();
    let (broken, good) = history.split_last().unwrap();
    for (now, event, actions) in good {
        observer.observe(*now, event, actions).unwrap_or_else(|early| panic!("{what}: {early} at {event:?}"));
    }
    let found = observer.observe(broken.0, &broken.1, &broken.2).map_err(|violation| violation.id);
    assert_eq!(found, Err(id), "{what}");
}

#[test]
fn each_invariant_is_noticed() {
    let lost = || {
        vec![
            Action::Publish { service: 1, state: State::Starting },
            Action::Publish { service: 0, state: State::Restarting },
        ]
    };
    let with = |mut actions: Vec<Action>, more: &[Action]| {
        actions.extend_from_slice(more);
        actions
    };
    let crash = (1, exit(BASE), with(lost(), &[Action::StartAfter { task: BASE, delay_ms: 100 }]));
    let back = Action::Start { task: BASE };
    let cases: Vec<(&str, &str, History)> = vec![
        ("I1", "start in a drain", vec![crash.clone(), (2, Event::DrainRequested, vec![back.clone()])]),
        (
            "I1",
            "announced in a drain",
            vec![
                (2, Event::DrainRequested, vec![]),
                (3, exit(BASE), vec![Action::StartAfter { task: BASE, delay_ms: 100 }]),
            ],
        ),
        ("I2", "provider lost, nobody told", vec![(1, exit(BASE), vec![])]),
        ("I2", "provider shown first", vec![(1, exit(BASE), lost().into_iter().rev().collect())]),
        ("I2", "started too early", vec![crash.clone(), (2, exit(TOP), vec![Action::Start { task: TOP }])]),
        ("I3", "provider stopped first", vec![(1, Event::DrainRequested, vec![stop(&[0])])]),
        ("I3", "stopped without a drain", vec![(1, Event::TimerFired, vec![stop(&[1])])]),
        (
            "I3",
            "aborted without being told",
            vec![(1, Event::DrainRequested, vec![Action::Abort { task: TOP, why: AbortReason::DrainDeadline }])],
        ),
        ("I3", "ended while tasks run", vec![(1, Event::DrainRequested, vec![Action::Finish { code: 0 }])]),
        ("I4", "too early", vec![(1, exit(BASE), with(lost(), &[Action::StartAfter { task: BASE, delay_ms: 99 }]))]),
        ("I4", "too late", vec![(1, exit(BASE), with(lost(), &[Action::StartAfter { task: BASE, delay_ms: 501 }]))]),
        ("I5", "a loop kept secret", vec![crash, (101, Event::TimerFired, vec![back.clone()])]),
        (
            "I5",
            "a loop invented",
            vec![(1, Event::TimerFired, vec![Action::Publish { service: 1, state: State::Degraded }])],
        ),
        ("I6", "too late", vec![(1, Event::DrainRequested, vec![stop(&[1])]), (1_001, Event::TimerFired, vec![])]),
        ("I6", "ended without a drain", vec![(1, Event::TimerFired, vec![Action::Finish { code: 0 }])]),
        (
            "I6",
            "ended twice",
            vec![
                (1, Event::DrainRequested, vec![stop(&[1])]),
                (2, exit(TOP), vec![stop(&[0])]),
                (3, exit(BASE), vec![Action::Finish { code: 0 }]),
                (4, Event::TimerFired, vec![Action::Finish { code: 0 }]),
            ],
        ),
        ("I7", "started twice", vec![(1, Event::TimerFired, vec![back])]),
    ];
    for (id, what, last) in cases {
        check_last(id, what, &last);
    }
}

#[test]
fn delays_that_fall_into_step_at_the_cap_are_noticed() {
    let law = RestartLaw { jitter_ms: (5_000, 5_000), more_than: 99, ..RestartLaw::MACRONODE };
    let mut observer = observer();
    let mut plan = observer.table.plan().clone();
    plan.services.truncate(1);
    plan.services[0].law = law;
    observer = Observer::new(plan).unwrap();
    observer.observe(0, &Event::Boot, &[Action::Start { task: BASE }]).unwrap();
    let mut found = Ok(());
    for round in 0..4 {
        found = observer.observe(round, &exit(BASE), &[Action::StartAfter { task: BASE, delay_ms: 5_000 }]);
        assert!(round == 3 || found.is_ok(), "{round}: {found:?}");
        if round < 3 {
            observer.observe(round, &Event::TimerFired, &[Action::Start { task: BASE }]).unwrap();
        }
    }
    assert_eq!(found.map_err(|violation| violation.id), Err("I4"));
}

#[test]
fn an_end_that_never_comes_is_noticed() {
    let mut observer = observer();
    assert_eq!(observer.ended(), Ok(()));
    observer.observe(0, &Event::DrainRequested, &[]).unwrap();
    assert_eq!(observer.ended().map_err(|violation| violation.id), Err("I6"));
}
