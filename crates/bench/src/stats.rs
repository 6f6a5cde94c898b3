//! The statistics of rounds and samples.

/// The middle of several measurements and how far they reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Median of the values.
    pub median: f64,
    /// Least of the values.
    pub min: f64,
    /// Greatest of the values.
    pub max: f64,
}

impl Spread {
    /// Spread of the values; none without values.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let sorted = sorted(values);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        Some(Spread { median: median(&sorted), min, max })
    }
}

/// The spread of `ours / peer`, round by round, so that what disturbs both halves of a round cancels out.
pub fn ratios(ours: &[f64], peer: &[f64]) -> Option<Spread> {
    let pairs: Vec<f64> = ours.iter().zip(peer).filter(|(_, peer)| **peer > 0.0).map(|(a, b)| a / b).collect();
    Spread::of(&pairs)
}

/// Runs both sides `rounds` times each, alternating who goes first, after one round that is thrown away.
pub fn alternate<E>(
    rounds: usize,
    mut ours: impl FnMut() -> Result<f64, E>,
    mut peer: impl FnMut() -> Result<f64, E>,
) -> Result<(Vec<f64>, Vec<f64>), E> {
    let (mut of_ours, mut of_peer) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let (a, b) = if round % 2 == 0 {
            let a = ours()?;
            (a, peer()?)
        } else {
            let b = peer()?;
            (ours()?, b)
        };
        if round > 0 {
            of_ours.push(a);
            of_peer.push(b);
        }
    }
    Ok((of_ours, of_peer))
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { (sorted[middle - 1] + sorted[middle]) / 2.0 } else { sorted[middle] }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_the_two_middles() {
        for (values, expected) in [
            (&[3.0][..], (3.0, 3.0, 3.0)),
            (&[9.0, 1.0, 2.0], (2.0, 1.0, 9.0)),
            (&[4.0, 1.0, 2.0, 100.0], (3.0, 1.0, 100.0)),
        ] {
            let spread = Spread::of(values).expect("there are values");
            assert_eq!((spread.median, spread.min, spread.max), expected, "{values:?}");
        }
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let spread = ratios(&[50.0, 90.0, 300.0], &[100.0, 100.0, 200.0]).expect("three rounds");
        assert_eq!(spread, Spread { median: 0.9, min: 0.5, max: 1.5 });
        assert_eq!(ratios(&[1.0], &[0.0]), None, "a peer that did nothing is no measure");
    }

    #[test]
    fn sides_take_turns_in_going_first_and_the_first_round_is_thrown_away() {
        let order = RefCell::new(String::new());
        let side = |name| {
            let order = &order;
            move || {
                order.borrow_mut().push(name);
                Ok::<f64, Infallible>(order.borrow().len() as f64)
            }
        };
        let (ours, peer) = alternate(2, side('a'), side('b')).expect("infallible");
        assert_eq!(*order.borrow(), "abbaab");
        assert_eq!((ours, peer), (vec![4.0, 5.0], vec![3.0, 6.0]));
    }
}
