//! What operators and load balancers read.

use super::*;
use crate::{Escalation, NodeState, NodeView, TaskState};

fn optional(service: ServicePlan) -> ServicePlan {
    ServicePlan { required: false, ..service }
}

fn looping(then: Escalation, service: ServicePlan) -> ServicePlan {
    ServicePlan { law: RestartLaw { more_than: 0, then, ..RestartLaw::MACRONODE }, ..service }
}

fn view(driven: &DrivenSupervisor) -> NodeView {
    driven.supervisor.node_view(driven.now)
}

fn fatal_of(task: TaskId) -> Event {
    Event::Exited { task, reason: ExitReason::Fatal { code: 70, detail: "disk failed".to_owned() } }
}

fn crash_and_return(driven: &mut DrivenSupervisor, service: u16) {
    driven.step(panic_of(main_of(service)));
    driven.wake();
    driven.up(main_of(service));
}

#[test]
fn the_node_in_one_word() {
    type Story = fn(&mut DrivenSupervisor);
    let cases: [(&str, ServicePlan, Story, NodeState); 12] = [
        ("all is well", worker("a", &[]), |_| {}, NodeState::Ready),
        ("required and down", worker("a", &[]), |driven| drop(driven.step(panic_of(main_of(0)))), NodeState::Unready),
        (
            "optional and down",
            optional(worker("a", &[])),
            |driven| drop(driven.step(panic_of(main_of(0)))),
            NodeState::Ready,
        ),
        (
            "a loop that serves",
            looping(Escalation::Degraded, worker("a", &[])),
            |driven| crash_and_return(driven, 0),
            NodeState::Degraded,
        ),
        (
            "a loop that makes a required service unready",
            looping(Escalation::Unready, worker("a", &[])),
            |driven| crash_and_return(driven, 0),
            NodeState::Unready,
        ),
        (
            "a loop that makes an optional service unready",
            looping(Escalation::Unready, optional(worker("a", &[]))),
            |driven| crash_and_return(driven, 0),
            NodeState::Degraded,
        ),
        (
            "optional and not to go on",
            optional(worker("a", &[])),
            |driven| drop(driven.step(fatal_of(main_of(0)))),
            NodeState::Degraded,
        ),
        (
            "optional and never set up",
            optional(worker("a", &[])),
            |driven| {
                driven.step(panic_of(main_of(0)));
                driven.wake();
                let reason = ExitReason::Init { code: 70, detail: "port in use".to_owned() };
                driven.step(Event::Exited { task: main_of(0), reason });
            },
            NodeState::Ready,
        ),
        (
            "required and failed",
            looping(Escalation::Fatal, worker("a", &[])),
            |driven| drop(driven.step(panic_of(main_of(0)))),
            NodeState::Unready,
        ),
        (
            "optional and failed",
            looping(Escalation::Fatal, optional(worker("a", &[]))),
            |driven| drop(driven.step(panic_of(main_of(0)))),
            NodeState::Degraded,
        ),
        ("draining", worker("a", &[]), |driven| drop(driven.step(Event::DrainRequested)), NodeState::Draining),
        (
            "stopped",
            worker("a", &[]),
            |driven| {
                driven.step(Event::DrainRequested);
                driven.step(panic_of(main_of(0)));
            },
            NodeState::Stopped,
        ),
    ];
    for (what, service, story, expected) in cases {
        let mut driven = DrivenSupervisor::ready(plan(vec![service]));
        story(&mut driven);
        let view = view(&driven);
        assert_eq!(view.state, expected, "{what}");
        let ready = matches!(expected, NodeState::Ready | NodeState::Degraded);
        assert_eq!((view.accepts_reads, view.accepts_writes), (ready, ready), "{what}");
        assert_eq!(view.unmet.is_empty(), ready, "{what}: {:?}", view.unmet);
    }
}

#[test]
fn booting_says_what_it_waits_for() {
    let mut driven = DrivenSupervisor::new(plan(vec![worker("base", &[]), worker("top", &["base"])]));
    driven.step(Event::DependencyChanged { service: 0, name: "disk", met: false });
    driven.step(Event::Boot);
    assert_eq!(view(&driven).state, NodeState::Starting);
    assert_eq!(view(&driven).unmet, ["base: waits for disk", "top: waits for base"]);
    driven.step(Event::DependencyChanged { service: 0, name: "disk", met: true });
    assert_eq!(view(&driven).unmet[0], "base: 0 of 1 tasks have been ready");
}

#[test]
fn pressure_stops_writes_and_names_its_cause() {
    let mut driven = DrivenSupervisor::ready(plan(vec![worker("a", &[]), optional(worker("b", &[]))]));
    let press = |service, on| Event::Pressure { service, cause: "queue work", on };
    assert_eq!(driven.step(press(1, true)), []);
    assert!(view(&driven).accepts_writes, "an optional service does not stop the node's writes");
    assert!(!view(&driven).services[1].accepts_writes);
    assert_eq!(driven.step(press(0, true)), []);
    assert_eq!(driven.step(press(0, true)), []);
    let pressed = view(&driven);
    assert_eq!((pressed.accepts_reads, pressed.accepts_writes, pressed.state), (true, false, NodeState::Degraded));
    let named: Vec<_> = pressed.pressure.iter().map(|pressure| (pressure.service, pressure.cause)).collect();
    assert_eq!(named, [("a", "queue work"), ("b", "queue work")]);
    driven.step(press(0, false));
    assert!(view(&driven).accepts_writes);
    driven.step(press(1, false));
    assert_eq!(view(&driven).state, NodeState::Ready);
}

#[test]
fn a_plane_starts_and_stays_ready_without_the_services_it_serves() {
    let plane = ServicePlan { serves: vec!["a", "b"], ..worker("plane", &[]) };
    let law = RestartLaw { more_than: 0, then: Escalation::Unready, ..RestartLaw::MACRONODE };
    let looping = ServicePlan { law, ..optional(worker("a", &[])) };
    let mut driven = DrivenSupervisor::new(plan(vec![looping, optional(worker("b", &[])), plane]));
    assert!(driven.step(Event::Boot).contains(&start(main_of(2))));
    driven.up(main_of(2));
    let out = |driven: &DrivenSupervisor| {
        let view = view(driven);
        assert_eq!((view.accepts_reads, view.services[2].state), (true, State::Ready));
        (view.services[0].is_out, view.services[1].is_out)
    };
    assert_eq!(out(&driven), (true, true), "not ready for the first time");
    driven.up(main_of(0));
    driven.up(main_of(1));
    assert_eq!(out(&driven), (false, false));
    driven.step(panic_of(main_of(1)));
    assert_eq!(out(&driven), (false, false), "a short restart");
    driven.step(panic_of(main_of(0)));
    driven.now = driven.supervisor.next_wakeup().expect("a restart is due") + 1_000;
    driven.step(Event::TimerFired);
    assert_eq!(driven.state(0), State::Unready);
    assert_eq!(out(&driven), (true, false), "a loop that does not serve");
    driven.up(main_of(0));
    assert_eq!((driven.state(0), out(&driven)), (State::Unready, (false, false)), "a loop that serves");
    driven.step(Event::DrainRequested);
    assert!(view(&driven).services.iter().all(|service| !service.is_out), "what was admitted is answered in a drain");
}

#[test]
fn tasks_tell_where_they_are() {
    let mut driven = DrivenSupervisor::new(plan(vec![worker("base", &[]), worker("top", &["base"])]));
    let state = |driven: &DrivenSupervisor, service| driven.supervisor.task_view(main_of(service), driven.now).state;
    assert_eq!(state(&driven, 0), TaskState::Waiting);
    driven.step(Event::Boot);
    assert_eq!((state(&driven, 0), state(&driven, 1)), (TaskState::Starting, TaskState::Waiting));
    driven.up(main_of(0));
    driven.up(main_of(1));
    assert_eq!(state(&driven, 0), TaskState::Running);
    driven.step(panic_of(main_of(1)));
    let restarting = driven.supervisor.task_view(main_of(1), driven.now);
    assert_eq!((restarting.state, restarting.restart_at), (TaskState::Restarting, driven.supervisor.next_wakeup()));
    assert_eq!(restarting.last_exit.as_deref(), Some("panic: boom"));
    assert_eq!(view(&driven).services[1].reason.as_deref(), Some("work panic: boom"));
    driven.step(Event::DrainRequested);
    assert_eq!((state(&driven, 0), state(&driven, 1)), (TaskState::Stopping, TaskState::Stopped));
    assert_eq!(driven.supervisor.task_view(id(7, 0, 0), driven.now).state, TaskState::Stopped);
}

#[test]
fn the_view_serializes_in_snake_case() {
    let mut driven = DrivenSupervisor::ready(plan(vec![worker("a", &[])]));
    driven.at(5_000).step(panic_of(main_of(0)));
    let json = serde_json::to_value(view(&driven)).unwrap();
    assert_eq!(json["state"], "unready");
    assert_eq!(json["services"][0]["state"], "restarting");
    assert_eq!(json["services"][0]["since_ms"], 5_000);
}
