//! The node as a whole: how it is asked, how it stands, and its queues.

use serde::Serialize;

use crate::cli::{ApiArgs, ClientArgs};
use crate::client::{ApiClient, Client};
use crate::commands::view::{Queue, Status, Topology};
use crate::errors::Failure;

/// Both planes of one node.
pub struct NodeClients {
    admin: Client,
    api_args: ApiArgs,
    api: Option<ApiClient>,
}

/// Numbers of the node as a whole, from one look.
#[derive(Clone, Debug)]
pub struct NodeSample {
    /// Readiness of the node and its services.
    pub status: Status,
    /// Names of the services that run.
    pub services: Vec<String>,
    /// Queues of all services.
    pub queues: Vec<Queue>,
}

/// The node as a whole, as it is shown.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NodeView {
    /// Address that was asked.
    pub address: String,
    /// Readiness in one word.
    pub state: String,
    /// Reasons why the node is not simply ready.
    pub reasons: Vec<String>,
    /// Queues, the fullest first.
    pub queues: Vec<QueueRow>,
}

/// Numbers of one queue, as shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QueueRow {
    /// Name, with the instance in brackets.
    pub name: String,
    /// Items waiting.
    pub depth: usize,
    /// Maximum items waiting.
    pub capacity: usize,
    /// Most items that ever waited at once.
    pub high_water: usize,
    /// Items refused because the queue was full.
    pub busy: u64,
}

impl NodeClients {
    /// Finds the admin plane; the public one is looked for when a pane asks it.
    pub fn find(admin: Option<&String>, api: &ApiArgs) -> Result<NodeClients, Failure> {
        let ApiArgs { data_dir, token_file, ca, .. } = api.clone();
        let args = ClientArgs { admin: admin.cloned(), data_dir, token_file, ca, ..ClientArgs::default() };
        Ok(NodeClients { admin: Client::find(&args)?, api_args: api.clone(), api: None })
    }

    /// The public plane. It needs a token and the admin plane does not, so what a person without a token may see
    /// (state and queues) is shown even if this fails.
    pub fn api(&mut self) -> Result<&mut ApiClient, Failure> {
        match &mut self.api {
            Some(api) => Ok(api),
            none => Ok(none.insert(ApiClient::find(&self.api_args)?)),
        }
    }

    /// The address that was asked: the public plane's if a pane needed it.
    pub fn address(&self) -> &str {
        self.api.as_ref().map_or_else(|| self.admin.address(), ApiClient::address)
    }

    /// Asks the node for readiness and topology.
    pub async fn look(&self) -> Result<NodeSample, Failure> {
        let (status, _) = self.admin.status().await?;
        let topology: Topology = self.admin.get("/topology").await?.expect_success("/topology")?.read("/topology")?;
        let services = topology.services.into_iter().map(|service| service.name).collect();
        Ok(NodeSample { status, services, queues: topology.queues })
    }
}

impl NodeView {
    /// Picks what is shown from a sample.
    pub fn of(address: &str, sample: &NodeSample) -> NodeView {
        NodeView {
            address: address.to_owned(),
            state: sample.status.state.clone(),
            reasons: reasons(&sample.status),
            queues: fullest(&sample.queues),
        }
    }

    /// State of the node and the reasons why it is not better.
    pub fn standing(&self) -> String {
        match self.reasons.is_empty() {
            true => self.state.clone(),
            false => format!("{}: {}", self.state, self.reasons.join("; ")),
        }
    }
}

impl NodeSample {
    /// The row of the queue with this name.
    pub fn queue(&self, name: &str) -> Option<QueueRow> {
        self.queues.iter().find(|queue| queue.name == name).map(QueueRow::of)
    }
}

impl QueueRow {
    fn of(queue: &Queue) -> QueueRow {
        let Queue { name, depth, capacity, high_water, busy, .. } = queue.clone();
        QueueRow { name, depth, capacity, high_water, busy }
    }

    /// Share of the capacity in use, from 0 to 1.
    pub fn fill(&self) -> f64 {
        self.depth as f64 / self.capacity.max(1) as f64
    }

    /// Depth and capacity, as in `3/1024`.
    pub fn fraction(&self) -> String {
        format!("{}/{}", self.depth, self.capacity)
    }
}

/// Reasons: unmet needs of reads, services that are not ready, pressure; a service in both of the first is named once.
fn reasons(status: &Status) -> Vec<String> {
    let mut reasons = status.unmet.clone();
    let limping = status.services.iter().filter_map(|service| Some((service, service.reason.as_ref()?)));
    let limping = limping.map(|(service, reason)| format!("{}: {reason}", service.name));
    reasons.extend(limping.filter(|reason| !status.unmet.contains(reason)));
    reasons.extend(status.pressure.iter().map(|cause| format!("{}: {}", cause.service, cause.cause)));
    reasons
}

/// The fullest first; of equally full ones, those that were fuller once.
fn fullest(queues: &[Queue]) -> Vec<QueueRow> {
    let mut rows: Vec<QueueRow> = queues.iter().map(QueueRow::of).collect();
    let most = |row: &QueueRow| row.high_water as f64 / row.capacity.max(1) as f64;
    rows.sort_by(|left, right| {
        let by_fill = right.fill().total_cmp(&left.fill());
        by_fill.then_with(|| most(right).total_cmp(&most(left))).then_with(|| left.name.cmp(&right.name))
    });
    rows
}

#[cfg(test)]
pub mod tests {
    use serde_json::json;

    use super::*;

    /// A ready node with three queues and these services.
    pub fn sample(services: &[&str]) -> NodeSample {
        let queue = |name: &str, depth: usize, high_water: usize| Queue {
            name: name.to_owned(),
            capacity: 100,
            depth,
            high_water,
            ..Queue::default()
        };
        NodeSample {
            status: serde_json::from_value(json!({"state": "ready", "accepts_writes": true}))
                .expect("the shape of /readyz"),
            services: services.iter().map(|name| (*name).to_owned()).collect(),
            queues: vec![queue("work", 0, 4), queue("work_tx[0]", 50, 90), queue("telemetry", 0, 9)],
        }
    }

    #[test]
    fn the_fullest_queues_come_first() {
        let view = NodeView::of("here", &sample(&[]));
        let names: Vec<&str> = view.queues.iter().map(|queue| queue.name.as_str()).collect();
        assert_eq!(names, ["work_tx[0]", "telemetry", "work"]);
        assert_eq!(view.queues[0].fraction(), "50/100");
    }

    #[test]
    fn the_state_comes_with_its_reasons() {
        let mut sample = sample(&[]);
        assert_eq!(NodeView::of("here", &sample).standing(), "ready");
        sample.status = serde_json::from_value(json!({
            "state": "degraded", "unmet": ["work: slow"], "pressure": [{"service": "a", "cause": "disk"}],
            "services": [{"name": "work", "reason": "slow"}, {"name": "b", "reason": "restarts"}, {"name": "c"}],
        }))
        .expect("the shape of /readyz");
        assert_eq!(NodeView::of("here", &sample).standing(), "degraded: work: slow; b: restarts; a: disk");
    }
}
