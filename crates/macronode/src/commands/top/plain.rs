//! One look as plain text and as JSON, for pipes and files.

use serde_json::Value;

use super::figures::count;
use super::pane::PaneView;
use super::watch::TopView;
use crate::commands::table::{row, table};

/// Maximum queues that are listed.
const QUEUES_MAX: usize = 10;

/// The look as plain text: how the node stands, each pane, the queues.
pub fn text(view: &TopView) -> String {
    let panes: Vec<_> = panes(view).collect();
    let headlines: String = panes.iter().map(|(_, pane)| format!(", {}", pane.headline())).collect();
    let mut sections = vec![format!("{} {}{headlines}\n", view.node.address, view.node.standing())];
    for (service, pane) in &panes {
        // One pane needs no name, and its first line belongs to the headline above it.
        match panes.len() {
            1 => sections[0] += &pane.plain(),
            _ => sections.push(format!("{service}\n{}", pane.plain())),
        }
    }
    let mut queues = vec![row(["queue", "fill", "high", "busy"])];
    let listed = view.node.queues.iter().take(QUEUES_MAX);
    queues.extend(
        listed.map(|queue| row([&queue.name, &queue.fraction(), &queue.high_water.to_string(), &count(queue.busy)])),
    );
    sections.push(table(0, &queues));
    sections.join("\n")
}

/// The look as one JSON object: the fields of the node and those of each pane beside each other.
pub fn json(view: &TopView) -> Value {
    let mut document = serde_json::to_value(&view.node).unwrap_or_default();
    if let Some(fields) = document.as_object_mut() {
        for (name, value) in panes(view).flat_map(|(_, pane)| pane.json()) {
            let taken = fields.insert(name, value);
            debug_assert!(taken.is_none(), "two panes use one name: {taken:?} was hidden");
        }
    }
    document
}

fn panes(view: &TopView) -> impl Iterator<Item = (&'static str, &dyn PaneView)> {
    view.panes.iter().filter_map(|pane| Some((pane.service, pane.view.as_deref()?)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::watch::tests::view;
    use super::*;

    const QUEUES: &str = "
queue       fill    high  busy
work_tx[0]  50/100  90    0
telemetry   0/100   9     0
work        0/100   4     0
";

    #[test]
    fn each_pane_stands_between_the_state_and_the_queues() {
        for (panes, expected) in [
            (&[][..], "here ready\n".to_owned()),
            (&["alpha"], "here ready, 10 alpha rows\nrows of alpha\n".to_owned()),
            (
                &["alpha", "beta"],
                "here ready, 10 alpha rows, 10 beta rows\n\nalpha\nrows of alpha\n\nbeta\nrows of beta\n".to_owned(),
            ),
        ] {
            assert_eq!(text(&view(panes)), expected + QUEUES);
        }
    }

    #[test]
    fn json_has_the_fields_of_the_node_and_of_each_pane() {
        let document = json(&view(&["alpha", "beta"]));
        assert_eq!((&document["address"], &document["state"]), (&json!("here"), &json!("ready")));
        assert_eq!((&document["alpha_rows"], &document["beta_rows"]), (&json!(10), &json!(10)));
        assert_eq!(document["queues"][0]["name"], "work_tx[0]");
    }
}
