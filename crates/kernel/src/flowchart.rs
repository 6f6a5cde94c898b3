//! The map of a node in Mermaid: services with their tasks, queues with both of their ends.

use std::fmt::Write as _;

use crate::spec::QueueSpec;

/// A map being drawn. The declared map of the documentation and the live one are drawn by the same hand.
#[derive(Debug, Default)]
pub struct Flowchart {
    text: String,
    tasks: Vec<&'static str>,
    /// Ends of queues that are no tasks, such as callers.
    outsiders: Vec<&'static str>,
    queues: Vec<Family>,
}

/// Queues that differ only in their number, as one shape: `work_tx[0]` to `work_tx[7]`.
#[derive(Debug)]
struct Family {
    name: &'static str,
    spec: &'static QueueSpec,
    labels: Vec<String>,
}

impl Flowchart {
    /// Adds a service with its tasks, each with the text in its box.
    pub fn service(&mut self, name: &str, title: &str, tasks: impl IntoIterator<Item = (&'static str, String)>) {
        let _ = writeln!(self.text, "  subgraph {}[\"{title}\"]", id("s", name));
        for (task, label) in tasks {
            let _ = writeln!(self.text, "    {}[\"{label}\"]", id("t", task));
            self.tasks.push(task);
        }
        self.text.push_str("  end\n");
    }

    /// Adds that a service needs another.
    pub fn need(&mut self, service: &str, dependency: &str) {
        let _ = writeln!(self.text, "  {} -. needs .-> {}", id("s", service), id("s", dependency));
    }

    /// Adds that a service passes requests on to another, which it runs without.
    pub fn serve(&mut self, service: &str, other: &str) {
        let _ = writeln!(self.text, "  {} -. serves .-> {}", id("s", service), id("s", other));
    }

    /// Adds a queue with a text on how full it is or may be.
    pub fn queue(&mut self, spec: &'static QueueSpec, fill: &str) {
        let name = spec.name.split('[').next().unwrap_or(spec.name);
        match self.queues.iter_mut().find(|family| family.name == name) {
            Some(family) => family.labels.push(fill.to_owned()),
            None => self.queues.push(Family { name, spec, labels: vec![fill.to_owned()] }),
        }
    }

    /// The whole map.
    pub fn finish(mut self) -> String {
        for family in std::mem::take(&mut self.queues) {
            let queue = id("q", family.name);
            let _ = writeln!(self.text, "  {queue}([\"{}\"])", family.label());
            for end in family.spec.from.split(", ") {
                let end = self.end(end);
                let _ = writeln!(self.text, "  {end} --> {queue}");
            }
            for end in family.spec.to.split(", ") {
                let end = self.end(end);
                let _ = writeln!(self.text, "  {queue} --> {end}");
            }
        }
        format!("flowchart LR\n{}", self.text)
    }

    /// The shape at an end of a queue: a task, or somebody outside, drawn when first met.
    fn end(&mut self, end: &'static str) -> String {
        if self.tasks.contains(&end) {
            return id("t", end);
        }
        let outsider = id("o", end);
        if !self.outsiders.contains(&end) {
            self.outsiders.push(end);
            let _ = writeln!(self.text, "  {outsider}{{{{\"{end}\"}}}}");
        }
        outsider
    }
}

impl Family {
    fn label(&self) -> String {
        match self.labels.as_slice() {
            [alone] => format!("{} {alone}", self.name),
            several => {
                let mut fills = several.to_vec();
                fills.dedup();
                let fills = if fills.len() == 1 { format!("{} each", fills[0]) } else { fills.join(", ") };
                format!("{}[0..{}] {fills}", self.name, several.len() - 1)
            }
        }
    }
}

/// Ids are plain, and of another kind for each kind of shape, so that a task may be called like a service.
fn id(kind: &str, name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    std::iter::once(kind).chain(["_"]).map(str::to_owned).chain([name.chars().map(plain).collect()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Fate, Overflow, QueueKind};

    const fn queue(name: &'static str, from: &'static str, to: &'static str) -> QueueSpec {
        QueueSpec {
            owner: "test",
            service: "shop",
            name,
            kind: QueueKind::Mpsc,
            capacity: 4,
            bytes_max: None,
            from,
            to,
            overflow: Overflow::RejectNew,
            holds_up_writers: false,
            answer: "Busy",
            on_restart: Fate::Kept,
            on_drain: Fate::Drained,
        }
    }

    static FIRST: QueueSpec = queue("jobs[0]", "callers, clerk", "clerk");
    static SECOND: QueueSpec = queue("jobs[1]", "callers, clerk", "clerk");
    static NEWS: QueueSpec = queue("news", "clerk", "every task");

    #[test]
    fn every_queue_has_both_ends_and_every_id_is_plain() {
        let mut map = Flowchart::default();
        map.service("shop", "shop: ready", [("clerk", "clerk 1/1".to_owned())]);
        map.need("shop", "street");
        map.queue(&FIRST, "0/4");
        map.queue(&SECOND, "1/4");
        map.queue(&NEWS, "0/4");
        let expected = "flowchart LR
  subgraph s_shop[\"shop: ready\"]
    t_clerk[\"clerk 1/1\"]
  end
  s_shop -. needs .-> s_street
  q_jobs([\"jobs[0..1] 0/4, 1/4\"])
  o_callers{{\"callers\"}}
  o_callers --> q_jobs
  t_clerk --> q_jobs
  q_jobs --> t_clerk
  q_news([\"news 0/4\"])
  t_clerk --> q_news
  o_every_task{{\"every task\"}}
  q_news --> o_every_task
";
        assert_eq!(map.finish(), expected);
    }
}
