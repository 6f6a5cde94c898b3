//! `macronode index kept`: what the node keeps until it is told otherwise.

use serde::{Deserialize, Serialize};

use super::args::{KeptArgs, KeptWhat};
use crate::client::ApiClient;
use crate::commands::Report;
use crate::commands::table::{row, table};
use crate::commands::text::{one_line, relative, segment};
use crate::errors::Failure;

/// Items of one page: as many as the node gives at once.
const PAGE: usize = 1000;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Page {
    items: Vec<Item>,
    next: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Item {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    addrs: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocols: Option<Vec<String>>,
}

/// Lists all of it, page by page.
pub async fn kept(args: &KeptArgs) -> Result<Report, Failure> {
    let mut client = ApiClient::find(&args.node)?;
    let (mut items, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("{}?limit={PAGE}{after}", path_of(args.what));
        let page: Page = client.get(&path).await?.read(&path)?;
        items.extend(page.items);
        match page.next {
            Some(next) => after = format!("&after={}", segment(&next)),
            None => break,
        }
    }
    if args.node.json {
        let lines = items.iter().map(|item| serde_json::to_string(item).unwrap_or_default() + "\n");
        return Ok(Report::clean(lines.collect::<String>()));
    }
    Ok(Report::clean(show(&items)))
}

fn path_of(what: KeptWhat) -> &'static str {
    match what {
        KeptWhat::Pins => "/index/pins",
        KeptWhat::Provided => "/index/provided",
        KeptWhat::Names => "/index/names",
    }
}

fn show(items: &[Item]) -> String {
    if items.is_empty() {
        return "nothing\n".to_owned();
    }
    let shown = |item: &Item| {
        let (what, about) = match item {
            Item { name: Some(name), id, .. } => (name.clone(), id.clone()),
            Item { since_ms: Some(since_ms), id, .. } => (id.clone(), format!("pinned {}", relative(*since_ms))),
            Item { addrs: Some(addrs), id, .. } if !addrs.is_empty() => (id.clone(), addrs.join(" ")),
            Item { id, .. } => (id.clone(), "where the node is".to_owned()),
        };
        row([&one_line(&what), &one_line(&about)])
    };
    table(0, &items.iter().map(shown).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_list_is_shown_in_its_own_words() {
        let item = Item { id: "b3:00".to_owned(), ..Item::default() };
        assert_eq!(show(&[]), "nothing\n");
        assert_eq!(show(std::slice::from_ref(&item)), "b3:00  where the node is\n");
        let addrs = Some(vec!["/ip4/10.0.0.1/tcp/1".to_owned()]);
        assert_eq!(show(&[Item { addrs, ..item }]), "b3:00  /ip4/10.0.0.1/tcp/1\n");
        let named = Item { id: "b3:00".to_owned(), name: Some("name:a".to_owned()), ..Item::default() };
        assert_eq!(show(&[named]), "name:a  b3:00\n");
    }
}
