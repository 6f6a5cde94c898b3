//! What a policy must fulfil beyond its grammar.

use std::collections::BTreeSet;

use super::{
    ASSETS_MAX, AssetPolicy, GROUPS_MAX, NAME_BYTES_MAX, Policy, PolicyError, RULESET, WEIGHTS_MAX, integer_weights,
};

/// Place and reason of a refusal.
type Refusal = (String, String);

impl Policy {
    /// Refuses what cannot be run, with the place and the reason.
    pub fn check(&self) -> Result<(), PolicyError> {
        self.refusal().map_or(Ok(()), |(place, reason)| Err(PolicyError { place, reason }))
    }

    fn refusal(&self) -> Option<Refusal> {
        if self.ruleset != RULESET {
            let reason = format!("ruleset {} is not known; this build knows {RULESET}", self.ruleset);
            return Some(("ruleset".to_owned(), reason));
        }
        name("id", &self.id).or_else(|| self.assets_refusal()).or_else(|| self.release_refusal())
    }

    fn assets_refusal(&self) -> Option<Refusal> {
        count("assets", self.assets.len(), 1, ASSETS_MAX).or_else(|| {
            let mut seen = BTreeSet::new();
            self.assets.iter().enumerate().find_map(|(index, asset)| {
                let place = format!("assets[{index}]");
                if !seen.insert(asset.asset.as_str()) {
                    return Some((format!("{place}.asset"), format!("`{}` stands there twice", asset.asset)));
                }
                asset_refusal(&place, asset)
            })
        })
    }

    /// A limit on an asset that is not paid is a typing error in the other name.
    fn release_refusal(&self) -> Option<Refusal> {
        let is_paid = |name: &String| self.assets.iter().any(|asset| asset.asset == *name);
        let limits = &self.release.as_ref()?.total_max;
        let unknown = limits.keys().find(|name| !is_paid(name))?;
        Some((format!("release.total_max.{unknown}"), "the policy has no such asset".to_owned()))
    }
}

fn asset_refusal(place: &str, asset: &AssetPolicy) -> Option<Refusal> {
    name(&format!("{place}.asset"), &asset.asset)
        .or_else(|| pools_refusal(place, asset))
        .or_else(|| weights_refusal(place, asset))
        .or_else(|| bounds_refusal(place, asset))
}

fn pools_refusal(place: &str, asset: &AssetPolicy) -> Option<Refusal> {
    let groups = format!("{place}.groups");
    if let Some(refusal) = count(&groups, asset.groups.len(), 0, GROUPS_MAX)
        .or_else(|| asset.groups.keys().find_map(|group| name(&format!("{groups}.{group}"), group)))
    {
        return Some(refusal);
    }
    if asset.groups.is_empty() {
        return None;
    }
    let Some(sum) = asset.total_pool() else {
        return Some((groups, "the pools of the groups add up to more than 128 bits".to_owned()));
    };
    let pool = asset.pool?.0;
    (pool != sum).then(|| (format!("{place}.pool"), format!("{pool} is not the sum of the groups, {sum}")))
}

fn weights_refusal(place: &str, asset: &AssetPolicy) -> Option<Refusal> {
    let weights = format!("{place}.weights");
    count(&weights, asset.weights.len(), 1, WEIGHTS_MAX)
        .or_else(|| asset.weights.keys().find_map(|metric| name(&format!("{weights}.{metric}"), metric)))
        .or_else(|| {
            let zero = asset.weights.iter().find(|(_, weight)| weight.denominator == 0)?.0;
            Some((format!("{weights}.{zero}"), "divides by zero".to_owned()))
        })
        .or_else(|| {
            let is_zero = asset.weights.values().all(|weight| weight.numerator == 0);
            is_zero.then(|| (weights.clone(), "all weights are zero, so nobody could be paid".to_owned()))
        })
        .or_else(|| {
            let reason = "brought to a common denominator, the weights do not fit into 128 bits";
            integer_weights(&asset.weights).is_none().then(|| (weights, reason.to_owned()))
        })
}

fn bounds_refusal(place: &str, asset: &AssetPolicy) -> Option<Refusal> {
    let cap = asset.cap?.0;
    if cap == 0 {
        return Some((format!("{place}.cap"), "a cap of 0 pays nobody".to_owned()));
    }
    let minimum = asset.minimum?.0;
    (minimum > cap).then(|| (format!("{place}.minimum"), format!("{minimum} is more than the cap, {cap}")))
}

fn count(place: &str, count: usize, least: usize, most: usize) -> Option<Refusal> {
    let is_good = (least..=most).contains(&count);
    (!is_good).then(|| (place.to_owned(), format!("{count} of them; there may be {least} to {most}")))
}

/// Names are shown to people: what cannot be seen could make two of them look alike.
fn name(place: &str, name: &str) -> Option<Refusal> {
    let reason = if name.is_empty() {
        "the name is empty".to_owned()
    } else if name.len() > NAME_BYTES_MAX {
        format!("a name of {} bytes; the limit is {NAME_BYTES_MAX}", name.len())
    } else {
        let control = name.chars().find(|c| c.is_control())?;
        format!("the name has the control character U+{:04X}", u32::from(control))
    };
    let shown: String = place.chars().take(NAME_BYTES_MAX).flat_map(char::escape_debug).collect();
    Some((shown, reason))
}
