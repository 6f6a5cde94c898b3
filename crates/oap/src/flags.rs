//! The flags of a frame.

use std::fmt;
use std::ops::BitOr;

/// A set of the flags that OAP/1 knows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(u16);

/// Names of the flags, lowest bit first.
const NAMES: [&str; 8] = ["REQ", "RESP", "EVENT", "START", "END", "ACK_REQ", "COMP", "APP_E2E"];

impl Flags {
    /// A request, or a part of one.
    pub const REQ: Flags = Flags(1);
    /// An answer to a request.
    pub const RESP: Flags = Flags(2);
    /// A push that nobody asked for with this frame's number.
    pub const EVENT: Flags = Flags(4);
    /// The first frame of a stream.
    pub const START: Flags = Flags(8);
    /// The last frame of a stream.
    pub const END: Flags = Flags(16);
    /// The sender wants an answer to this part of a stream.
    pub const ACK_REQ: Flags = Flags(32);
    /// The payload is compressed by zstd.
    pub const COMP: Flags = Flags(64);
    /// The payload is sealed between the two ends; nodes do not look into it.
    pub const APP_E2E: Flags = Flags(128);

    const ALL: u16 = (1 << NAMES.len()) - 1;

    /// The flags these bits stand for; `None` if one of them is unknown.
    pub const fn from_bits(bits: u16) -> Option<Flags> {
        if bits & !Flags::ALL == 0 { Some(Flags(bits)) } else { None }
    }

    /// The bits of the header.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// True if all of the others are set here.
    pub const fn contains(self, others: Flags) -> bool {
        self.0 & others.0 == others.0
    }

    /// The same with the others set too; `|` for constants.
    #[must_use]
    pub const fn with(self, others: Flags) -> Flags {
        Flags(self.0 | others.0)
    }

    /// The same with the others not set.
    #[must_use]
    pub const fn without(self, others: Flags) -> Flags {
        Flags(self.0 & !others.0)
    }

    /// True if exactly one of REQ, RESP and EVENT is set: a frame goes one way.
    pub(crate) const fn has_one_direction(self) -> bool {
        (self.0 & (Flags::REQ.0 | Flags::RESP.0 | Flags::EVENT.0)).is_power_of_two()
    }
}

impl BitOr for Flags {
    type Output = Flags;

    fn bitor(self, others: Flags) -> Flags {
        self.with(others)
    }
}

impl fmt::Display for Flags {
    /// `REQ|START`, as the document writes them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = NAMES.iter().enumerate().filter(|(bit, _)| self.0 & (1 << bit) != 0);
        for (place, (_, name)) in set.enumerate() {
            write!(f, "{}{name}", if place == 0 { "" } else { "|" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_bits_are_flags_and_others_are_none() {
        for bits in 0..=u16::MAX {
            assert_eq!(Flags::from_bits(bits).map(Flags::bits), (bits < 256).then_some(bits));
        }
        let flags = Flags::REQ | Flags::START;
        assert!(flags.contains(Flags::REQ) && flags.contains(flags) && !flags.contains(Flags::REQ | Flags::END));
        assert_eq!(flags.without(Flags::START), Flags::REQ);
        assert_eq!(flags.to_string(), "REQ|START");
        assert_eq!(Flags::default().to_string(), "");
    }

    #[test]
    fn a_frame_goes_one_way() {
        for bits in 0..256 {
            let ways = [Flags::REQ, Flags::RESP, Flags::EVENT].iter().filter(|way| bits & way.0 != 0).count();
            assert_eq!(Flags(bits).has_one_direction(), ways == 1, "{bits:#x}");
        }
    }
}
