//! `macronode doctor`: examines the machine the node is to run on and says what to do about each finding.

mod machine;
mod own_node;
pub mod probe;

use std::net::SocketAddr;

use serde::Serialize;

use self::own_node::OwnNode;
use crate::commands::Report;
use crate::config::{self, Config, Sources};
use crate::errors::{Code, Exit};
use crate::services;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// All is as it should be.
    Ok,
    /// The node runs, but not as well as it could.
    Warn,
    /// The node will not run like this.
    Fail,
}

/// Result of one examination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Severity.
    pub level: Level,
    /// Name of what was examined.
    pub what: String,
    /// State that was found.
    pub finding: String,
    /// Remedy; none if all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    /// A finding without fault.
    pub fn ok(what: &str, finding: impl Into<String>) -> Self {
        Finding { level: Level::Ok, what: what.to_owned(), finding: finding.into(), advice: None }
    }

    /// A finding that could be better, with advice.
    pub fn warn(what: &str, finding: impl Into<String>, advice: &str) -> Self {
        Finding { level: Level::Warn, advice: Some(advice.to_owned()), ..Finding::ok(what, finding) }
    }

    /// A finding that keeps the node from running, with advice.
    pub fn fail(what: &str, finding: impl Into<String>, advice: &str) -> Self {
        Finding { level: Level::Fail, ..Finding::warn(what, finding, advice) }
    }

    fn line(&self) -> String {
        let level = match self.level {
            Level::Ok => "ok",
            Level::Warn => "warn",
            Level::Fail => "FAIL",
        };
        let advice = self.advice.as_ref().map_or_else(String::new, |advice| format!("  ({advice})"));
        format!("{level:<4}  {:<14}  {}{advice}\n", self.what, self.finding)
    }
}

/// Runs every examination and reports.
pub fn doctor(sources: &Sources, json: bool) -> Report {
    let findings = examine(sources);
    let failed = findings.iter().filter(|finding| finding.level == Level::Fail).count();
    let exit = if failed == 0 { Exit::Clean } else { Exit::Failed };
    if json {
        let text = format!("{:#}\n", serde_json::json!({"ok": failed == 0, "findings": findings}));
        return Report { text, exit };
    }
    let mut text: String = findings.iter().map(Finding::line).collect();
    if failed > 0 {
        text.push_str(&format!("{} {failed} of {} checks failed\n", Code::DoctorFailed, findings.len()));
    }
    Report { text, exit }
}

/// Every finding, in the order they are shown.
pub fn examine(sources: &Sources) -> Vec<Finding> {
    let (mut findings, config) = configuration(sources);
    let own = OwnNode::find(&config);
    findings.extend(own.as_ref().map(OwnNode::finding));
    findings.extend(probe::listeners(&config).into_iter().map(|(key, address)| port(own.as_ref(), key, address)));
    findings.extend(probe::tls(&config).into_iter().map(|(plane, result)| match result {
        Ok(()) => Finding::ok(&format!("tls {plane}"), "certificate and key can be used"),
        Err(failure) => Finding::fail(&format!("tls {plane}"), failure.message, "see docs/errors/MN0013.md"),
    }));
    findings.push(machine::file_limit(&config));
    findings.push(machine::memory(&config));
    findings.extend(machine::clock());
    findings.push(machine::entropy());
    findings.push(match config.amnesia {
        true => Finding::ok("disk", "not examined: with amnesia nothing is written"),
        false => machine::disk(&config.data_dir),
    });
    findings.extend(services::chosen(&config).flat_map(|service| service.examine(&config)));
    findings
}

/// The configuration as a finding; the rest is examined with the defaults if it cannot be used.
fn configuration(sources: &Sources) -> (Vec<Finding>, Config) {
    match config::load(sources) {
        Ok(loaded) => {
            let origin = loaded.file.map_or_else(|| "no file".to_owned(), |file| file.display().to_string());
            let mut findings = vec![Finding::ok("config", format!("{origin}, valid"))];
            let warnings = loaded.config.warnings();
            findings.extend(warnings.into_iter().map(|text| Finding::warn("config", text, "see docs/config.md")));
            (findings, loaded.config)
        }
        Err(errors) => {
            let line = |error: &config::ConfigError| {
                let advice = format!("see docs/errors/{}.md; the rest is examined with the defaults", error.code());
                Finding::fail("config", format!("{} {error}", error.code()), &advice)
            };
            (errors.0.iter().map(line).collect(), Config::default())
        }
    }
}

fn port(own: Option<&OwnNode>, key: &'static str, address: SocketAddr) -> Finding {
    const ADVICE: &str = "stop what has it, or choose another address; see docs/errors/MN0011.md";
    match probe::bind(key, address) {
        Ok(()) => Finding::ok("port", format!("{address} ({key}) is free")),
        Err(failure) => {
            let of_own = own.and_then(|own| own.port(key, address));
            of_own.unwrap_or_else(|| Finding::fail("port", failure.message, ADVICE))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: &str = "api.addr = \"127.0.0.1:0\"\nadmin.addr = \"127.0.0.1:0\"\noap.addr = \"127.0.0.1:0\"\n";

    fn sources(flags: &str) -> Sources {
        Sources { flags: format!("{flags}\n{FREE}").parse().expect("TOML"), ..Sources::default() }
    }

    #[test]
    fn a_line_says_how_bad_what_and_what_to_do() {
        assert_eq!(Finding::ok("port", "free").line(), "ok    port            free\n");
        assert_eq!(Finding::fail("port", "taken", "free it").line(), "FAIL  port            taken  (free it)\n");
    }

    #[test]
    fn amnesia_leaves_the_disk_alone() {
        let findings = examine(&sources("amnesia = true\ndata_dir = \"/dev/null/x\""));
        let disk = findings.iter().find(|finding| finding.what == "disk").expect("a line about the disk");
        assert_eq!(disk.level, Level::Ok, "{disk:?}");
        assert!(findings.iter().filter(|finding| finding.what == "port").count() == 3);
    }

    #[test]
    fn one_failure_makes_the_exit_code() {
        let report = doctor(&sources("data_dir = \"/dev/null/x\""), false);
        assert_eq!(report.exit, Exit::Failed);
        assert!(report.text.lines().any(|line| line.starts_with("FAIL  disk")), "{}", report.text);
        assert!(report.text.lines().last().is_some_and(|line| line.starts_with("MN0021 1 of ")), "{}", report.text);
        let json: serde_json::Value =
            serde_json::from_str(&doctor(&sources("data_dir = \"/dev/null/x\""), true).text).expect("JSON");
        assert_eq!(json["ok"], false);
    }

    #[test]
    fn a_wrong_configuration_is_a_finding() {
        let findings = examine(&sources("workers = 5000\namnesia = true"));
        assert_eq!((findings[0].what.as_str(), findings[0].level), ("config", Level::Fail));
    }

    #[test]
    fn the_disk_is_measured_and_nothing_is_left_behind() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let finding = machine::disk(&folder.path().join("not/yet/there"));
        assert_ne!(finding.level, Level::Fail, "{finding:?}");
        assert!(finding.finding.contains("p99"), "{finding:?}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0);
    }
}
