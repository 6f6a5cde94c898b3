//! What may be written at a key: how a value is checked, read from text, and described.

use std::net::SocketAddr;

use toml::Value;
use tracing_subscriber::EnvFilter;

use ron_types::{Permits, Size, TimeSpan};

/// The most permits a gate may have, and the most for each core.
const PERMITS_MAX: usize = 65_536;
/// Digits of an account id of the service.
const ACCOUNT_ID_DIGITS: usize = 12;

/// What may be written at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// True or false.
    Switch,
    /// A whole number.
    Whole {
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// A whole number from 1, or 0 for a number chosen by the node.
    WholeOrAuto {
        /// The most.
        max: u64,
        /// What the node chooses, in words.
        auto: &'static str,
    },
    /// A number of bytes.
    Size {
        /// The least.
        min: usize,
        /// The most.
        max: usize,
    },
    /// A duration.
    Time {
        /// The shortest.
        min_ms: u64,
        /// The longest.
        max_ms: u64,
    },
    /// An IP address and a port.
    Address,
    /// The path of a file or directory.
    Path,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Some of these names, each once.
    Names(&'static [&'static str]),
    /// Permits of a gate.
    Permits,
    /// Two whole numbers of milliseconds, the lower first.
    Window {
        /// The most either may be.
        max_ms: u64,
    },
    /// A filter of the log.
    Filter,
    /// The number of an account, as text.
    AccountId,
    /// Where clients reach a plane: scheme, host and port.
    Origin,
}

/// What is wrong with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not of this kind at all.
    WrongType,
    /// It is of this kind, but not one that is allowed.
    OutOfRange,
}

impl Kind {
    /// What it is called, with its article.
    pub fn noun(self) -> &'static str {
        match self {
            Kind::Switch => "a switch",
            Kind::Whole { .. } | Kind::WholeOrAuto { .. } => "a whole number",
            Kind::Size { .. } => "a size",
            Kind::Time { .. } => "a duration",
            Kind::Address => "an address",
            Kind::Path => "a path",
            Kind::Choice(_) => "a word",
            Kind::Names(_) => "a list of names",
            Kind::Permits => "a number of permits",
            Kind::Window { .. } => "a window of milliseconds",
            Kind::Filter => "a log filter",
            Kind::AccountId => "an account id",
            Kind::Origin => "an address of the web",
        }
    }

    /// What is allowed, in words.
    pub fn allowed(self) -> String {
        match self {
            Kind::Switch => "true or false".to_owned(),
            Kind::Whole { min, max } => format!("{min} to {max}"),
            Kind::WholeOrAuto { max, auto } => format!("1 to {max}, or 0 for {auto}"),
            Kind::Size { min, max } => format!("{} to {}", Size(min), Size(max)),
            Kind::Time { min_ms, max_ms } => {
                format!("{} to {}, written like \"5s\", \"150ms\" or \"2m\"", TimeSpan(min_ms), TimeSpan(max_ms))
            }
            Kind::Address => "an IP address and a port, such as \"127.0.0.1:8080\" or \"[::1]:8080\"".to_owned(),
            Kind::Path => "a path that is not empty".to_owned(),
            Kind::Choice(words) => words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" or "),
            Kind::Names(names) => format!("one or more of {}, each once", names.join(", ")),
            Kind::Permits => format!("1 to {PERMITS_MAX}, or so many for each core such as \"4xcpu\""),
            Kind::Window { max_ms } => format!("two numbers from 1 to {max_ms}, the lower first, such as [50, 100]"),
            Kind::AccountId => format!("{ACCOUNT_ID_DIGITS} digits in quotation marks, such as \"000000000000\""),
            Kind::Origin => "http:// or https:// with a host and perhaps a port, and no path".to_owned(),
            Kind::Filter => "a level such as \"info\", or pairs such as \"info,ron_kernel=debug\"".to_owned(),
        }
    }

    /// A value from an environment variable. Text that does not fit is kept as text, for `check` to refuse.
    pub fn read_text(self, text: &str) -> Value {
        let text = text.trim();
        let whole = |text: &str| text.parse().map_or_else(|_| Value::String(text.to_owned()), Value::Integer);
        let list = |each: &dyn Fn(&str) -> Value| {
            Value::Array(text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(each).collect())
        };
        match self {
            Kind::Switch => match text.to_ascii_lowercase().as_str() {
                "1" | "true" | "yes" | "on" => Value::Boolean(true),
                "0" | "false" | "no" | "off" => Value::Boolean(false),
                _ => Value::String(text.to_owned()),
            },
            Kind::Whole { .. } | Kind::WholeOrAuto { .. } | Kind::Size { .. } | Kind::Permits => whole(text),
            Kind::Names(_) => list(&|name| Value::String(name.to_owned())),
            Kind::Window { .. } => list(&whole),
            Kind::Time { .. } | Kind::Address | Kind::Path | Kind::Choice(_) | Kind::Filter => {
                Value::String(text.to_owned())
            }
            Kind::AccountId | Kind::Origin => Value::String(text.to_owned()),
        }
    }

    /// Whether the value may stand at this key.
    pub fn check(self, value: &Value) -> Result<(), Fault> {
        let inside = |fits: bool| if fits { Ok(()) } else { Err(Fault::OutOfRange) };
        match self {
            Kind::Switch => value.as_bool().map(|_| ()).ok_or(Fault::WrongType),
            Kind::Whole { min, max } => inside(whole_in(value, min, max)?),
            Kind::WholeOrAuto { max, .. } => inside(whole_in(value, 0, max)?),
            Kind::Size { min, max } => inside((min..=max).contains(&parsed::<Size>(value)?.bytes())),
            Kind::Time { min_ms, max_ms } => {
                inside((min_ms..=max_ms).contains(&text(value)?.parse::<TimeSpan>().map_err(|_| Fault::WrongType)?.0))
            }
            Kind::Address => text(value)?.parse::<SocketAddr>().map(|_| ()).map_err(|_| Fault::WrongType),
            Kind::Path => inside(!text(value)?.is_empty()),
            Kind::Choice(words) => inside(words.contains(&text(value)?)),
            Kind::Names(names) => inside(are_names(value, names)?),
            Kind::Permits => match parsed::<Permits>(value)? {
                Permits::Fixed(count) | Permits::PerCpu(count) => inside((1..=PERMITS_MAX).contains(&count)),
            },
            Kind::Window { max_ms } => inside(is_window(value, max_ms)?),
            Kind::Filter => inside(is_filter(text(value)?)),
            Kind::AccountId => inside(is_account_id(text(value)?)),
            Kind::Origin => inside(is_origin(text(value)?)),
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

fn are_names(value: &Value, known: &[&str]) -> Result<bool, Fault> {
    let names = value.as_array().ok_or(Fault::WrongType)?.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    let once = |(index, name): (usize, &&str)| known.contains(name) && !names[..index].contains(name);
    Ok(!names.is_empty() && names.iter().enumerate().all(once))
}

fn is_window(value: &Value, max_ms: u64) -> Result<bool, Fault> {
    let ends = value.as_array().ok_or(Fault::WrongType)?;
    let [low, high] = ends.as_slice() else { return Err(Fault::WrongType) };
    let fit = whole_in(low, 1, max_ms)? && whole_in(high, 1, max_ms)?;
    Ok(fit && low.as_integer() < high.as_integer())
}

fn is_account_id(text: &str) -> bool {
    text.len() == ACCOUNT_ID_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit())
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
