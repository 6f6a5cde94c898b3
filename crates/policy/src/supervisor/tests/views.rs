//! What operators and load balancers read.

use super::*;
use crate::{Escalation, NodeState, NodeView, TaskState};

fn optional(service: ServicePlan) -> ServicePlan {
    ServicePlan { required: false, ..service }
}

fn looping(then: Escalation, service: ServicePlan) -> ServicePlan {
    ServicePlan { law: RestartLaw { more_than: 0, then, ..RestartLaw::MACRONODE }, ..service }
}

fn view(rig: &Rig) -> NodeView {
    rig.supervisor.node_view(rig.now)
}

fn crash_and_return(rig: &mut Rig, service: u16) {
    rig.step(panic_of(main_of(service)));
    rig.wake();
    rig.up(main_of(service));
}

#[test]
fn the_node_in_one_word() {
    type Story = fn(&mut Rig);
    let cases: [(&str, ServicePlan, Story, NodeState); 9] = [
        ("all is well", worker("a", &[]), |_| {}, NodeState::Ready),
        ("required and down", worker("a", &[]), |rig| drop(rig.step(panic_of(main_of(0)))), NodeState::Unready),
        ("optional and down", optional(worker("a", &[])), |rig| drop(rig.step(panic_of(main_of(0)))), NodeState::Ready),
        (
            "a loop that serves",
            looping(Escalation::Degraded, worker("a", &[])),
            |rig| crash_and_return(rig, 0),
            NodeState::Degraded,
        ),
        (
            "a loop that makes unready",
            looping(Escalation::Unready, optional(worker("a", &[]))),
            |rig| crash_and_return(rig, 0),
            NodeState::Unready,
        ),
        (
            "required and failed",
            looping(Escalation::Fatal, worker("a", &[])),
            |rig| drop(rig.step(panic_of(main_of(0)))),
            NodeState::Unready,
        ),
        (
            "optional and failed",
            looping(Escalation::Fatal, optional(worker("a", &[]))),
            |rig| drop(rig.step(panic_of(main_of(0)))),
            NodeState::Degraded,
        ),
        ("draining", worker("a", &[]), |rig| drop(rig.step(Event::DrainRequested)), NodeState::Draining),
        (
            "stopped",
            worker("a", &[]),
            |rig| {
                rig.step(Event::DrainRequested);
                rig.step(panic_of(main_of(0)));
            },
            NodeState::Stopped,
        ),
    ];
    for (what, service, story, expected) in cases {
        let mut rig = Rig::ready(plan(vec![service]));
        story(&mut rig);
        let view = view(&rig);
        assert_eq!(view.state, expected, "{what}");
        let ready = matches!(expected, NodeState::Ready | NodeState::Degraded);
        assert_eq!((view.accepts_reads, view.accepts_writes), (ready, ready), "{what}");
        assert_eq!(view.unmet.is_empty(), ready, "{what}: {:?}", view.unmet);
    }
}

#[test]
fn booting_says_what_it_waits_for() {
    let mut rig = Rig::new(plan(vec![worker("base", &[]), worker("top", &["base"])]));
    rig.step(Event::DependencyChanged { service: 0, name: "disk", met: false });
    rig.step(Event::Boot);
    assert_eq!(view(&rig).state, NodeState::Starting);
    assert_eq!(view(&rig).unmet, ["base: waits for disk", "top: waits for base"]);
    rig.step(Event::DependencyChanged { service: 0, name: "disk", met: true });
    assert_eq!(view(&rig).unmet[0], "base: 0 of 1 tasks have been ready");
}

#[test]
fn pressure_stops_writes_and_names_its_cause() {
    let mut rig = Rig::ready(plan(vec![worker("a", &[]), optional(worker("b", &[]))]));
    let press = |service, on| Event::Pressure { service, cause: "queue work", on };
    assert_eq!(rig.step(press(1, true)), []);
    assert!(view(&rig).accepts_writes, "an optional service does not stop the node's writes");
    assert!(!view(&rig).services[1].accepts_writes);
    assert_eq!(rig.step(press(0, true)), []);
    assert_eq!(rig.step(press(0, true)), []);
    let pressed = view(&rig);
    assert_eq!((pressed.accepts_reads, pressed.accepts_writes, pressed.state), (true, false, NodeState::Ready));
    let named: Vec<_> = pressed.pressure.iter().map(|pressure| (pressure.service, pressure.cause)).collect();
    assert_eq!(named, [("a", "queue work"), ("b", "queue work")]);
    rig.step(press(0, false));
    assert!(view(&rig).accepts_writes);
}

#[test]
fn tasks_tell_where_they_are() {
    let mut rig = Rig::new(plan(vec![worker("base", &[]), worker("top", &["base"])]));
    let state = |rig: &Rig, service| rig.supervisor.task_view(main_of(service), rig.now).state;
    assert_eq!(state(&rig, 0), TaskState::Waiting);
    rig.step(Event::Boot);
    assert_eq!((state(&rig, 0), state(&rig, 1)), (TaskState::Starting, TaskState::Waiting));
    rig.up(main_of(0));
    rig.up(main_of(1));
    assert_eq!(state(&rig, 0), TaskState::Running);
    rig.step(panic_of(main_of(1)));
    let restarting = rig.supervisor.task_view(main_of(1), rig.now);
    assert_eq!((restarting.state, restarting.restart_at), (TaskState::Restarting, rig.supervisor.next_wakeup()));
    assert_eq!(restarting.last_exit.as_deref(), Some("panic: boom"));
    assert_eq!(view(&rig).services[1].reason.as_deref(), Some("work panic: boom"));
    rig.step(Event::DrainRequested);
    assert_eq!((state(&rig, 0), state(&rig, 1)), (TaskState::Stopping, TaskState::Stopped));
    assert_eq!(rig.supervisor.task_view(id(7, 0, 0), rig.now).state, TaskState::Stopped);
}

#[test]
fn the_view_serializes_in_snake_case() {
    let mut rig = Rig::ready(plan(vec![worker("a", &[])]));
    rig.at(5_000).step(panic_of(main_of(0)));
    let json = serde_json::to_value(view(&rig)).unwrap();
    assert_eq!(json["state"], "unready");
    assert_eq!(json["services"][0]["state"], "restarting");
    assert_eq!(json["services"][0]["since_ms"], 5_000);
}
