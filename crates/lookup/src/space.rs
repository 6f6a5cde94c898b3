//! Positions in the key space and the distance between them: XOR, compared as a number.

use std::fmt;

/// A position in the key space: of a key, or of a peer.
pub type Position = [u8; 32];

/// Distance between two positions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Distance([u8; 32]);

impl Distance {
    /// Number of leading bits the two positions share, 256 for the same position.
    pub fn shared_bits(&self) -> u32 {
        let zeros = self.0.iter().take_while(|byte| **byte == 0).count();
        let rest = self.0.get(zeros).map_or(0, |byte| byte.leading_zeros());
        zeros as u32 * 8 + rest
    }
}

impl fmt::Debug for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Distance({} bits shared)", self.shared_bits())
    }
}

/// The distance between two positions.
pub fn distance(one: &Position, other: &Position) -> Distance {
    Distance(std::array::from_fn(|index| one[index] ^ other[index]))
}

/// Number of leading bits two positions share.
pub fn shared_bits(one: &Position, other: &Position) -> u32 {
    distance(one, other).shared_bits()
}

/// Bit `index` of a position, the most significant first.
pub(crate) fn bit(position: &Position, index: usize) -> bool {
    position[index / 8] & (0x80 >> (index % 8)) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_counted_from_the_most_significant() {
        let mut one = [0u8; 32];
        assert_eq!(shared_bits(&one, &[0; 32]), 256);
        one[0] = 0x80;
        assert_eq!(shared_bits(&one, &[0; 32]), 0);
        one = [0; 32];
        one[2] = 0x10;
        assert_eq!(shared_bits(&one, &[0; 32]), 19);
        assert!(bit(&one, 19) && !bit(&one, 18) && !bit(&one, 20));
    }

    #[test]
    fn distance_orders_as_a_number_does() {
        let near = distance(&[1; 32], &[0; 32]);
        let mut far = [1; 32];
        far[0] = 2;
        assert!(near < distance(&far, &[0; 32]));
        assert_eq!(distance(&[7; 32], &far), distance(&far, &[7; 32]));
    }
}
