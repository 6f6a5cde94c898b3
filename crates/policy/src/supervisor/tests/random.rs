//! Random histories, sensible and not: no panic, no broken invariant, and an end after every drain.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::Escalation;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const TASKS: [&str; 2] = ["one", "two"];

fn a_law() -> impl Strategy<Value = RestartLaw> {
    let then = prop_oneof![Just(Escalation::Degraded), Just(Escalation::Unready), Just(Escalation::Fatal)];
    (0_u64..300, 0_u64..600, 0_u64..5_000, 0_u32..4, 0_u64..20_000, then).prop_map(
        |(lo, width, cap_ms, more_than, window_ms, then)| RestartLaw {
            jitter_ms: (lo, lo + width),
            cap_ms,
            more_than,
            window_ms,
            then,
        },
    )
}

fn a_task() -> impl Strategy<Value = TaskPlan> {
    (1_u16..4, 0_usize..4, proptest::option::of(1_u64..3_000)).prop_map(|(instances, phase, heartbeat_ms)| TaskPlan {
        name: "",
        instances,
        phase: Phase::ALL[phase],
        heartbeat_ms,
    })
}

fn a_plan() -> impl Strategy<Value = Plan> {
    let service = (any::<bool>(), any::<[bool; 4]>(), a_law(), vec(a_task(), 0..=TASKS.len()));
    (vec(service, 1..=NAMES.len()), 0_u64..6_000).prop_map(|(services, drain_deadline_ms)| {
        let named = services.into_iter().enumerate().map(|(index, (required, needs, law, mut tasks))| {
            tasks.iter_mut().zip(TASKS).for_each(|(task, name)| task.name = name);
            // Of those it does not depend on, it passes requests on to every second.
            let served = (0..index).filter(|other| !needs[*other] && (index + other) % 2 == 0);
            let serves = served.map(|other| NAMES[other]).collect();
            let depends_on = (0..index).filter(|other| needs[*other]).map(|other| NAMES[other]).collect();
            ServicePlan { name: NAMES[index], required, depends_on, serves, law, tasks }
        });
        Plan { services: named.collect(), drain_deadline_ms }
    })
}

fn an_event() -> impl Strategy<Value = Event> {
    let task = || (0_u16..5, 0_u16..2, 0_u16..3).prop_map(|(service, task, instance)| id(service, task, instance));
    let reason = prop_oneof![
        Just(ExitReason::Clean),
        Just(ExitReason::Error("e".to_owned())),
        Just(ExitReason::Panic("p".to_owned())),
        Just(ExitReason::Killed),
    ];
    prop_oneof![
        1 => Just(Event::Boot),
        8 => task().prop_map(|task| Event::Started { task }),
        16 => task().prop_map(|task| Event::BootReady { task }),
        8 => (task(), reason).prop_map(|(task, reason)| Event::Exited { task, reason }),
        1 => task().prop_map(|task| Event::Exited {
            task,
            reason: ExitReason::Init { code: 64, detail: String::new() },
        }),
        1 => task().prop_map(|task| Event::Exited {
            task,
            reason: ExitReason::Fatal { code: 70, detail: String::new() },
        }),
        4 => task().prop_map(|task| Event::Beat { task }),
        8 => Just(Event::TimerFired),
        2 => (0_u16..5, any::<bool>()).prop_map(|(service, met)| Event::DependencyChanged { service, name: "x", met }),
        1 => (0_u16..5, any::<bool>()).prop_map(|(service, on)| Event::Pressure { service, cause: "y", on }),
        2 => (0_u16..5).prop_map(|service| Event::RestartRequested { service }),
        1 => Just(Event::PhaseDrained { phase: Phase::Work }),
        1 => (0_u64..6_000).prop_map(|deadline_ms| Event::DrainDeadlineChanged { deadline_ms }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_history_keeps_the_invariants_and_any_drain_ends(
        plan in a_plan(),
        seed in any::<u64>(),
        history in vec((0_u64..900, an_event()), 0..250),
        drain_at in 0_usize..250,
        leaves in any::<u16>(),
    ) {
        let mut driven = DrivenSupervisor::new(plan);
        driven.supervisor.seed = seed;
        driven.step(Event::Boot);
        for (index, (wait_ms, event)) in history.into_iter().enumerate() {
            driven.now += wait_ms;
            driven.step(event);
            if index == drain_at {
                driven.step(Event::DrainRequested);
            }
        }
        driven.step(Event::DrainRequested);
        let tasks: Vec<TaskId> = driven.supervisor.tasks().collect();
        for (index, task) in tasks.into_iter().enumerate() {
            if leaves & (1 << (index % 16)) != 0 {
                driven.step(Event::Exited { task, reason: ExitReason::Clean });
            }
        }
        for _ in 0..100 {
            if driven.supervisor.next_wakeup().is_some() {
                driven.wake();
            }
        }
        prop_assert!(driven.observer.is_finished());
        prop_assert!(driven.observer.ended().is_ok());
    }
}
