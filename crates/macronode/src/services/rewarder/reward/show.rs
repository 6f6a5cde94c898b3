//! `reward explain`: every integer of one actor's amounts, as a reckoning to follow or as JSON.

use ron_calculus::explain::{AssetExplanation, CorrectedAmount, PoolExplanation, RoundingExplanation, WhyZero};
use ron_calculus::{Explanation, Units};

use super::args::ExplainArgs;
use super::folders::{cost, damaged, load, one_line};
use crate::commands::Report;
use crate::commands::table::{row, table};
use crate::errors::Failure;

/// Explains one actor.
pub fn explain(args: &ExplainArgs) -> Result<Report, Failure> {
    let loaded = load(&args.dir, &cost(&args.cost))?;
    let explanation = loaded.explain(&args.actor).map_err(|error| damaged(&args.dir, &error))?;
    let json = || serde_json::to_string(&explanation).unwrap_or_default() + "\n";
    Ok(Report::clean(if args.json { json() } else { reckoning(&explanation) }))
}

fn reckoning(explanation: &Explanation) -> String {
    let assets = explanation.assets.iter().map(|asset| of_asset(&explanation.actor, asset));
    let ties = format!("order among equals: {} (the smallest first)\n", explanation.tie_hash);
    assets.chain([ties]).collect::<Vec<_>>().join("\n")
}

fn of_asset(actor: &str, asset: &AssetExplanation) -> String {
    let why = asset.why_zero.map_or_else(String::new, |why| format!(": {}", reason(why)));
    let gets = asset.correction.as_ref().map_or(asset.amount, |corrected| corrected.pay);
    let headline = format!("{} gets {gets} {}{why}\n", one_line(actor), one_line(&asset.asset));
    let corrected = asset.correction.as_ref().map(|corrected| of_correction(asset.amount, corrected));
    let uncounted = asset.uncounted.iter().map(|uncounted| {
        let metric = one_line(&uncounted.metric);
        format!("  {metric} has no weight in this asset: {} count nothing\n", uncounted.quantity)
    });
    let pools = asset.pools.iter().map(of_pool);
    std::iter::once(headline).chain(corrected).chain(pools).chain(uncounted).collect()
}

/// How what a correction pays comes about.
fn of_correction(due: Units, corrected: &CorrectedAmount) -> String {
    let CorrectedAmount { paid_before, take_back, carried, .. } = corrected;
    let mut text = format!("  corrected: {due} are due, {paid_before} were paid before");
    if take_back.0 > 0 {
        text += &format!(", {take_back} are taken back");
    }
    if carried.0 > 0 {
        text += &format!(", {carried} too many stay for now");
    }
    text + "\n"
}

fn of_pool(pool: &PoolExplanation) -> String {
    let mut steps: Vec<(String, String)> = Vec::new();
    let mut step = |name: &str, text: String| steps.push((name.to_owned(), text));
    match &pool.group {
        Some(group) => step("pool", format!("{} for the group {}", pool.pool, one_line(group))),
        None => step("pool", pool.pool.to_string()),
    }
    if pool.carried.0 > 0 {
        step("", format!("of which {} were carried over from an earlier epoch", pool.carried));
    }
    for points in &pool.points {
        step(&one_line(&points.metric), format!("{} x {} = {}", points.quantity, points.weight, points.points));
    }
    step("score", format!("{} of {}, which {} actors have together", pool.score, pool.total_score, pool.actors));
    if let Some(minimum) = &pool.minimum {
        let kept = if minimum.is_kept { "this one is" } else { "this one is not" };
        let others = format!("{} actors with {} points are paid", minimum.kept_actors, minimum.kept_score);
        step("minimum", format!("{}: {others}, {kept} among them", minimum.minimum));
    }
    if let Some(cap) = &pool.cap {
        let capped = if cap.is_capped { "this one among them" } else { "not this one" };
        step("cap", format!("{}: {} actors get just that, {capped}", cap.cap, cap.capped_actors));
    }
    let is_capped = pool.cap.as_ref().is_some_and(|cap| cap.is_capped);
    if !is_capped && (pool.floor.0 > 0 || pool.remainder.0 > 0) {
        let (score, shared, total) = (pool.score, pool.shared_pool, pool.shared_score);
        let division = format!("{score} x {shared} / {total} = {}, remainder {}", pool.floor, pool.remainder);
        step("share", division);
    }
    step("rounding", rounding(&pool.rounding));
    let why = pool.why_zero.map_or_else(String::new, |why| format!(": {}", reason(why)));
    step("amount", format!("{}{why}", pool.amount));
    table(2, &steps.iter().map(|(name, text)| row([name.as_str(), text])).collect::<Vec<_>>())
}

fn rounding(rounding: &RoundingExplanation) -> String {
    let got = |plus_one: bool| if plus_one { "one of them is here" } else { "none of them is here" };
    let place = |rank: &Option<u64>| rank.map_or_else(String::new, |rank| format!(", place {rank} in line"));
    match rounding {
        RoundingExplanation::LargestRemainder { left_over, rank, plus_one } => {
            format!("{left_over} units left over go to the largest remainders{}: {}", place(rank), got(*plus_one))
        }
        RoundingExplanation::FloorCarry => "down; fractions are carried into the next epoch".to_owned(),
        RoundingExplanation::Webster { scale, left_over, rank, plus_one } => {
            let scale = scale.as_ref().map_or_else(String::new, |scale| format!(" at the scale {scale}"));
            format!("Webster{scale}; {left_over} units left over{}: {}", place(rank), got(*plus_one))
        }
    }
}

fn reason(why: WhyZero) -> &'static str {
    match why {
        WhyZero::NotInUsage => "no row of the usage names this actor",
        WhyZero::ZeroWeight => "nothing it did has a weight in this asset",
        WhyZero::ZeroQuantity => "all its quantities that have a weight are zero",
        WhyZero::EmptyPool => "there is nothing to divide",
        WhyZero::BelowMinimum => "its share is below the minimum",
        WhyZero::NoUnitsLeft => "its share is below one unit, and the units left over went to larger remainders",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(explanation: serde_json::Value) -> String {
        reckoning(&serde_json::from_value(explanation).expect("an explanation"))
    }

    #[test]
    fn a_reckoning_is_followed_from_top_to_bottom() {
        let pool = json!({
            "pool": "10", "carried": "1", "score": "6", "total_score": "18", "actors": 3,
            "points": [{"metric": "usage", "quantity": "3", "weight": "2", "points": "6"}],
            "shared_pool": "10", "shared_score": "18", "floor": "3", "remainder": "6", "amount": "4",
            "rounding": {"rule": "largest_remainder", "left_over": "1", "rank": 1, "plus_one": true},
        });
        let expected = "\
a\\u{7} gets 4 RON
  pool      10
            of which 1 were carried over from an earlier epoch
  usage     3 x 2 = 6
  score     6 of 18, which 3 actors have together
  share     6 x 10 / 18 = 3, remainder 6
  rounding  1 units left over go to the largest remainders, place 1 in line: one of them is here
  amount    4

order among equals: 00 (the smallest first)
";
        let asset = json!({"asset": "RON", "amount": "4", "pools": [pool]});
        assert_eq!(shown(json!({"actor": "a\u{7}", "tie_hash": "00", "assets": [asset]})), expected);
    }

    #[test]
    fn what_a_correction_takes_back_is_told() {
        let correction = json!({"paid_before": "9", "pay": "0", "take_back": "4", "carried": "2"});
        let asset = json!({"asset": "RON", "amount": "3", "correction": correction, "pools": []});
        let text = shown(json!({"actor": "eve", "tie_hash": "00", "assets": [asset]}));
        let expected = "eve gets 0 RON\n  corrected: 3 are due, 9 were paid before, 4 are taken back, 2 too many stay for \
                        now\n";
        assert!(text.starts_with(expected), "{text}");
    }

    #[test]
    fn who_gets_nothing_is_told_why() {
        let uncounted = [json!({"metric": "talk", "quantity": "7"})];
        let asset =
            json!({"asset": "RON", "amount": "0", "why_zero": "zero_weight", "pools": [], "uncounted": uncounted});
        let text = shown(json!({"actor": "eve", "tie_hash": "00", "assets": [asset]}));
        assert!(text.starts_with("eve gets 0 RON: nothing it did has a weight in this asset\n"), "{text}");
        assert!(text.contains("talk has no weight in this asset: 7 count nothing"), "{text}");
    }
}
