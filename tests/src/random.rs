//! Numbers for tests that try many things: the same seed, the same test.

/// SplitMix64.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    /// A stream of numbers that `seed` decides.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is above 0.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.number() % end as u64).expect("below a usize")
    }

    /// True once in `of` times.
    pub fn one_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    /// One of them.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// A length: mostly short, sometimes at the edges of buffers, seldom long.
    pub fn length(&mut self) -> usize {
        match self.below(10) {
            0 => 0,
            1..=5 => self.below(200),
            6 | 7 => self.pick(&[4_095, 4_096, 8_192, 16_383, 16_384, 16_385, 32_768, 65_536, 65_537]),
            8 => self.below(40_000),
            _ => self.below(600_000),
        }
    }

    /// Text of that length.
    pub fn text(&mut self, length: usize) -> Vec<u8> {
        let mut text = Vec::with_capacity(length + 8);
        while text.len() < length {
            text.extend(self.number().to_le_bytes().map(|byte| b'a' + byte % 26));
        }
        text.truncate(length);
        text
    }
}

/// `body` in chunks of random sizes, with extensions now and then.
pub fn chunked(body: &[u8], random: &mut Random) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 64);
    let mut rest = body;
    while !rest.is_empty() {
        let most = rest.len().min(random.pick(&[1, 7, 100, 5_000, 100_000]));
        let (chunk, after) = rest.split_at(1 + random.below(most));
        let extension = if random.one_in(8) { ";note=\"a;b\"" } else { "" };
        out.extend_from_slice(format!("{:x}{extension}\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
        rest = after;
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides() {
        let numbers = |seed| {
            let mut random = Random::new(seed);
            [random.number(), random.number()]
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
        assert_eq!(chunked(b"abc", &mut Random::new(1)).last_chunk(), Some(b"0\r\n\r\n"));
    }
}
