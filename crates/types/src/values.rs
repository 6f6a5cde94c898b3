//! The words configuration values are written in: durations, sizes and permits.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A duration in whole milliseconds, written like `5s`, `150ms`, `2m` or `1h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeSpan(pub u64);

/// A number of bytes, written as an integer or like `64KiB`, `4MiB` or `1GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub usize);

/// Number of callers that may pass a gate at once: fixed, or for each core, written like `4xcpu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Permits {
    /// Fixed number of permits.
    Fixed(usize),
    /// Number of permits for each core.
    PerCpu(usize),
}

/// The text is not in the form the value is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {0}")]
pub struct Malformed(pub &'static str);

const TIME_UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
const SIZE_UNITS: [(&str, usize); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

impl TimeSpan {
    /// The value as a `Duration`.
    pub fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }

    /// From a constant of the limits, all of which are whole milliseconds.
    pub const fn from_duration(duration: Duration) -> Self {
        TimeSpan(duration.as_millis() as u64)
    }
}

impl Size {
    /// The value as a number of bytes.
    pub fn bytes(self) -> usize {
        self.0
    }
}

impl Permits {
    /// The number on a machine with so many cores.
    pub fn on(self, cpus: usize) -> usize {
        match self {
            Permits::Fixed(count) => count,
            Permits::PerCpu(each) => each.saturating_mul(cpus.max(1)),
        }
    }
}

impl FromStr for TimeSpan {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let malformed = Malformed("a duration such as \"5s\", \"150ms\", \"2m\" or \"1h\"");
        let (number, unit) = split_number(text).ok_or(malformed)?;
        let scale = TIME_UNITS.iter().find(|(name, _)| *name == unit).ok_or(malformed)?.1;
        number.checked_mul(scale).map(TimeSpan).ok_or(malformed)
    }
}

impl FromStr for Size {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let malformed = Malformed("a number of bytes, or a size such as \"64KiB\", \"4MiB\" or \"1GiB\"");
        let (number, unit) = split_number(text).ok_or(malformed)?;
        let scale = match unit {
            "" => 1,
            unit => SIZE_UNITS.iter().find(|(name, _)| *name == unit).ok_or(malformed)?.1,
        };
        usize::try_from(number).ok().and_then(|number| number.checked_mul(scale)).map(Size).ok_or(malformed)
    }
}

impl FromStr for Permits {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let malformed = Malformed("a number, or so many for each core such as \"4xcpu\"");
        let (number, unit) = split_number(text).ok_or(malformed)?;
        let number = usize::try_from(number).map_err(|_| malformed)?;
        match unit {
            "" => Ok(Permits::Fixed(number)),
            "xcpu" => Ok(Permits::PerCpu(number)),
            _ => Err(malformed),
        }
    }
}

/// The leading digits and what follows them.
fn split_number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, text[end..].trim_start()))
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            // A minute reads as the seconds it is usually written in.
            60_000 => f.write_str("60s"),
            value => {
                let fits = |unit: &&(&str, u64)| value > 0 && value.is_multiple_of(unit.1);
                let (name, scale) = TIME_UNITS.iter().find(fits).unwrap_or(&("ms", 1));
                write!(f, "{}{name}", value / scale)
            }
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match SIZE_UNITS.iter().find(|(_, scale)| self.0 > 0 && self.0.is_multiple_of(*scale)) {
            Some((name, scale)) => write!(f, "{}{name}", self.0 / scale),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Display for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Permits::Fixed(count) => write!(f, "{count}"),
            Permits::PerCpu(each) => write!(f, "{each}xcpu"),
        }
    }
}

/// An integer or a text, as TOML gives it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(u64),
    Text(String),
}

impl Written {
    fn read<T: FromStr<Err = Malformed>, E: de::Error>(self) -> Result<T, E> {
        match self {
            Written::Number(number) => number.to_string().parse().map_err(E::custom),
            Written::Text(text) => text.parse().map_err(E::custom),
        }
    }
}

impl<'de> Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Written::deserialize(deserializer)?.read()
    }
}

impl<'de> Deserialize<'de> for Permits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Written::deserialize(deserializer)?.read()
    }
}

impl Serialize for TimeSpan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_multiple_of(1024) { serializer.collect_str(self) } else { serializer.serialize_u64(self.0 as u64) }
    }
}

impl Serialize for Permits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Permits::Fixed(count) => serializer.serialize_u64(*count as u64),
            Permits::PerCpu(_) => serializer.collect_str(self),
        }
    }
}

impl JsonSchema for TimeSpan {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": "^[0-9]+ *(ms|s|m|h)$"})
    }
}

impl JsonSchema for Size {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["integer", "string"], "minimum": 0, "pattern": "^[0-9]+ *(KiB|MiB|GiB)?$"})
    }
}

impl JsonSchema for Permits {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Permits".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["integer", "string"], "minimum": 1, "pattern": "^[0-9]+(xcpu)?$"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, millis) in [("5s", 5_000), ("150ms", 150), ("2m", 120_000), ("1h", 3_600_000), ("10 s", 10_000)] {
            assert_eq!(text.parse(), Ok(TimeSpan(millis)), "{text}");
        }
        for text in ["", "5", "s", "-5s", "1.5s", "5sec", "5S", "18446744073709551615h", "99999999999999999999s"] {
            assert!(text.parse::<TimeSpan>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [("0", 0), ("17", 17), ("64KiB", 65_536), ("4MiB", 4_194_304), ("1 GiB", 1 << 30)] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "MiB", "4MB", "4mib", "-1", "1.5MiB", "18446744073709551615GiB"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn permits() {
        assert_eq!("4xcpu".parse(), Ok(Permits::PerCpu(4)));
        assert_eq!("12".parse(), Ok(Permits::Fixed(12)));
        assert!("4xcores".parse::<Permits>().is_err());
        assert_eq!((Permits::PerCpu(4).on(2), Permits::PerCpu(4).on(0), Permits::Fixed(3).on(9)), (8, 4, 3));
    }

    #[test]
    fn what_is_printed_reads_back_and_is_the_shortest_usual_form() {
        for (millis, text) in [(0, "0ms"), (1, "1ms"), (1_500, "1500ms"), (5_000, "5s"), (60_000, "60s")] {
            assert_eq!(TimeSpan(millis).to_string(), text);
            assert_eq!(text.parse(), Ok(TimeSpan(millis)));
        }
        assert_eq!((TimeSpan(120_000).to_string(), TimeSpan(3_600_000).to_string()), ("2m".into(), "1h".into()));
        for (bytes, text) in [(0, "0"), (1_000, "1000"), (65_536, "64KiB"), (1 << 20, "1MiB"), (3 << 30, "3GiB")] {
            assert_eq!(Size(bytes).to_string(), text);
            assert_eq!(text.parse(), Ok(Size(bytes)));
        }
    }
}
