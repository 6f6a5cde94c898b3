//! Small random plans: 1-6 services in a random graph, 1-4 tasks each, pools, heartbeats, laws.

use ron_policy::{Escalation, Phase, Plan, RestartLaw, ServicePlan, TaskPlan};

use crate::rng::Rng;

const SERVICES: [&str; 6] = ["s0", "s1", "s2", "s3", "s4", "s5"];
const TASKS: [&str; 4] = ["t0", "t1", "t2", "t3"];
const ESCALATIONS: [Escalation; 3] = [Escalation::Degraded, Escalation::Unready, Escalation::Fatal];

/// The plan of a seed.
pub fn random_plan(seed: u64) -> Plan {
    draw_plan(&mut Rng::new(seed))
}

pub(crate) fn draw_plan(rng: &mut Rng) -> Plan {
    let count = rng.between(1, 6) as usize;
    let mut services = Vec::with_capacity(count);
    for index in 0..count {
        let depends_on: Vec<&'static str> = SERVICES[..index].iter().copied().filter(|_| rng.percent(40)).collect();
        let others = SERVICES[..index].iter().copied().filter(|name| !depends_on.contains(name));
        let serves = others.filter(|_| rng.percent(20)).collect();
        let tasks = draw_tasks(rng, index == 0);
        services.push(ServicePlan {
            name: SERVICES[index],
            required: rng.percent(70),
            depends_on,
            serves,
            law: draw_law(rng),
            tasks,
        });
    }
    Plan { services, drain_deadline_ms: rng.between(300, 5_000) }
}

/// The first service always has an intake and a pool of workers: the jobs travel there.
fn draw_tasks(rng: &mut Rng, with_jobs: bool) -> Vec<TaskPlan> {
    let count = rng.between(if with_jobs { 2 } else { 1 }, 4) as usize;
    let mut tasks = Vec::with_capacity(count);
    for (index, name) in TASKS[..count].iter().enumerate() {
        let pool = with_jobs && index == 1 || rng.percent(20);
        let phase = match (with_jobs, index) {
            (true, 0) => Phase::Intake,
            (true, 1) => Phase::Work,
            _ => rng.pick(&Phase::ALL),
        };
        tasks.push(TaskPlan {
            name,
            instances: if pool { rng.between(2, 3) as u16 } else { 1 },
            phase,
            heartbeat_ms: rng.percent(25).then(|| rng.between(1_000, 4_000)),
        });
    }
    tasks
}

fn draw_law(rng: &mut Rng) -> RestartLaw {
    let then = rng.pick(&ESCALATIONS);
    match rng.between(0, 3) {
        0 => RestartLaw { then, ..RestartLaw::MACRONODE },
        1 => RestartLaw { jitter_ms: (100, 2_000), cap_ms: 2_000, then, ..RestartLaw::MACRONODE },
        _ => {
            let low = rng.between(1, 100);
            RestartLaw {
                jitter_ms: (low, low + rng.between(0, 300)),
                cap_ms: rng.between(100, 2_000),
                more_than: rng.between(0, 4) as u32,
                window_ms: rng.between(500, 8_000),
                then,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plan_is_valid_and_plans_differ() {
        let plans: Vec<Plan> = (0..500).map(random_plan).collect();
        for (seed, plan) in plans.iter().enumerate() {
            plan.validate().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
        assert!((1..=6).all(|count| plans.iter().any(|plan| plan.services.len() == count)));
        assert_eq!(plans[7], random_plan(7));
    }
}
