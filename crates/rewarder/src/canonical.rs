//! Canonical JSON (RFC 8785), for everything that is hashed.

use serde::Serialize;
use serde_json::{Number, Value};

/// Largest whole number that every JSON reader keeps exact: 2^53 - 1.
const NUMBER_MAX: u64 = (1 << 53) - 1;

/// Why a value has no canonical form.
#[derive(Debug, thiserror::Error)]
pub enum CanonicalError {
    /// A number that some readers would round.
    #[error("the number {0} is not a whole number within 2^53; write it as a decimal string")]
    Number(Number),
    /// A value that is not JSON.
    #[error("{0}")]
    NotJson(#[from] serde_json::Error),
}

/// The canonical bytes of a value.
///
/// RFC 8785 writes numbers as doubles: a 64-bit counter past 2^53 would be rounded without a word. Such numbers are
/// refused here, so that they cannot get into anything that is hashed.
pub fn to_canonical(value: &impl Serialize) -> Result<Vec<u8>, CanonicalError> {
    let value = serde_json::to_value(value)?;
    check(&value)?;
    Ok(serde_json_canonicalizer::to_vec(&value)?)
}

fn check(value: &Value) -> Result<(), CanonicalError> {
    match value {
        Value::Number(number) if !is_exact(number) => Err(CanonicalError::Number(number.clone())),
        Value::Array(items) => items.iter().try_for_each(check),
        Value::Object(members) => members.values().try_for_each(check),
        _ => Ok(()),
    }
}

fn is_exact(number: &Number) -> bool {
    let magnitude = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
    magnitude.is_some_and(|magnitude| magnitude <= NUMBER_MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_are_sorted_by_utf16_units_and_nothing_is_between_them() {
        let value = json!({"b": [1, -2, true, null], "\u{ffff}": 1, "\u{10000}": "é\n", "a": {}});
        let text = String::from_utf8(to_canonical(&value).expect("canonical")).expect("text");
        assert_eq!(text, "{\"a\":{},\"b\":[1,-2,true,null],\"\u{10000}\":\"é\\n\",\"\u{ffff}\":1}");
    }

    #[test]
    fn numbers_that_readers_would_round_are_refused() {
        for fine in [json!(9_007_199_254_740_991_u64), json!(-9_007_199_254_740_991_i64), json!({"a": [0]})] {
            assert!(to_canonical(&fine).is_ok(), "{fine}");
        }
        for wrong in [json!(9_007_199_254_740_992_u64), json!(i64::MIN), json!([{"a": 0.5}]), json!(1e300)] {
            let told = to_canonical(&wrong).expect_err("refused").to_string();
            assert!(told.contains("decimal string"), "{told}");
        }
    }
}
