//! `macronode index watch`: what changes about an id, one line for each change.

use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use super::args::WatchArgs;
use super::words::short;
use crate::client::ApiClient;
use crate::client::sse::{Frame, FrameReader};
use crate::commands::text::{one_line, segment};
use crate::commands::{Report, print};
use crate::errors::{Code, Failure};

/// Shows changes until Ctrl-C, or until as many came as were asked for.
pub async fn watch(args: &WatchArgs) -> Result<Report, Failure> {
    let failure = |error| Failure::new(Code::CannotStart, format!("Ctrl-C cannot be heard: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failure)?;
    let path = format!("/watch/{}", segment(&args.id));
    let mut answer = ApiClient::find(&args.node)?.open_stream(&path, None).await?;
    let mut reader = FrameReader::default();
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let bytes = tokio::select! {
            _ = interrupt.recv() => break,
            bytes = answer.next() => bytes,
        };
        let bytes = match bytes {
            Some(Ok(bytes)) => bytes,
            Some(Err(error)) => return Err(Failure::new(Code::NoNode, format!("the stream broke: {error}"))),
            None => return Err(Failure::new(Code::NoNode, "the node ended the stream")),
        };
        let foreign = || Failure::new(Code::NodeRefused, "the answer is not a stream of events");
        let frames = reader.read(&bytes).ok_or_else(foreign)?;
        let lines: String = frames.iter().map(|frame| shown(args.node.json, frame, &mut left)).collect();
        // A reader that has left wants no more.
        if print(&lines).is_err() {
            break;
        }
    }
    Ok(Report::clean(""))
}

/// The line of an event; nothing for comments, and for changes beyond the number asked for.
fn shown(json: bool, frame: &Frame, left: &mut u64) -> String {
    let Ok(mut data) = serde_json::from_str::<Value>(&frame.data) else { return String::new() };
    if *left == 0 {
        return String::new();
    }
    *left -= u64::from(matches!(frame.event.as_str(), "provider" | "name" | "manifest"));
    if json {
        data["type"] = frame.event.as_str().into();
        return format!("{data}\n");
    }
    line(&frame.event, &data)
}

fn line(event: &str, data: &Value) -> String {
    let text = |value: &Value| one_line(value.as_str().unwrap_or("?"));
    match event {
        "provider" => {
            let provider = &data["provider"];
            let who = short(provider["peer_id"].as_str().unwrap_or("?"));
            let addrs = provider["addrs"].as_array().map(Vec::as_slice).unwrap_or_default();
            match data["withdrawn"].as_bool() {
                Some(true) => format!("provider {who} has it no more\n"),
                _ => format!("provider {who} {}\n", addrs.iter().map(text).collect::<Vec<_>>().join(" ")),
            }
        }
        "name" if data["withdrawn"] == true => "name stands for nothing any more\n".to_owned(),
        "name" => format!("name stands for {}, number {}\n", text(&data["name"]["value"]), data["name"]["sequence"]),
        "manifest" => format!("manifest {} came\n", text(&data["content"]["cid"])),
        // What is no change is told apart from one by the mark.
        "ready" => format!("# watching {}\n", text(&data["id"])),
        "missed" => format!("# {} changes lost: this reader was too slow\n", data["missed"]),
        "end" => format!("# the node ends the stream: {}\n", text(&data["reason"])),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn changes_are_lines_and_only_changes_count() {
        let frame =
            |event: &str, data: Value| Frame { id: String::new(), event: event.to_owned(), data: data.to_string() };
        let mut left = 2;
        assert_eq!(shown(false, &frame("ready", json!({"id": "name:a"})), &mut left), "# watching name:a\n");
        let name = frame("name", json!({"name": {"value": "b3:0", "sequence": 4}}));
        assert_eq!(shown(false, &name, &mut left), "name stands for b3:0, number 4\n");
        let removed = json!({"name": {"value": "b3:0", "sequence": 5}, "withdrawn": true});
        assert_eq!(line("name", &removed), "name stands for nothing any more\n");
        let provider = json!({"provider": {"peer_id": "12D3", "addrs": ["/ip4/1.2.3.4"]}, "withdrawn": false});
        assert_eq!(shown(false, &frame("provider", provider), &mut left), "provider 12D3 /ip4/1.2.3.4\n");
        assert_eq!((shown(false, &name, &mut left).as_str(), left), ("", 0), "no more than was asked for");
        left = 1;
        assert_eq!(shown(true, &name, &mut left), "{\"name\":{\"sequence\":4,\"value\":\"b3:0\"},\"type\":\"name\"}\n");
        let gone = json!({"provider": {"peer_id": "12D3"}, "withdrawn": true});
        assert_eq!(line("provider", &gone), "provider 12D3 has it no more\n");
        assert_eq!(shown(false, &Frame::default(), &mut left), "", "a comment");
    }
}
