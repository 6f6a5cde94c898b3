//! Made-up epochs from a seed, with everything that a policy can say.

use std::collections::BTreeMap;

use ron_calculus::Units;

use crate::case::{Case, Row};

/// A small generator whose numbers depend on the seed alone.
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below the bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Whether one of so many times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A number of up to so many bits, as often short as long.
    pub fn bits(&mut self, most: u64) -> u128 {
        let width = self.below(most + 1);
        let number = u128::from(self.next()) << 64 | u128::from(self.next());
        number.checked_shr(128 - width as u32).unwrap_or(0)
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len() as u64) as usize]
    }
}

const METRICS: [&str; 3] = ["bytes", "requests", "unweighed"];
const GROUPS: [&str; 3] = ["east", "north", "west"];

/// An epoch for this seed.
pub fn epoch(seed: u64) -> Case {
    let random = &mut Random(seed);
    let is_grouped = random.one_in(3);
    let count = 1 + random.below(3);
    let assets: Vec<String> = (0..count).map(|index| asset(random, index, is_grouped)).collect();
    let mut case = Case::new(&assets.join(","), Vec::new());
    let quantity_bits = *[4, 20, 60, 100].get(random.below(4) as usize).expect("four");
    let actors = 1 + random.below(24);
    let rows = (0..1 + random.below(3 * actors)).map(|_| a_row(random, actors, count, is_grouped, quantity_bits));
    case.rows = rows.collect();
    if random.one_in(3) {
        case.carry = BTreeMap::from([("A0".to_owned(), Units(random.bits(40)))]);
    }
    case
}

fn a_row(random: &mut Random, actors: u64, assets: u64, is_grouped: bool, bits: u64) -> Row {
    let actor = format!("actor-{}", random.below(actors));
    let group = is_grouped.then(|| random.pick(&GROUPS).to_owned());
    let asset = random.one_in(4).then(|| format!("A{}", random.below(assets)));
    // Equal quantities make the ties that are worth testing.
    let quantity = if random.one_in(3) { 5 } else { random.bits(bits) };
    (actor, random.pick(&METRICS).to_owned(), group, asset, Units(quantity))
}

fn asset(random: &mut Random, index: u64, is_grouped: bool) -> String {
    let pool_bits = *[6, 12, 64, 120].get(random.below(4) as usize).expect("four");
    let mut fields = vec![format!(r#""asset":"A{index}""#)];
    if is_grouped {
        let groups = GROUPS.map(|group| format!(r#""{group}":"{}""#, random.bits(pool_bits)));
        fields.push(format!(r#""groups":{{{}}}"#, groups.join(",")));
    } else {
        fields.push(format!(r#""pool":"{}""#, random.bits(pool_bits)));
    }
    let weights = [1 + random.below(9), 1 + random.below(9), random.below(9), 1 + random.below(9)];
    let [a, b, c, d] = weights;
    fields.push(format!(r#""weights":{{"bytes":"{a}/{b}","requests":"{c}/{d}"}}"#));
    let cap = random.one_in(3).then(|| 1 + random.bits(pool_bits));
    fields.extend(cap.map(|cap| format!(r#""cap":"{cap}""#)));
    if random.one_in(3) {
        let minimum = random.bits(pool_bits.saturating_sub(2));
        fields.push(format!(r#""minimum":"{}""#, cap.map_or(minimum, |cap| minimum.min(cap))));
    }
    fields.push(format!(r#""rounding":"{}""#, random.pick(&["largest_remainder", "floor_carry", "webster"])));
    fields.push(format!(r#""ties":"{}""#, random.pick(&["hash", "id"])));
    format!("{{{}}}", fields.join(","))
}
