//! `macronode status`: how the running node stands.

use std::fmt::Write as _;
use std::time::Duration;

use ron_kernel::Deadline;
use tokio::net::TcpStream;

use super::Report;
use super::table::{row, table};
use super::view::Status;
use crate::cli::ClientArgs;
use crate::client::Client;
use crate::errors::{Exit, Failure};

/// Asks the node and shows its services.
pub async fn status(args: &ClientArgs) -> Result<Report, Failure> {
    let client = Client::find(args)?;
    let (status, answer) = client.status().await?;
    let mut text = if args.json { answer.text() + "\n" } else { show(&status) };
    if let (Some(api), false) = (&args.api, args.json) {
        let _ =
            writeln!(text, "\napi {api} {}", if takes_connections(api).await { "answers" } else { "does not answer" });
    }
    Ok(Report { text, exit: exit_of(&status.state) })
}

async fn takes_connections(address: &str) -> bool {
    let attempt = Deadline::after(Duration::from_secs(2)).run("api probe", TcpStream::connect(address)).await;
    matches!(attempt, Ok(Ok(_)))
}

fn exit_of(state: &str) -> Exit {
    if matches!(state, "ready" | "degraded") { Exit::Clean } else { Exit::Failed }
}

fn show(status: &Status) -> String {
    let mut rows = vec![row(["service", "state", "restarts/60s", "reason"])];
    for service in &status.services {
        let name = if service.required { service.name.clone() } else { format!("{} (optional)", service.name) };
        let pressed = status.pressure.iter().filter(|pressure| pressure.service == service.name);
        let causes: Vec<&str> = pressed.map(|pressure| pressure.cause.as_str()).collect();
        let (mut state, mut reason) = (service.state.clone(), service.reason.clone().unwrap_or_default());
        if !causes.is_empty() && service.state == "ready" {
            (state, reason) = ("refuses writes".to_owned(), causes.join(", "));
        }
        rows.push(row([&name, &state, &service.restarts_60s.to_string(), &reason]));
    }
    let notes: String = status.notes.iter().map(|note| format!("note: {note}\n")).collect();
    format!("{}\n{notes}\n{}", headline(status), table(0, &rows))
}

/// The state, and in the same line why it is not better.
pub fn headline(status: &Status) -> String {
    // Who is refused wants to know that first.
    let pressed = status.pressure.iter().map(|cause| format!("{} under pressure: {}", cause.service, cause.cause));
    let mut reasons: Vec<String> = status.unmet.iter().cloned().chain(pressed).collect();
    if status.unmet.is_empty() {
        let limps = |state: &str| matches!(state, "degraded" | "unready" | "failed");
        let limping = status.services.iter().filter(|service| limps(&service.state));
        reasons.extend(limping.map(|service| format!("{} {}", service.name, service.reason.as_deref().unwrap_or(""))));
    }
    let reads_only = matches!(status.state.as_str(), "ready" | "degraded") && !status.accepts_writes;
    let state = if reads_only { format!("{} for reads only", status.state) } else { status.state.clone() };
    if reasons.is_empty() { state } else { format!("{state}: {}", reasons.join("; ")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn headline_of(answer: serde_json::Value) -> String {
        headline(&serde_json::from_value(answer).expect("the shape of /readyz"))
    }

    #[test]
    fn the_first_line_says_how_it_stands_and_why() {
        assert_eq!(headline_of(json!({"state": "ready", "accepts_writes": true})), "ready");
        let limping = json!({
            "state": "degraded", "accepts_writes": true,
            "services": [{"name": "http", "state": "ready"},
                         {"name": "workers", "state": "degraded", "reason": "worker[3] was restarted 6 times"}],
        });
        assert_eq!(headline_of(limping), "degraded: workers worker[3] was restarted 6 times");
        let unmet = json!({"state": "unready", "unmet": ["http: waits for workers"]});
        assert_eq!(headline_of(unmet), "unready: http: waits for workers");
        let pressed = json!({"state": "degraded", "accepts_writes": false,
            "pressure": [{"service": "workers", "cause": "queue work above 90 %"}]});
        assert_eq!(headline_of(pressed), "degraded for reads only: workers under pressure: queue work above 90 %");
    }

    #[test]
    fn only_a_serving_node_is_a_success() {
        for (state, exit) in
            [("ready", 0), ("degraded", 0), ("unready", 70), ("starting", 70), ("draining", 70), ("", 70)]
        {
            assert_eq!(exit_of(state).number(), exit, "{state}");
        }
    }

    #[test]
    fn the_table_has_a_line_for_each_service() {
        let status: Status = serde_json::from_value(json!({
            "state": "degraded", "accepts_writes": false,
            "services": [{"name": "http", "state": "ready", "required": true, "restarts_60s": 2, "reason": null},
                         {"name": "storage", "state": "ready", "required": true},
                         {"name": "oap", "state": "starting", "required": false, "reason": "waits for workers"}],
            "pressure": [{"service": "storage", "cause": "log_device"}],
        }))
        .expect("the shape of /readyz");
        let expected = "\
degraded for reads only: storage under pressure: log_device

service         state           restarts/60s  reason
http            ready           2
storage         refuses writes  0             log_device
oap (optional)  starting        0             waits for workers
";
        assert_eq!(show(&status), expected);
    }
}
