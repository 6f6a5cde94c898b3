//! A part of a JSON body that is read by somebody else: kept as text, with every member it has.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// JSON text. A tree of values would keep one of two members of the same name, and whoever reads the text later could
/// not refuse it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RawJson(pub String);

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Text).map(RawJson)
    }
}

struct Text;

fn quoted<E: de::Error>(text: &str) -> Result<String, E> {
    serde_json::to_string(text).map_err(E::custom)
}

impl<'de> Visitor<'de> for Text {
    type Value = String;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_i64<E>(self, value: i64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_u64<E>(self, value: u64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<String, E> {
        serde_json::to_string(&value).map_err(E::custom)
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<String, E> {
        quoted(value)
    }

    fn visit_unit<E>(self) -> Result<String, E> {
        Ok("null".to_owned())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<String, A::Error> {
        let mut text = "[".to_owned();
        while let Some(RawJson(item)) = items.next_element()? {
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(&item);
        }
        Ok(text + "]")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<String, A::Error> {
        let mut text = "{".to_owned();
        while let Some((name, RawJson(value))) = members.next_entry::<String, RawJson>()? {
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(&quoted(&name)?);
            text.push(':');
            text.push_str(&value);
        }
        Ok(text + "}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_is_kept_also_one_that_comes_twice() {
        let text = r#"{"a":[1,-2,true,null,"é\n"],"b":{},"a":0.5}"#;
        let RawJson(kept) = serde_json::from_str(text).expect("JSON");
        assert_eq!(kept, text);
        assert!(serde_json::from_str::<RawJson>("{").is_err());
    }
}
