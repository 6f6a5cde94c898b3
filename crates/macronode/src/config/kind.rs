//! What may be written at a key: how a value is checked, read from text, and described.

use std::net::SocketAddr;

use ron_transport::PeerAddress;
use ron_types::settings::ValueKind;
use ron_types::{Permits, Size, TimeSpan};
use svc_overlay::LaneName;
use toml::Value;
use tracing_subscriber::EnvFilter;

/// The most permits a gate may have, and the most for each core.
const PERMITS_MAX: usize = 65_536;
/// Reason why a value is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The value is not of the expected kind.
    WrongType,
    /// The value is of the expected kind, but outside of what is allowed.
    OutOfRange,
}

/// Operations of the configuration on a kind of value.
pub trait Checks {
    /// Name of the kind, with its article.
    fn noun(&self) -> &'static str;
    /// Allowed values, in words.
    fn allowed(&self) -> String;
    /// A value from an environment variable. Text that does not fit is kept as text, for `check` to refuse.
    fn read_text(&self, text: &str) -> Value;
    /// Whether the value may stand at a key of this kind.
    fn check(&self, value: &Value) -> Result<(), Fault>;
}

impl Checks for ValueKind {
    fn noun(&self) -> &'static str {
        match self {
            ValueKind::Switch => "a switch",
            ValueKind::Whole { .. } | ValueKind::WholeOrAuto { .. } => "a whole number",
            ValueKind::Size { .. } => "a size",
            ValueKind::Time { .. } => "a duration",
            ValueKind::Address => "an address",
            ValueKind::Path => "a path",
            ValueKind::Choice(_) => "a word",
            ValueKind::Names(_) => "a list of names",
            ValueKind::Permits => "a number of permits",
            ValueKind::Window { .. } => "a window of milliseconds",
            ValueKind::Filter => "a log filter",
            ValueKind::Digits { .. } => "a text of digits",
            ValueKind::Word { .. } => "a word",
            ValueKind::Origin => "an address of the web",
            ValueKind::Nodes { .. } => "a list of nodes",
            ValueKind::LaneWords { .. } => "a list of lanes",
            ValueKind::Texts { .. } => "a list of texts",
        }
    }

    fn allowed(&self) -> String {
        match self {
            ValueKind::Switch => "true or false".to_owned(),
            ValueKind::Whole { min, max } => format!("{min} to {max}"),
            ValueKind::WholeOrAuto { max, auto } => format!("1 to {max}, or 0 for {auto}"),
            ValueKind::Size { min, max } => format!("{} to {}", Size(*min), Size(*max)),
            ValueKind::Time { min_ms, max_ms } => {
                format!("{} to {}, written like \"5s\", \"150ms\" or \"2m\"", TimeSpan(*min_ms), TimeSpan(*max_ms))
            }
            ValueKind::Address => "an IP address and a port, such as \"127.0.0.1:8080\" or \"[::1]:8080\"".to_owned(),
            ValueKind::Path => "a path that is not empty".to_owned(),
            ValueKind::Choice(words) => words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" or "),
            ValueKind::Names(names) => format!("one or more of {}, each once", names.join(", ")),
            ValueKind::Permits => format!("1 to {PERMITS_MAX}, or so many for each core such as \"4xcpu\""),
            ValueKind::Window { max_ms } => {
                format!("two numbers from 1 to {max_ms}, the lower first, such as [50, 100]")
            }
            ValueKind::Digits { count } => {
                format!("{count} digits in quotation marks, such as \"{}\"", "0".repeat(*count))
            }
            ValueKind::Word { bytes_max } => {
                format!("up to {bytes_max} lower-case letters, digits and hyphens, or \"\" for none")
            }
            ValueKind::Origin => "http:// or https:// with a host and perhaps a port, and no path".to_owned(),
            ValueKind::Nodes { count_max } => {
                format!("up to {count_max} times \"NODEID@HOST:PORT\", where NODEID has 64 hexadecimal digits")
            }
            ValueKind::LaneWords { words, count_max } => {
                format!("up to {count_max} times \"LANE=WORD\", each lane once, where WORD is {}", words.join(" or "))
            }
            ValueKind::Texts { count_max, bytes_max } => {
                format!("up to {count_max} texts of 1 to {bytes_max} bytes, in brackets")
            }
            ValueKind::Filter => "a level such as \"info\", or pairs such as \"info,ron_kernel=debug\"".to_owned(),
        }
    }

    fn read_text(&self, text: &str) -> Value {
        let text = text.trim();
        let whole = |text: &str| text.parse().map_or_else(|_| Value::String(text.to_owned()), Value::Integer);
        let list = |each: &dyn Fn(&str) -> Value| {
            Value::Array(text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(each).collect())
        };
        match self {
            ValueKind::Switch => match text.to_ascii_lowercase().as_str() {
                "1" | "true" | "yes" | "on" => Value::Boolean(true),
                "0" | "false" | "no" | "off" => Value::Boolean(false),
                _ => Value::String(text.to_owned()),
            },
            ValueKind::Whole { .. } | ValueKind::WholeOrAuto { .. } | ValueKind::Size { .. } | ValueKind::Permits => {
                whole(text)
            }
            ValueKind::Names(_) | ValueKind::Nodes { .. } | ValueKind::LaneWords { .. } | ValueKind::Texts { .. } => {
                list(&|name| Value::String(name.to_owned()))
            }
            ValueKind::Window { .. } => list(&whole),
            ValueKind::Time { .. }
            | ValueKind::Address
            | ValueKind::Path
            | ValueKind::Choice(_)
            | ValueKind::Filter => Value::String(text.to_owned()),
            ValueKind::Digits { .. } | ValueKind::Word { .. } | ValueKind::Origin => Value::String(text.to_owned()),
        }
    }

    fn check(&self, value: &Value) -> Result<(), Fault> {
        let inside = |fits: bool| if fits { Ok(()) } else { Err(Fault::OutOfRange) };
        match self {
            ValueKind::Switch => value.as_bool().map(|_| ()).ok_or(Fault::WrongType),
            ValueKind::Whole { min, max } => inside(whole_in(value, *min, *max)?),
            ValueKind::WholeOrAuto { max, .. } => inside(whole_in(value, 0, *max)?),
            ValueKind::Size { min, max } => inside((*min..=*max).contains(&parsed::<Size>(value)?.bytes())),
            ValueKind::Time { min_ms, max_ms } => {
                inside((*min_ms..=*max_ms).contains(&text(value)?.parse::<TimeSpan>().map_err(|_| Fault::WrongType)?.0))
            }
            ValueKind::Address => text(value)?.parse::<SocketAddr>().map(|_| ()).map_err(|_| Fault::WrongType),
            ValueKind::Path => inside(!text(value)?.is_empty()),
            ValueKind::Choice(words) => {
                let word = text(value)?;
                inside(words.iter().any(|known| known == word))
            }
            ValueKind::Names(names) => inside(are_names(value, names)?),
            ValueKind::Permits => match parsed::<Permits>(value)? {
                Permits::Fixed(count) | Permits::PerCpu(count) => inside((1..=PERMITS_MAX).contains(&count)),
            },
            ValueKind::Window { max_ms } => inside(is_window(value, *max_ms)?),
            ValueKind::Filter => inside(is_filter(text(value)?)),
            ValueKind::Digits { count } => inside(is_digits(text(value)?, *count)),
            ValueKind::Word { bytes_max } => inside(is_word(text(value)?, *bytes_max)),
            ValueKind::Origin => inside(is_origin(text(value)?)),
            ValueKind::Nodes { count_max } => {
                let nodes = value.as_array().ok_or(Fault::WrongType)?.iter().map(text);
                let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
                inside(nodes.len() <= *count_max && nodes.iter().all(|node| node.parse::<PeerAddress>().is_ok()))
            }
            ValueKind::LaneWords { words, count_max } => inside(are_lane_words(value, words, *count_max)?),
            ValueKind::Texts { count_max, bytes_max } => {
                let texts = value.as_array().ok_or(Fault::WrongType)?.iter().map(text);
                let texts = texts.collect::<Result<Vec<_>, _>>()?;
                inside(texts.len() <= *count_max && texts.iter().all(|text| (1..=*bytes_max).contains(&text.len())))
            }
        }
    }
}

fn text(value: &Value) -> Result<&str, Fault> {
    value.as_str().ok_or(Fault::WrongType)
}

/// A value that is written as a number or as text.
fn parsed<T: std::str::FromStr>(value: &Value) -> Result<T, Fault> {
    let written = match value {
        Value::Integer(number) if *number < 0 => return Err(Fault::OutOfRange),
        Value::Integer(number) => number.to_string(),
        other => text(other)?.to_owned(),
    };
    written.parse().map_err(|_| Fault::WrongType)
}

fn whole_in(value: &Value, min: u64, max: u64) -> Result<bool, Fault> {
    let number = value.as_integer().ok_or(Fault::WrongType)?;
    Ok(u64::try_from(number).is_ok_and(|number| (min..=max).contains(&number)))
}

fn are_names(value: &Value, known: &[String]) -> Result<bool, Fault> {
    let names = value.as_array().ok_or(Fault::WrongType)?.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    let once =
        |(index, name): (usize, &&str)| known.iter().any(|known| known == *name) && !names[..index].contains(name);
    Ok(!names.is_empty() && names.iter().enumerate().all(once))
}

fn are_lane_words(value: &Value, words: &[String], count_max: usize) -> Result<bool, Fault> {
    let rows = value.as_array().ok_or(Fault::WrongType)?.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    let read = |row: &&str| {
        let (lane, word) = row.split_once('=')?;
        words.iter().any(|known| known == word).then(|| lane.parse::<LaneName>().ok())?
    };
    let lanes: Option<Vec<LaneName>> = rows.iter().map(read).collect();
    let once = |lanes: &[LaneName]| lanes.iter().enumerate().all(|(index, lane)| !lanes[..index].contains(lane));
    Ok(lanes.is_some_and(|lanes| lanes.len() <= count_max && once(&lanes)))
}

fn is_window(value: &Value, max_ms: u64) -> Result<bool, Fault> {
    let ends = value.as_array().ok_or(Fault::WrongType)?;
    let [low, high] = ends.as_slice() else { return Err(Fault::WrongType) };
    let fit = whole_in(low, 1, max_ms)? && whole_in(high, 1, max_ms)?;
    Ok(fit && low.as_integer() < high.as_integer())
}

fn is_word(text: &str, bytes_max: usize) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.len() <= bytes_max && text.bytes().all(is_allowed)
}

fn is_digits(text: &str, count: usize) -> bool {
    text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_origin(text: &str) -> bool {
    let Ok(url) = text.parse::<http::Uri>() else { return false };
    let is_web = matches!(url.scheme_str(), Some("http" | "https"));
    let has_path = url.path() != "/" || url.query().is_some() || text.contains('#');
    is_web && !has_path && !url.host().unwrap_or_default().is_empty() && !text.contains('@')
}

fn is_filter(text: &str) -> bool {
    !text.trim().is_empty() && EnvFilter::builder().parse(text).is_ok()
}
