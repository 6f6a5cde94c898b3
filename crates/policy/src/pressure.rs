//! Hysteresis over the fill of a queue: pressure is a lasting condition, never one slow moment.

use crate::Millis;

/// Thresholds at which pressure begins and ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PressureLimits {
    /// Pressure begins at this fill (0.0 to 1.0) or more.
    pub on_fill: f32,
    /// It ends at this fill or less; lower than `on_fill`.
    pub off_fill: f32,
    /// Either must last this long without a break.
    pub hold_ms: u64,
}

impl Default for PressureLimits {
    fn default() -> Self {
        PressureLimits { on_fill: 0.9, off_fill: 0.7, hold_ms: 5_000 }
    }
}

/// Pressure of one queue or resource.
#[derive(Clone, Debug, PartialEq)]
pub struct PressureMeter {
    limits: PressureLimits,
    on: bool,
    /// Since when the fill has been past the limit that would turn `on` around.
    past_limit_since: Option<Millis>,
}

impl PressureMeter {
    /// A meter without pressure.
    pub fn new(limits: PressureLimits) -> Self {
        PressureMeter::resumed(limits, false)
    }

    /// A meter that goes on from what another said last: pressure that was on must be able to end.
    pub fn resumed(limits: PressureLimits, on: bool) -> Self {
        PressureMeter { limits, on, past_limit_since: None }
    }

    /// Takes one sample; answers the new value when it changed. A fill that is not a number breaks the hold.
    pub fn sample(&mut self, now: Millis, fill: f32) -> Option<bool> {
        let past_limit = if self.on { fill <= self.limits.off_fill } else { fill >= self.limits.on_fill };
        if !past_limit {
            self.past_limit_since = None;
            return None;
        }
        let since = *self.past_limit_since.get_or_insert(now);
        if now.saturating_sub(since) < self.limits.hold_ms {
            return None;
        }
        self.on = !self.on;
        self.past_limit_since = None;
        Some(self.on)
    }

    /// Whether the pressure is on now.
    pub fn is_on(&self) -> bool {
        self.on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(samples: &[(Millis, f32, Option<bool>)]) {
        let mut meter = PressureMeter::new(PressureLimits::default());
        for (now, fill, expected) in samples {
            assert_eq!(meter.sample(*now, *fill), *expected, "at {now} with {fill} of {samples:?}");
            if let Some(on) = expected {
                assert_eq!(meter.is_on(), *on);
            }
        }
    }

    #[test]
    fn begins_after_an_unbroken_hold() {
        check(&[(0, 0.9, None), (4_999, 1.0, None), (5_000, 0.95, Some(true)), (5_001, 1.0, None)]);
    }

    #[test]
    fn one_dip_starts_the_hold_again() {
        check(&[
            (0, 1.0, None),
            (3_000, 0.89, None),
            (5_000, 1.0, None),
            (9_999, 1.0, None),
            (10_000, 1.0, Some(true)),
        ]);
    }

    #[test]
    fn ends_only_below_the_lower_limit() {
        let on = [(0, 1.0, None), (5_000, 1.0, Some(true))];
        let mut between = on.to_vec();
        between.extend([(6_000, 0.8, None), (60_000, 0.71, None)]);
        check(&between);
        let mut below = on.to_vec();
        below.extend([(6_000, 0.7, None), (8_000, 0.8, None), (9_000, 0.5, None), (14_000, 0.1, Some(false))]);
        check(&below);
    }

    #[test]
    fn no_number_is_no_pressure() {
        check(&[(0, 1.0, None), (4_000, f32::NAN, None), (5_000, 1.0, None), (9_000, 1.0, None)]);
    }

    #[test]
    fn one_that_resumes_ends_what_another_began() {
        let mut meter = PressureMeter::resumed(PressureLimits::default(), true);
        let seen: Vec<_> = [0, 5_000, 5_001].map(|now| meter.sample(now, 0.1)).into();
        assert_eq!(seen, [None, Some(false), None]);
    }

    #[test]
    fn without_a_hold_it_turns_at_once() {
        let mut meter = PressureMeter::new(PressureLimits { hold_ms: 0, ..PressureLimits::default() });
        assert_eq!(meter.sample(0, 0.95), Some(true));
        assert_eq!(meter.sample(0, 0.2), Some(false));
    }
}
