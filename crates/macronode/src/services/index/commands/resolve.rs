//! `macronode index resolve` and `providers`.

use super::args::{LookArgs, ProvidersArgs, ResolveArgs};
use super::course;
use super::words::{Ask, Provider, Resolved, providers_table};
use crate::client::ApiClient;
use crate::commands::Report;
use crate::commands::text::segment;
use crate::errors::{Exit, Failure};

/// Shows what an id stands for. Exits with 70 if that was not found.
pub async fn resolve(args: &ResolveArgs) -> Result<Report, Failure> {
    let path = format!("/resolve/{}?max={}{}", segment(&args.id), args.max, and_fresh(args.look));
    let answer = ApiClient::find(&args.node)?.get(&path).await?;
    let resolved: Resolved = answer.read(&path)?;
    let exit = exit_of(&resolved.outcome);
    if args.node.json {
        return Ok(Report { text: answer.text() + "\n", exit });
    }
    let mut text = resolved.show();
    if args.look.trace {
        text += &course::draw(&resolved.source, resolved.took_ms, &resolved.course);
    }
    Ok(Report { text, exit })
}

/// The answer about providers, as far as people are shown of it.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct Providers {
    outcome: String,
    source: String,
    took_ms: f64,
    providers: Vec<Provider>,
    course: Vec<Ask>,
}

/// Lists who has some content. Exits with 70 if nobody was found.
pub async fn providers(args: &ProvidersArgs) -> Result<Report, Failure> {
    let path = format!("/providers/{}?max={}{}", segment(&args.id), args.max, and_fresh(args.look));
    let answer = ApiClient::find(&args.node)?.get(&path).await?;
    let found: Providers = answer.read(&path)?;
    let exit = exit_of(&found.outcome);
    if args.node.json {
        return Ok(Report { text: answer.text() + "\n", exit });
    }
    let mut text = format!("{}, from {}\n{}", found.outcome, found.source, providers_table(&found.providers));
    if args.look.trace {
        text += &course::draw(&found.source, found.took_ms, &found.course);
    }
    Ok(Report { text, exit })
}

/// The end of a query, if the network is to be asked.
const fn and_fresh(look: LookArgs) -> &'static str {
    if look.fresh { "&fresh=true" } else { "" }
}

/// A script can tell from the exit status alone whether there is anything.
pub fn exit_of(outcome: &str) -> Exit {
    if outcome == "found" { Exit::Clean } else { Exit::Failed }
}
