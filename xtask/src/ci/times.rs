//! How long each step took: the table at the end of a run, and the same as JSON.

use crate::tally::Tally;
use anyhow::{Context, Result};
use serde_json::json;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// One step of a run.
#[derive(Clone, Debug)]
pub struct StepTime {
    /// Name of the step.
    pub name: String,
    /// Whether it ran beside others, so that its time is no part of the sum.
    pub is_beside: bool,
    /// Time its builds took, by their own words.
    pub building: Duration,
    /// Time from its start to its end.
    pub total: Duration,
    /// Tests it ran.
    pub tally: Tally,
    /// Whether it succeeded.
    pub passed: bool,
}

/// The steps of a run.
#[derive(Debug, Default)]
pub struct Times {
    /// In the order in which they ended; those beside others come last.
    pub steps: Vec<StepTime>,
    /// Time from the start of the run to its end.
    pub wall: Duration,
}

impl StepTime {
    fn running(&self) -> Duration {
        self.total.saturating_sub(self.building)
    }

    fn tests(&self) -> u64 {
        self.tally.passed + self.tally.failed
    }
}

impl Times {
    /// Writes the table as JSON; `source` says where compiled crates of others came from.
    pub fn write(&self, file: &Path, source: &str) -> Result<()> {
        let steps = self.steps.iter().map(|step| {
            json!({
                "name": step.name,
                "beside": step.is_beside,
                "building_s": rounded(step.building),
                "running_s": rounded(step.running()),
                "tests": step.tests(),
                "bounds_left_open": step.tally.left_open,
                "passed": step.passed,
            })
        });
        let all = json!({
            "third_party_crates": source,
            "cores": std::thread::available_parallelism().map_or(0, usize::from),
            "wall_s": rounded(self.wall),
            "steps": steps.collect::<Vec<_>>(),
        });
        std::fs::create_dir_all(file.parent().unwrap_or(file)).with_context(|| file.display().to_string())?;
        std::fs::write(file, format!("{all:#}\n")).with_context(|| file.display().to_string())
    }
}

fn rounded(time: Duration) -> f64 {
    (time.as_secs_f64() * 10.0).round() / 10.0
}

impl fmt::Display for Times {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{:<18}{:>10}{:>10}{:>8}", "step", "building", "running", "tests")?;
        for step in &self.steps {
            let name = format!("{}{}", if step.is_beside { "+ " } else { "" }, step.name);
            let (building, running) = (step.building.as_secs_f64(), step.running().as_secs_f64());
            let mark = if step.passed { "" } else { "  FAILED" };
            writeln!(formatter, "{name:<18}{building:>10.1}{running:>10.1}{:>8}{mark}", step.tests())?;
        }
        let in_order = || self.steps.iter().filter(|step| !step.is_beside);
        let building: Duration = in_order().map(|step| step.building).sum();
        let running: Duration = in_order().map(StepTime::running).sum();
        let tests: u64 = self.steps.iter().map(StepTime::tests).sum();
        let (building, running) = (building.as_secs_f64(), running.as_secs_f64());
        writeln!(formatter, "{:<18}{building:>10.1}{running:>10.1}{tests:>8}", "in order")?;
        let open: u64 = self.steps.iter().map(|step| step.tally.left_open).sum();
        writeln!(formatter, "{:<18}{open:>20} left open, because others used the machine", "bounds of time")?;
        write!(formatter, "{:<18}{:>20.1} s from start to end; + ran beside others", "wall", self.wall.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &str, is_beside: bool, building_s: u64, total_s: u64, passed: bool) -> StepTime {
        StepTime {
            name: name.to_owned(),
            is_beside,
            building: Duration::from_secs(building_s),
            total: Duration::from_secs(total_s),
            tally: Tally { passed: 2, failed: u64::from(!passed), skipped: 1, left_open: 1 },
            passed,
        }
    }

    #[test]
    fn the_table_adds_up() {
        let steps =
            vec![step("fmt", false, 0, 2, true), step("test", false, 40, 60, false), step("deny", true, 5, 9, true)];
        let times = Times { steps, wall: Duration::from_secs(63) };
        let expected = "\
step                building   running   tests
fmt                      0.0       2.0       2
test                    40.0      20.0       3  FAILED
+ deny                   5.0       4.0       2
in order                40.0      22.0       7
bounds of time                       3 left open, because others used the machine
wall                              63.0 s from start to end; + ran beside others";
        assert_eq!(times.to_string(), expected);
    }

    #[test]
    fn the_file_says_the_same() {
        let file = std::env::temp_dir().join(format!("xtask-times-{}.json", std::process::id()));
        let times = Times { steps: vec![step("test", false, 40, 60, true)], wall: Duration::from_millis(61_260) };
        times.write(&file, "cache").expect("it is written");
        let read: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).expect("the file")).expect("JSON");
        std::fs::remove_file(file).expect("cleaned up");
        assert_eq!(read["wall_s"], 61.3);
        assert_eq!(read["third_party_crates"], "cache");
        let step = &read["steps"][0];
        assert_eq!([&step["name"], &step["beside"], &step["passed"]], [&json!("test"), &json!(false), &json!(true)]);
        assert_eq!([&step["building_s"], &step["running_s"]], [40.0, 20.0]);
        assert_eq!(step["tests"], 2);
    }
}
