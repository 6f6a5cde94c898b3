//! Chance from a seed (SplitMix64), so that a run can be repeated.

/// A stream of draws; nothing that must be kept secret may depend on it.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Chance(seed)
    }

    /// The next draw, uniform over all numbers.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform in `low..=high`; `low` where the bounds are turned round.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        let span = high.saturating_sub(low).saturating_add(1);
        low + self.draw() % span
    }
}
