//! `macronode overlay sub`: a lane as it happens, one line for each event.

use ron_types::limits::overlay::PAYLOAD_BYTES_MAX;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use super::args::SubArgs;
use super::short;
use crate::client::ApiClient;
use crate::client::sse::{Frame, FrameReader};
use crate::commands::text::{decoded, one_line, payload_line, segment};
use crate::commands::{Report, print};
use crate::errors::{Code, Failure};

/// Longest event: the largest payload in base64, and the words around it.
const FRAME_BYTES_MAX: usize = PAYLOAD_BYTES_MAX.div_ceil(3) * 4 + 4096;
/// Characters of a payload in its line.
const PAYLOAD_WIDTH: usize = 1_000;

/// Shows what a lane carries until Ctrl-C, or until as many messages came as were asked for.
pub async fn subscribe(args: &SubArgs) -> Result<Report, Failure> {
    let failure = |error| Failure::new(Code::CannotStart, format!("Ctrl-C cannot be heard: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failure)?;
    let path = path_of(args);
    let mut answer = ApiClient::find(&args.node)?.open_stream(&path, None).await?;
    let mut reader = FrameReader::up_to(FRAME_BYTES_MAX);
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
        let lines: String =
            reader.read(&bytes).ok_or_else(foreign)?.iter().map(|frame| shown(args, frame, &mut left)).collect();
        // A reader that has left wants no more.
        if print(&lines).is_err() {
            break;
        }
    }
    Ok(Report::clean(""))
}

fn path_of(args: &SubArgs) -> String {
    let from = args.from.iter().map(|from| format!("&from={}", segment(from)));
    let query: String = from.chain(args.no_own.then(|| "&own=false".to_owned())).collect();
    let query = if query.is_empty() { query } else { format!("?{}", &query[1..]) };
    format!("/overlay/lanes/{}/subscribe{query}", segment(&args.lane))
}

/// The line of an event; nothing for comments, and for messages beyond the number asked for.
fn shown(args: &SubArgs, frame: &Frame, left: &mut u64) -> String {
    let Ok(mut data) = serde_json::from_str::<Value>(&frame.data) else { return String::new() };
    if *left == 0 {
        return String::new();
    }
    *left -= u64::from(frame.event == "message");
    if args.node.json {
        data["type"] = frame.event.as_str().into();
        return format!("{data}\n");
    }
    line(&frame.event, &data)
}

fn line(event: &str, data: &Value) -> String {
    let origin = short(data["origin"].as_str().unwrap_or("?"));
    match event {
        "message" => {
            let payload = decoded(data["payload_b64"].as_str().unwrap_or_default());
            format!("{origin} {} {}\n", data["seq"], payload_line(&payload, PAYLOAD_WIDTH))
        }
        // What is no message is told apart from one by the mark.
        "ready" => format!("# hearing {} at {}\n", text(data, "lane"), short(data["node_id"].as_str().unwrap_or("?"))),
        "gap" => format!("# {origin} {} to {}: lost, nobody has them any more\n", data["from"], data["to"]),
        "epoch" => format!("# {origin} was started anew; its numbers begin again\n"),
        "lagged" => format!("# {} events lost: this reader was too slow\n", data["dropped"]),
        "end" => format!("# the node ends the stream: {}\n", text(data, "reason")),
        _ => String::new(),
    }
}

fn text(data: &Value, name: &str) -> String {
    one_line(data[name].as_str().unwrap_or("?"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::json;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: SubArgs,
    }

    fn args(line: &str) -> SubArgs {
        Line::try_parse_from(line.split(' ')).unwrap_or_else(|error| panic!("{line}: {error}")).args
    }

    #[test]
    fn the_query_says_what_was_asked_for() {
        assert_eq!(path_of(&args("sub a/b")), "/overlay/lanes/a%2Fb/subscribe");
        let path = path_of(&args("sub a --from x:1 --no-own --from y:2"));
        assert_eq!(path, "/overlay/lanes/a/subscribe?from=x%3A1&from=y%3A2&own=false");
    }

    #[test]
    fn events_are_lines_and_only_messages_count() {
        let frame =
            |event: &str, data: Value| Frame { id: String::new(), event: event.to_owned(), data: data.to_string() };
        let message = frame("message", json!({"origin": "0123456789ab", "seq": 7, "payload_b64": "YQpi"}));
        let gap = frame("gap", json!({"origin": "0123456789ab", "from": 2, "to": 3}));
        let (args, mut left) = (args("sub a --count 2"), 2);
        assert_eq!(shown(&args, &gap, &mut left), "# 01234567 2 to 3: lost, nobody has them any more\n");
        assert_eq!(shown(&args, &message, &mut left), "01234567 7 a\\nb\n");
        assert_eq!(shown(&args, &Frame::default(), &mut left), "", "a comment");
        assert_eq!((shown(&args, &message, &mut left).is_empty(), left), (false, 0));
        assert_eq!(shown(&args, &message, &mut left), "", "no more than was asked for");
    }
}
