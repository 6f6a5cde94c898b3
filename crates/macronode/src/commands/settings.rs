//! `macronode config` and `macronode check`: the configuration, and whether the node would start with it.

use std::path::PathBuf;

use toml::Table;

use super::Report;
use crate::config::{self, Loaded, Sources};
use crate::doctor::probe;
use crate::errors::{Exit, Failure};

/// `config print`: the effective configuration, with the source of each value if asked for.
pub fn print(sources: &Sources, with_sources: bool) -> Result<Report, Failure> {
    let loaded = config::load(sources)?;
    Ok(Report::clean(config::print(&loaded, with_sources)))
}

/// `config validate`: whether a file is valid.
pub fn validate(file: Option<PathBuf>) -> Result<Report, Failure> {
    let loaded = config::load(&Sources::of_process(file, Table::new()))?;
    Ok(Report::clean(format!("{}ok: {}\n", warnings(&loaded), origin(&loaded))))
}

/// `config schema`: the JSON schema of the file.
pub fn schema() -> Report {
    Report::clean(format!("{:#}\n", config::schema()))
}

/// `check`: whether the node would start with these sources.
pub fn check(sources: &Sources) -> Result<Report, Failure> {
    let loaded = config::load(sources)?;
    let config = &loaded.config;
    let mut failures = Vec::new();
    for (key, address) in probe::listeners(config) {
        failures.extend(probe::bind(key, address).err());
    }
    failures.extend(probe::tls(config).into_iter().filter_map(|(_, result)| result.err()));
    if !config.amnesia {
        failures.extend(probe::data_dir(&config.data_dir).err());
    }
    if failures.is_empty() {
        let data = if config.amnesia { "nothing is written" } else { "the data directory can be written" };
        let text = format!("{}ok: {}, the ports are free, {data}\n", warnings(&loaded), origin(&loaded));
        return Ok(Report::clean(text));
    }
    let lines: String = failures.iter().map(|failure| format!("{failure}\n")).collect();
    Ok(Report { text: warnings(&loaded) + &lines, exit: Exit::Failed })
}

fn origin(loaded: &Loaded) -> String {
    match &loaded.file {
        Some(file) => format!("{} is valid", file.display()),
        None => "no file, the defaults are valid".to_owned(),
    }
}

fn warnings(loaded: &Loaded) -> String {
    loaded.config.warnings().iter().map(|warning| format!("warn: {warning}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errors::Code;

    fn sources(flags: &str) -> Sources {
        Sources { flags: flags.parse().expect("TOML"), ..Sources::default() }
    }

    const FREE: &str = "api.addr = \"127.0.0.1:0\"\nadmin.addr = \"127.0.0.1:0\"\noap.addr = \"127.0.0.1:0\"\n";

    #[test]
    fn a_node_that_would_start() {
        let report = check(&sources(&format!("amnesia = true\n{FREE}"))).expect("valid");
        let expected = "ok: no file, the defaults are valid, the ports are free, nothing is written\n";
        assert_eq!(report, Report::clean(expected));
    }

    #[test]
    fn a_taken_port_and_a_bad_directory_are_both_named() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = taken.local_addr().expect("bound").port();
        let flags = FREE.replacen("127.0.0.1:0", &format!("127.0.0.1:{port}"), 1);
        let report = check(&sources(&format!("data_dir = \"/dev/null/x\"\n{flags}"))).expect("valid");
        assert_eq!(report.exit, Exit::Failed);
        let lines: Vec<&str> = report.text.lines().collect();
        assert_eq!(lines.len(), 2, "{}", report.text);
        assert!(
            lines[0].starts_with(&format!("MN0011 cannot listen on 127.0.0.1:{port} (`api.addr`)")),
            "{}",
            lines[0]
        );
        assert!(lines[1].starts_with("MN0012 cannot write to /dev/null/x"), "{}", lines[1]);
    }

    #[test]
    fn a_wrong_configuration_exits_with_usage() {
        let failure = check(&sources("workers = 5000")).expect_err("out of range");
        assert_eq!((failure.code, failure.code.exit()), (Code::OutOfRange, Exit::Usage));
    }
}
