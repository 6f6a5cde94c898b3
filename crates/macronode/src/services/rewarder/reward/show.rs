//! `reward explain`: every integer of one actor's amounts, as text or JSON.

use serde_json::Value;

use super::args::ExplainArgs;
use super::folders::{cost, damaged, load, one_line};
use crate::commands::Report;
use crate::errors::Failure;

/// Explains one actor.
pub fn explain(args: &ExplainArgs) -> Result<Report, Failure> {
    let loaded = load(&args.dir, &cost(&args.cost))?;
    let explanation = loaded.explain(&args.actor).map_err(|error| damaged(&args.dir, &error))?;
    let explanation = serde_json::to_value(explanation).unwrap_or_default();
    let text = if args.json { format!("{explanation}\n") } else { lines(&explanation, 0) };
    Ok(Report::clean(text))
}

/// A value as indented lines of `name: value`; what is absent is left out. The names are those of the JSON, so that
/// text, JSON and the page of the arithmetic speak of the same things.
fn lines(value: &Value, indent: usize) -> String {
    let margin = "  ".repeat(indent);
    let mut text = String::new();
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let name = one_line(&name.replace('_', " "));
                match member {
                    Value::Null => {}
                    Value::Array(items) if items.is_empty() => {}
                    Value::Object(inner) if inner.is_empty() => {}
                    Value::Object(_) | Value::Array(_) => {
                        text += &format!("{margin}{name}\n{}", lines(member, indent + 1));
                    }
                    plain => text += &format!("{margin}{name}: {}\n", word(plain)),
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                match item {
                    Value::Object(_) | Value::Array(_) => text += &dashed(&lines(item, indent), indent),
                    plain => text += &format!("{margin}{}\n", word(plain)),
                }
            }
        }
        plain => text += &format!("{margin}{}\n", word(plain)),
    }
    text
}

/// The first line of an item is marked, so that items can be told apart.
fn dashed(text: &str, indent: usize) -> String {
    let margin = "  ".repeat(indent.saturating_sub(1));
    match text.strip_prefix(&"  ".repeat(indent)) {
        Some(rest) if indent > 0 => format!("{margin}- {rest}"),
        _ => text.to_owned(),
    }
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => one_line(text),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_explanation_is_read_from_top_to_bottom() {
        let value = json!({
            "actor": "a\u{7}", "none": null, "assets": [
                {"asset": "RON", "amount": "5", "why_zero": null, "pools": [{"score": "3"}, {"score": "4"}]},
            ],
        });
        let expected = "\
actor: a\\u{7}
assets
- amount: 5
  asset: RON
  pools
  - score: 3
  - score: 4
";
        assert_eq!(lines(&value, 0), expected);
    }
}
