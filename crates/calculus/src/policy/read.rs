//! Reads a policy from JSON: bounded, each key once, each refusal with its place.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::{ASSETS_MAX, GROUPS_MAX, POLICY_BYTES_MAX, Policy, PolicyError, WEIGHTS_MAX, Weight};
use crate::units::Units;

impl Policy {
    /// Reads and checks a policy.
    pub fn parse(bytes: &[u8]) -> Result<Policy, PolicyError> {
        let refuse = |place: String, reason: String| PolicyError { place, reason };
        if bytes.len() > POLICY_BYTES_MAX {
            let reason = format!("{} bytes; the limit is {POLICY_BYTES_MAX}", bytes.len());
            return Err(refuse(".".to_owned(), reason));
        }
        // serde_json itself refuses documents nested deeper than 128.
        let mut json = serde_json::Deserializer::from_slice(bytes);
        let policy: Policy = serde_path_to_error::deserialize(&mut json)
            .map_err(|error| refuse(error.path().to_string(), error.inner().to_string()))?;
        json.end().map_err(|error| refuse(".".to_owned(), error.to_string()))?;
        if let Some(place) = list_in_place_of_object(bytes) {
            return Err(refuse(place, "a list, where an object has to be".to_owned()));
        }
        policy.check()?;
        Ok(policy)
    }
}

/// Where a list stands for an object: derived readers take its items for the fields in their order, which nobody who
/// reads the text would see.
fn list_in_place_of_object(bytes: &[u8]) -> Option<String> {
    let document: Value = serde_json::from_slice(bytes).ok()?;
    let assets = document.get("assets").and_then(Value::as_array).into_iter().flatten().enumerate();
    let mut places = vec![(".".to_owned(), &document)];
    places.extend(assets.map(|(index, asset)| (format!("assets[{index}]"), asset)));
    places.extend(document.get("release").map(|release| ("release".to_owned(), release)));
    places.into_iter().find(|(_, value)| value.is_array()).map(|(place, _)| place)
}

/// A map whose keys are all different. JSON allows to repeat a key and readers disagree on which one counts: two people
/// could read two policies from one signed text.
struct Once<V> {
    keys_max: usize,
    values: PhantomData<V>,
}

impl<'de, V: Deserialize<'de>> Visitor<'de> for Once<V> {
    type Value = BTreeMap<String, V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object of at most {} keys", self.keys_max)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut map = BTreeMap::new();
        while let Some(key) = access.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(de::Error::custom(format_args!("the key `{}` stands there twice", key.escape_debug())));
            }
            if map.len() == self.keys_max {
                return Err(de::Error::custom(format_args!("more than {} keys", self.keys_max)));
            }
            let value = access.next_value()?;
            map.insert(key, value);
        }
        Ok(map)
    }
}

fn once<'de, D: Deserializer<'de>, V: Deserialize<'de>>(
    deserializer: D,
    keys_max: usize,
) -> Result<BTreeMap<String, V>, D::Error> {
    deserializer.deserialize_map(Once { keys_max, values: PhantomData })
}

/// Pools by group.
pub fn groups<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Units>, D::Error> {
    once(deserializer, GROUPS_MAX)
}

/// Weights by metric.
pub fn weights<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Weight>, D::Error> {
    once(deserializer, WEIGHTS_MAX)
}

/// Limits by asset.
pub fn totals<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Units>, D::Error> {
    once(deserializer, ASSETS_MAX)
}
