//! `macronode version`: of this binary, and of a running node if one is named.

use serde_json::{Value, json};

use super::Report;
use crate::cli::ClientArgs;
use crate::client::Client;
use crate::errors::Failure;

/// The version of this binary with what it was built for.
pub fn this_binary() -> Value {
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "os": std::env::consts::OS,
        "arch": std::env::consts::ARCH,
        "build": if cfg!(debug_assertions) { "debug" } else { "release" },
    })
}

/// Says the version; asks a node only if one was named.
pub async fn version(args: &ClientArgs) -> Result<Report, Failure> {
    let node = match args.admin {
        None => None,
        Some(_) => {
            Some(Client::find(args)?.get("/version").await?.expect_success("/version")?.read::<Value>("/version")?)
        }
    };
    let ours = this_binary();
    Ok(Report::clean(match args.json {
        true => format!("{}\n", json!({"binary": ours, "node": node})),
        false => show(&ours, node.as_ref()),
    }))
}

fn show(ours: &Value, node: Option<&Value>) -> String {
    let word = |name: &str| ours[name].as_str().unwrap_or("?");
    let line = format!("macronode {} ({} {}, {})\n", word("version"), word("os"), word("arch"), word("build"));
    let Some(node) = node.and_then(Value::as_object) else { return line };
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let rest: String = node.iter().map(|(name, value)| format!("  {name}: {}\n", plain(value))).collect();
    format!("{line}node\n{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_node_is_shown_below_this_binary() {
        let ours = json!({"version": "1.2.3", "os": "linux", "arch": "x86_64", "build": "release"});
        assert_eq!(show(&ours, None), "macronode 1.2.3 (linux x86_64, release)\n");
        let node = json!({"config_version": 7, "version": "1.2.2"});
        let expected = "macronode 1.2.3 (linux x86_64, release)\nnode\n  config_version: 7\n  version: 1.2.2\n";
        assert_eq!(show(&ours, Some(&node)), expected);
    }
}
