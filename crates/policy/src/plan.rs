//! What is supervised: services, their tasks, and which service needs which.

use serde::Serialize;

use crate::RestartLaw;

/// The phases of a drain, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Listeners and other sources of work stop.
    Intake = 1,
    /// Workers finish what was admitted.
    Work = 2,
    /// Writers flush.
    Flush = 3,
    /// Observers leave last.
    Observe = 4,
}

impl Phase {
    /// All phases, in the order of a drain.
    pub const ALL: [Phase; 4] = [Phase::Intake, Phase::Work, Phase::Flush, Phase::Observe];

    /// Number of the phase, 1 to 4.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The name as it is serialized.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Intake => "intake",
            Phase::Work => "work",
            Phase::Flush => "flush",
            Phase::Observe => "observe",
        }
    }
}

/// One kind of task of a service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TaskPlan {
    /// Name, unique within the service.
    pub name: &'static str,
    /// Number of instances that run side by side.
    pub instances: u16,
    /// Drain phase in which the task stops.
    pub phase: Phase,
    /// The longest silence before it counts as frozen, if it promises to beat.
    pub heartbeat_ms: Option<u64>,
}

/// Plan of one service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServicePlan {
    /// Name, unique within the plan.
    pub name: &'static str,
    /// Whether the node is ready only if this service serves.
    pub required: bool,
    /// Names of the services that must serve before this one starts.
    pub depends_on: Vec<&'static str>,
    /// Names of the services that it passes requests on to. It runs and is ready without them, and leaves before them.
    pub serves: Vec<&'static str>,
    /// Restart delays and what a crash loop leads to.
    pub law: RestartLaw,
    /// Tasks of the service.
    pub tasks: Vec<TaskPlan>,
}

/// All services under supervision.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    /// The services; their order has no meaning besides being the index.
    pub services: Vec<ServicePlan>,
    /// Maximum duration of a drain in milliseconds.
    pub drain_deadline_ms: u64,
}

/// Reason why a plan is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A dependency, or a service that is passed requests, is not there.
    #[error("service {service} depends on {dependency}, which is not in the plan")]
    UnknownDependency {
        /// Name of the service with the dependency.
        service: &'static str,
        /// Name that is not in the plan.
        dependency: &'static str,
    },
    /// Services depend on each other in a circle.
    #[error("services depend on each other in a circle: {}", .services.join(" -> "))]
    Cycle {
        /// The circle; the first name is repeated at the end.
        services: Vec<&'static str>,
    },
    /// Two services have one name.
    #[error("two services are named {service}")]
    DuplicateService {
        /// Name that stands twice.
        service: &'static str,
    },
    /// Two tasks of one service have one name.
    #[error("service {service} has two tasks named {task}")]
    DuplicateTask {
        /// Name of the service.
        service: &'static str,
        /// Task name that stands twice.
        task: &'static str,
    },
    /// A task has no instance.
    #[error("task {task} of service {service} has no instance")]
    NoInstances {
        /// Name of the service.
        service: &'static str,
        /// Name of the task.
        task: &'static str,
    },
    /// There are more services or tasks than an index can name.
    #[error("the plan has more than {max} services or tasks in a service")]
    TooLarge {
        /// Maximum number allowed.
        max: usize,
    },
}

/// One instance of one task, by its place in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    /// Index into `Plan::services`.
    pub service: u16,
    /// Index into `ServicePlan::tasks`.
    pub task: u16,
    /// 0 up to `TaskPlan::instances`.
    pub instance: u16,
}

impl Plan {
    /// Checks names, instances and that the dependencies form no circle.
    pub fn validate(&self) -> Result<(), PlanError> {
        self.check_size()?;
        for (index, service) in self.services.iter().enumerate() {
            if self.services[..index].iter().any(|other| other.name == service.name) {
                return Err(PlanError::DuplicateService { service: service.name });
            }
            check_tasks(service)?;
        }
        self.topological_order().map(|_| ())
    }

    fn check_size(&self) -> Result<(), PlanError> {
        let max = usize::from(u16::MAX);
        if self.services.len() > max || self.services.iter().any(|service| service.tasks.len() > max) {
            return Err(PlanError::TooLarge { max });
        }
        Ok(())
    }

    /// For each service, the indexes of the services it depends on.
    pub(crate) fn providers(&self) -> Result<Vec<Vec<u16>>, PlanError> {
        self.services.iter().map(|service| self.indexes_of(service, &service.depends_on)).collect()
    }

    /// For each service, the indexes of the services that it leaves before: those it depends on, and those it serves.
    pub(crate) fn outlived_by(&self) -> Result<Vec<Vec<u16>>, PlanError> {
        let of_service = |service: &ServicePlan| {
            let names: Vec<&'static str> = service.depends_on.iter().chain(&service.serves).copied().collect();
            self.indexes_of(service, &names)
        };
        self.services.iter().map(of_service).collect()
    }

    fn indexes_of(&self, service: &ServicePlan, names: &[&'static str]) -> Result<Vec<u16>, PlanError> {
        let index_of = |name: &str| self.services.iter().position(|service| service.name == name);
        let found = names.iter().map(|dependency| {
            let index = index_of(dependency);
            index.map(|index| index as u16).ok_or(PlanError::UnknownDependency { service: service.name, dependency })
        });
        found.collect()
    }

    /// Indexes of the services, providers and those that are served before the others.
    pub(crate) fn topological_order(&self) -> Result<Vec<u16>, PlanError> {
        let providers = self.outlived_by()?;
        let mut order: Vec<u16> = Vec::with_capacity(providers.len());
        let mut placed = vec![false; providers.len()];
        while order.len() < providers.len() {
            let before = order.len();
            for (index, needs) in providers.iter().enumerate() {
                if !placed[index] && needs.iter().all(|need| placed[usize::from(*need)]) {
                    placed[index] = true;
                    order.push(index as u16);
                }
            }
            if order.len() == before {
                return Err(self.name_cycle(&providers, &placed));
            }
        }
        Ok(order)
    }

    /// Walks from any service that could not be placed along others of that kind until one comes twice.
    fn name_cycle(&self, providers: &[Vec<u16>], placed: &[bool]) -> PlanError {
        let mut at = placed.iter().position(|done| !done).unwrap_or(0);
        let mut path = Vec::new();
        while !path.contains(&at) {
            path.push(at);
            let next = providers[at].iter().map(|need| usize::from(*need)).find(|need| !placed[*need]);
            at = next.unwrap_or(at);
        }
        let start = path.iter().position(|seen| *seen == at).unwrap_or(0);
        path.push(at);
        PlanError::Cycle { services: path[start..].iter().map(|index| self.services[*index].name).collect() }
    }
}

fn check_tasks(service: &ServicePlan) -> Result<(), PlanError> {
    for (index, task) in service.tasks.iter().enumerate() {
        if service.tasks[..index].iter().any(|other| other.name == task.name) {
            return Err(PlanError::DuplicateTask { service: service.name, task: task.name });
        }
        if task.instances == 0 {
            return Err(PlanError::NoInstances { service: service.name, task: task.name });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(services: &[(&'static str, &[&'static str])]) -> Plan {
        let service = |(name, depends_on): &(&'static str, &[&'static str])| ServicePlan {
            name,
            required: true,
            depends_on: depends_on.to_vec(),
            serves: vec![],
            law: RestartLaw::MACRONODE,
            tasks: vec![TaskPlan { name: "main", instances: 1, phase: Phase::Work, heartbeat_ms: None }],
        };
        Plan { services: services.iter().map(service).collect(), drain_deadline_ms: 3_000 }
    }

    #[test]
    fn validate_names_what_is_wrong() {
        type Case = (&'static [(&'static str, &'static [&'static str])], Result<(), &'static str>);
        let cases: [Case; 7] = [
            (&[], Ok(())),
            (&[("c", &["b", "a"]), ("b", &["a"]), ("a", &[])], Ok(())),
            (&[("a", &["x"])], Err("service a depends on x, which is not in the plan")),
            (&[("a", &[]), ("a", &[])], Err("two services are named a")),
            (&[("a", &["a"])], Err("services depend on each other in a circle: a -> a")),
            (
                &[("r", &[]), ("a", &["r", "b"]), ("b", &["c"]), ("c", &["a"])],
                Err("services depend on each other in a circle: a -> b -> c -> a"),
            ),
            (
                &[("d", &["a"]), ("a", &["b"]), ("b", &["a"])],
                Err("services depend on each other in a circle: a -> b -> a"),
            ),
        ];
        for (services, expected) in cases {
            let got = plan(services).validate().map_err(|error| error.to_string());
            assert_eq!(got, expected.map_err(str::to_owned), "{services:?}");
        }
    }

    #[test]
    fn validate_checks_tasks() {
        let mut twice = plan(&[("a", &[])]);
        let copy = twice.services[0].tasks[0].clone();
        twice.services[0].tasks.push(copy);
        assert_eq!(twice.validate(), Err(PlanError::DuplicateTask { service: "a", task: "main" }));

        let mut none = plan(&[("a", &[])]);
        none.services[0].tasks[0].instances = 0;
        assert_eq!(none.validate(), Err(PlanError::NoInstances { service: "a", task: "main" }));
    }

    #[test]
    fn order_puts_providers_first() {
        let order = plan(&[("c", &["b", "a"]), ("b", &["a"]), ("a", &[]), ("z", &[])]).topological_order().unwrap();
        let place = |index: u16| order.iter().position(|at| *at == index).unwrap();
        assert!(place(2) < place(1) && place(1) < place(0));
        assert_eq!(order.len(), 4);
    }

    #[test]
    fn phases_are_numbered_and_named_in_order() {
        let got: Vec<(u8, &str)> = Phase::ALL.iter().map(|phase| (phase.number(), phase.name())).collect();
        assert_eq!(got, [(1, "intake"), (2, "work"), (3, "flush"), (4, "observe")]);
        assert!(Phase::ALL.is_sorted());
        for phase in Phase::ALL {
            assert_eq!(serde_json::to_value(phase).unwrap(), phase.name());
        }
    }
}
