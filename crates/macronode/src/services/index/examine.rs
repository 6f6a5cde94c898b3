//! What `macronode doctor` finds out about the index: its store, its routers, its network.

use std::io::ErrorKind;

use svc_index::config::{Access, Options};

use super::{FOLDER, STORE_FILE};
use crate::config::Config;
use crate::doctor::Finding;

/// Everything that can be seen without changing anything.
pub fn examine(config: &Config) -> Vec<Finding> {
    let options = config.section::<Options>();
    let mut findings = vec![store(config), network(config, options)];
    findings.extend((!options.upstreams.is_empty()).then(|| routers(options)));
    findings.extend((options.access == Access::Public && !config.api.addr.ip().is_loopback()).then(|| {
        Finding::ok("index", "anybody who reaches the node may resolve; `index.access` = token asks for a token")
    }));
    findings
}

fn store(config: &Config) -> Finding {
    if config.amnesia {
        return Finding::ok("index store", "in memory: with amnesia nothing is written");
    }
    let folder = config.data_dir.join(FOLDER);
    let damaged = damaged_files(&folder);
    let path = folder.join(STORE_FILE);
    match (std::fs::metadata(&path), damaged) {
        (_, damaged) if damaged > 0 => Finding::warn(
            "index store",
            format!("{damaged} damaged files lie beside {}", path.display()),
            "the node began a new one; records come back as they are published again: remove the old ones",
        ),
        (Ok(facts), _) => Finding::ok("index store", format!("{} bytes in {}", facts.len(), path.display())),
        // That the data directory itself cannot be used is found where the disk is examined.
        (Err(error), _) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Finding::ok("index store", "none yet; made at the first start")
        }
        (Err(error), _) => Finding::fail(
            "index store",
            format!("{}: {error}", path.display()),
            "let the node read and write the file, or it does not start",
        ),
    }
}

/// Files that were set aside because they were damaged.
fn damaged_files(folder: &std::path::Path) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().contains(".damaged")).count()
}

fn network(config: &Config, options: &Options) -> Finding {
    match (config.runs(svc_dht::specs::DHT.name), options.upstreams.is_empty()) {
        (true, _) => Finding::ok("index network", "asks the nodes of the DHT"),
        (false, false) => Finding::ok("index network", "asks upstream routers only: the service dht is not chosen"),
        (false, true) => Finding::warn(
            "index network",
            "asks nobody: the service dht is not chosen, and there are no upstream routers",
            "choose the service dht, or set `index.upstreams`; until then only what is published here is found",
        ),
    }
}

fn routers(options: &Options) -> Finding {
    let insecure = options.upstreams.iter().filter(|address| !address.starts_with("https://")).count();
    match insecure {
        0 => Finding::ok("index routers", format!("{} upstream routers over TLS", options.upstreams.len())),
        _ => Finding::warn(
            "index routers",
            format!("{insecure} of {} upstream routers are not asked over TLS", options.upstreams.len()),
            "that is fine on this machine, and refused elsewhere",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    #[test]
    fn damaged_files_are_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = Config { data_dir: folder.path().to_owned(), ..Config::default() };
        assert_eq!(store(&config).level, Level::Ok);
        let index = folder.path().join(FOLDER);
        std::fs::create_dir(&index).expect("made");
        std::fs::write(index.join(STORE_FILE), "x").expect("written");
        assert_eq!(store(&config).level, Level::Ok);
        std::fs::write(index.join(format!("{STORE_FILE}.damaged-1")), "x").expect("written");
        assert_eq!(store(&config).level, Level::Warn);
    }

    #[test]
    fn an_index_that_asks_nobody_is_told() {
        let found = |services: &[&str], upstreams: Vec<String>| {
            let services = services.iter().map(|name| (*name).to_owned()).collect();
            let config = Config { services, ..Config::default() };
            network(&config, &Options { upstreams, ..Options::default() }).level
        };
        assert_eq!(found(&["index", "dht"], Vec::new()), Level::Ok);
        assert_eq!(found(&["index"], vec!["https://x".to_owned()]), Level::Ok);
        assert_eq!(found(&["index"], Vec::new()), Level::Warn);
    }
}
