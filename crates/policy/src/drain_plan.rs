//! The order of a drain: phases first, then the dependency graph reversed. Rehearsal and drain follow this one list.

use crate::{Phase, Plan};

/// Share of the drain deadline, in percent, at whose end each phase is over.
const PHASE_ENDS_PERCENT: [u64; 4] = [75, 90, 97, 100];

/// One step of a drain, by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize)]
pub struct DrainStep {
    /// Drain phase of this step.
    pub phase: Phase,
    /// The services whose tasks of that phase stop together.
    pub services: Vec<&'static str>,
    /// Those tasks, in the order of the plan.
    pub tasks: Vec<&'static str>,
    /// Milliseconds after the request at which tasks still running are aborted.
    pub deadline_ms: u64,
}

/// The steps a drain of this plan takes; empty for a plan that is not valid.
pub fn drain_plan(plan: &Plan) -> Vec<DrainStep> {
    let named = |step: Step| DrainStep {
        phase: step.phase,
        services: step.services.iter().map(|index| plan.services[usize::from(*index)].name).collect(),
        tasks: tasks_of(plan, &step),
        deadline_ms: phase_end_ms(plan.drain_deadline_ms, step.phase),
    };
    steps(plan).into_iter().map(named).collect()
}

fn tasks_of(plan: &Plan, step: &Step) -> Vec<&'static str> {
    let services = step.services.iter().map(|index| &plan.services[usize::from(*index)]);
    services
        .flat_map(|service| service.tasks.iter().filter(|task| task.phase == step.phase).map(|task| task.name))
        .collect()
}

/// One step of a drain, by index.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Step {
    pub(crate) phase: Phase,
    pub(crate) services: Vec<u16>,
}

/// Milliseconds after the request at which a phase is over.
pub(crate) fn phase_end_ms(drain_deadline_ms: u64, phase: Phase) -> u64 {
    let percent = PHASE_ENDS_PERCENT[usize::from(phase.number() - 1)];
    (u128::from(drain_deadline_ms) * u128::from(percent) / 100) as u64
}

/// The steps in order: for each phase, the services that have tasks in it, dependents before providers, and a service
/// that passes requests on before those it serves.
pub(crate) fn steps(plan: &Plan) -> Vec<Step> {
    let levels = levels(plan);
    let deepest = levels.iter().copied().max().unwrap_or(0);
    let mut steps = Vec::new();
    for phase in Phase::ALL {
        for level in 0..=deepest {
            let stops_here = |index: &u16| {
                let index = usize::from(*index);
                levels[index] == level && plan.services[index].tasks.iter().any(|task| task.phase == phase)
            };
            let services: Vec<u16> = (0..levels.len() as u16).filter(stops_here).collect();
            if !services.is_empty() {
                steps.push(Step { phase, services });
            }
        }
    }
    steps
}

/// For each service, the length of the longest chain of services that leave before it: 0 stops first.
fn levels(plan: &Plan) -> Vec<usize> {
    let (Ok(order), Ok(providers)) = (plan.topological_order(), plan.outlived_by()) else { return Vec::new() };
    let mut levels = vec![0; order.len()];
    for dependent in order.iter().rev() {
        let below = levels[usize::from(*dependent)] + 1;
        for provider in &providers[usize::from(*dependent)] {
            let level = &mut levels[usize::from(*provider)];
            *level = below.max(*level);
        }
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RestartLaw, ServicePlan, TaskPlan};

    fn service(name: &'static str, depends_on: &[&'static str], tasks: &[(&'static str, Phase)]) -> ServicePlan {
        let task =
            |(name, phase): &(&'static str, Phase)| TaskPlan { name, instances: 1, phase: *phase, heartbeat_ms: None };
        ServicePlan {
            name,
            required: true,
            depends_on: depends_on.to_vec(),
            serves: vec![],
            law: RestartLaw::MACRONODE,
            tasks: tasks.iter().map(task).collect(),
        }
    }

    #[test]
    fn phases_then_dependents_before_providers() {
        let plan = Plan {
            services: vec![
                service("log", &[], &[("writer", Phase::Flush), ("janitor", Phase::Work)]),
                service("queue", &["log"], &[("listener", Phase::Intake), ("shard", Phase::Work)]),
                service("api", &["queue", "log"], &[("http", Phase::Intake)]),
                service("admin", &[], &[("server", Phase::Observe)]),
            ],
            drain_deadline_ms: 3_000,
        };
        let got: Vec<(u8, Vec<&str>, Vec<&str>, u64)> = drain_plan(&plan)
            .into_iter()
            .map(|step| (step.phase.number(), step.services, step.tasks, step.deadline_ms))
            .collect();
        let expected = [
            (1, vec!["api"], vec!["http"], 2_250),
            (1, vec!["queue"], vec!["listener"], 2_250),
            (2, vec!["queue"], vec!["shard"], 2_700),
            (2, vec!["log"], vec!["janitor"], 2_700),
            (3, vec!["log"], vec!["writer"], 2_910),
            (4, vec!["admin"], vec!["server"], 3_000),
        ];
        assert_eq!(got, expected);
    }

    #[test]
    fn who_passes_requests_on_leaves_before_those_it_serves() {
        let plane = ServicePlan { serves: vec!["queue"], ..service("api", &[], &[("http", Phase::Intake)]) };
        let queue = service("queue", &[], &[("listener", Phase::Intake), ("shard", Phase::Work)]);
        let plan = Plan { services: vec![queue, plane], drain_deadline_ms: 3_000 };
        let got: Vec<Vec<&str>> = drain_plan(&plan).into_iter().map(|step| step.tasks).collect();
        assert_eq!(got, [vec!["http"], vec!["listener"], vec!["shard"]]);
    }

    #[test]
    fn services_of_one_level_stop_together() {
        let plan = Plan {
            services: vec![
                service("base", &[], &[("w", Phase::Work)]),
                service("left", &["base"], &[("w", Phase::Work)]),
                service("right", &["base"], &[("w", Phase::Work)]),
            ],
            drain_deadline_ms: 100,
        };
        let got: Vec<Vec<&str>> = drain_plan(&plan).into_iter().map(|step| step.services).collect();
        assert_eq!(got, [vec!["left", "right"], vec!["base"]]);
    }

    #[test]
    fn nothing_to_drain_is_no_step() {
        assert_eq!(drain_plan(&Plan { services: vec![], drain_deadline_ms: 100 }), []);
        let circle = Plan { services: vec![service("a", &["a"], &[("w", Phase::Work)])], drain_deadline_ms: 100 };
        assert_eq!(drain_plan(&circle), []);
    }

    #[test]
    fn phase_ends_do_not_overflow() {
        assert_eq!(phase_end_ms(u64::MAX, Phase::Observe), u64::MAX);
        assert!(phase_end_ms(u64::MAX, Phase::Intake) < u64::MAX);
    }
}
