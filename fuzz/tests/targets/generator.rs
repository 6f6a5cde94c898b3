//! Inputs from seeds: a share of noise, else a seed that was changed, always the same ones for a target.

/// One in so many inputs is noise.
const NOISE_SHARE: usize = 8;
/// Longest noise, in bits of its length.
const NOISE_LENGTH_BITS: usize = 10;
/// Most changes of one seed, in bits of their number.
const CHANGES_BITS: usize = 4;

/// Numbers at which code changes its mind; shorter fields get their lowest bytes.
const NUMBERS: [u64; 12] =
    [0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, i32::MAX as u64, u32::MAX as u64, i64::MAX as u64, u64::MAX - 1, u64::MAX];
const WIDTHS: [usize; 4] = [1, 2, 4, 8];

/// Makes one input after the other, without a clock or chance of the machine.
pub struct Generator {
    state: u64,
    seeds: Vec<Vec<u8>>,
    bytes_max: usize,
}

impl Generator {
    /// Inputs for the target of this name, each with at most so many bytes.
    pub fn new(name: &str, seeds: Vec<Vec<u8>>, bytes_max: usize) -> Generator {
        assert!(!seeds.is_empty(), "there is a seed to change");
        // FNV-1a: targets must not share one course of chance, or they would all miss the same.
        let state = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |state, byte| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Generator { state, seeds, bytes_max }
    }

    /// The next input.
    pub fn input(&mut self) -> Vec<u8> {
        let mut input = if self.below(NOISE_SHARE) == 0 { self.noise() } else { self.changed_seed() };
        input.truncate(self.bytes_max);
        input
    }

    fn noise(&mut self) -> Vec<u8> {
        // The exponent is drawn first: half of the lengths would be over 512 otherwise.
        let bits = self.below(NOISE_LENGTH_BITS + 1);
        let length = self.below((1 << bits) + 1);
        (0..length).map(|_| self.byte()).collect()
    }

    fn changed_seed(&mut self) -> Vec<u8> {
        let mut input = self.seed();
        let bits = self.below(CHANGES_BITS + 1);
        for _ in 0..=self.below(1 << bits) {
            self.change(&mut input);
        }
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        let Some(byte) = input.get_mut(at) else {
            let more = self.noise();
            return input.extend(more.into_iter().take(16));
        };
        match self.below(9) {
            0 | 1 => *byte ^= 1 << self.below(8),
            2 => *byte = self.byte(),
            3 => self.put_number(input, at),
            4 => self.put_decimal(input, at),
            5 => input.truncate(at),
            6 => self.splice(input, at),
            7 => self.repeat(input, at),
            _ => {
                let end = at + 1 + self.below((input.len() - at).min(32));
                input.drain(at..end.min(input.len()));
            }
        }
    }

    /// A number in place of what stands there, big-endian or little-endian.
    fn put_number(&mut self, input: &mut [u8], at: usize) {
        let (number, width) = (NUMBERS[self.below(NUMBERS.len())], WIDTHS[self.below(WIDTHS.len())]);
        let bytes = number.to_le_bytes();
        let mut field = bytes[..width].to_vec();
        if self.below(2) == 0 {
            field.reverse();
        }
        input[at..].iter_mut().zip(field).for_each(|(byte, new)| *byte = new);
    }

    /// A number in place of the next one that stands there in decimal digits.
    fn put_decimal(&mut self, input: &mut Vec<u8>, at: usize) {
        let number = NUMBERS[self.below(NUMBERS.len())].to_string();
        let Some(digits) = input[at..].iter().position(u8::is_ascii_digit) else { return };
        let begin = at + digits;
        let length = input[begin..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        input.splice(begin..begin + length, number.into_bytes());
    }

    /// A piece of a seed in place of the rest, or between what stands before and behind.
    fn splice(&mut self, input: &mut Vec<u8>, at: usize) {
        let other = self.seed();
        let from = self.below(other.len() + 1);
        let end = from + self.below(other.len() - from + 1);
        let keeps_rest = self.below(2) == 0;
        let replaced = if keeps_rest { at..at } else { at..input.len() };
        input.splice(replaced, other[from..end].iter().copied());
    }

    /// What stands there once more, up to eight times.
    fn repeat(&mut self, input: &mut Vec<u8>, at: usize) {
        let end = at + 1 + self.below(input.len() - at);
        let times = 1 + self.below(8);
        let piece = input[at..end].repeat(times);
        input.splice(end..end, piece);
        // A piece that is repeated again and again would only grow.
        input.truncate(self.bytes_max);
    }

    fn seed(&mut self) -> Vec<u8> {
        let number = self.below(self.seeds.len());
        self.seeds[number].clone()
    }

    fn byte(&mut self) -> u8 {
        self.next() as u8
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[test]
fn inputs_are_the_same_each_time_and_differ_between_targets() {
    let inputs = |name: &str| {
        let mut generator = Generator::new(name, vec![b"{\"seed\":17}".to_vec(), vec![0; 40]], 256);
        (0..500).map(|_| generator.input()).collect::<Vec<_>>()
    };
    assert_eq!(inputs("a"), inputs("a"));
    assert_ne!(inputs("a"), inputs("b"));
}

#[test]
fn inputs_keep_their_bound_and_are_seldom_the_same() {
    let mut generator = Generator::new("a", vec![b"{\"seed\":17}".to_vec(), vec![1; 300]], 256);
    let inputs: std::collections::BTreeSet<_> = (0..2000).map(|_| generator.input()).collect();
    assert!(inputs.iter().all(|input| input.len() <= 256));
    assert!(inputs.len() > 1500, "{} different inputs", inputs.len());
    let decimals = inputs.iter().filter(|input| input.starts_with(b"{\"seed\":18446744073709551615}")).count();
    assert!(decimals > 0, "numbers in texts are replaced, too");
}
