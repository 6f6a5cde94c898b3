//! `macronode index resolve` and `providers`.

use super::args::{ProvidersArgs, ResolveArgs};
use super::course;
use super::words::{Provider, Resolved, providers_table};
use crate::client::ApiClient;
use crate::commands::Report;
use crate::commands::text::segment;
use crate::errors::{Exit, Failure};

/// Shows what an id stands for. Exits with 70 if that was not found.
pub async fn resolve(args: &ResolveArgs) -> Result<Report, Failure> {
    let fresh = if args.fresh { "&fresh=true" } else { "" };
    let path = format!("/resolve/{}?max={}{fresh}", segment(&args.id), args.max);
    let answer = ApiClient::find(&args.node)?.get(&path).await?;
    let resolved: Resolved = answer.read(&path)?;
    let exit = exit_of(&resolved.outcome);
    if args.node.json {
        return Ok(Report { text: answer.text() + "\n", exit });
    }
    let mut text = resolved.show();
    if args.trace {
        text += &course::draw(&resolved);
    }
    Ok(Report { text, exit })
}

/// The answer about providers, as far as people are shown of it.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct Providers {
    outcome: String,
    source: String,
    providers: Vec<Provider>,
}

/// Lists who has some content. Exits with 70 if nobody was found.
pub async fn providers(args: &ProvidersArgs) -> Result<Report, Failure> {
    let path = format!("/providers/{}?max={}", segment(&args.id), args.max);
    let answer = ApiClient::find(&args.node)?.get(&path).await?;
    let found: Providers = answer.read(&path)?;
    let exit = exit_of(&found.outcome);
    let text = match args.node.json {
        true => answer.text() + "\n",
        false => format!("{}, from {}\n{}", found.outcome, found.source, providers_table(&found.providers)),
    };
    Ok(Report { text, exit })
}

/// A script can tell from the exit status alone whether there is anything.
fn exit_of(outcome: &str) -> Exit {
    if outcome == "found" { Exit::Clean } else { Exit::Failed }
}
