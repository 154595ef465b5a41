//! Sets of status codes, as bits.

/// A set of HTTP status codes from 100 to 599.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CodeSet([u64; 8]);

impl CodeSet {
    /// No code at all.
    pub const EMPTY: Self = Self([0; 8]);

    /// Every code from `first` to `last`, both included; what lies outside 100..=599 is left out.
    pub fn range(first: u16, last: u16) -> Self {
        let mut set = Self::EMPTY;
        for code in first.max(100)..=last.min(599) {
            set.insert(code);
        }
        set
    }

    /// The set of `codes`.
    pub fn of(codes: &[u16]) -> Self {
        let mut set = Self::EMPTY;
        for &code in codes {
            set.insert(code);
        }
        set
    }

    /// The built-in `failureCodes`: 5xx.
    pub fn server_errors() -> Self {
        Self::range(500, 599)
    }

    /// Adds `code`; false if it is outside 100..=599 and was not added.
    pub fn insert(&mut self, code: u16) -> bool {
        let Some((word, bit)) = Self::place(code) else {
            return false;
        };
        self.0[word] |= bit;
        true
    }

    /// Adds every code of `other`.
    pub fn union(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine |= theirs;
        }
    }

    /// True if `code` is in the set.
    pub const fn contains(&self, code: u16) -> bool {
        match Self::place(code) {
            Some((word, bit)) => self.0[word] & bit != 0,
            None => false,
        }
    }

    /// The codes, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        (100..=599).filter(|&code| self.contains(code))
    }

    const fn place(code: u16) -> Option<(usize, u64)> {
        if code < 100 || code > 599 {
            return None;
        }
        let index = (code - 100) as usize;
        Some((index / 64, 1 << (index % 64)))
    }
}

/// A set of gRPC status codes from 0 to 16.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GrpcCodeSet(u32);

impl GrpcCodeSet {
    /// No code at all.
    pub const EMPTY: Self = Self(0);

    /// The set of `codes`; numbers above 16 are left out.
    pub fn of(codes: &[u8]) -> Self {
        let mut set = Self::EMPTY;
        for &code in codes {
            set.insert(code);
        }
        set
    }

    /// The built-in `failureGrpcCodes`: UNKNOWN, DEADLINE_EXCEEDED, INTERNAL, UNAVAILABLE, DATA_LOSS.
    pub fn server_errors() -> Self {
        Self::of(&[2, 4, 13, 14, 15])
    }

    /// Adds `code`; false if it is above 16 and was not added.
    pub const fn insert(&mut self, code: u8) -> bool {
        if code > 16 {
            return false;
        }
        self.0 |= 1 << code;
        true
    }

    /// True if `code` is in the set.
    pub const fn contains(&self, code: u8) -> bool {
        code <= 16 && self.0 & (1 << code) != 0
    }

    /// The codes, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u8> + '_ {
        (0..=16).filter(|&code| self.contains(code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_codes_that_exist_are_in_a_set() {
        let set = CodeSet::server_errors();
        assert_eq!(set.iter().count(), 100);
        assert!(set.contains(500) && set.contains(599) && !set.contains(499) && !set.contains(600));
        let mut set = CodeSet::of(&[100, 429, 599]);
        assert!(!set.insert(99) && !set.insert(600));
        assert_eq!(set.iter().collect::<Vec<_>>(), [100, 429, 599]);
        set.union(&CodeSet::of(&[503]));
        assert!(set.contains(503) && !set.contains(u16::MAX));
        assert_eq!(CodeSet::range(0, u16::MAX).iter().count(), 500);

        let mut grpc = GrpcCodeSet::of(&[14, 17]);
        assert!(!grpc.insert(255) && !grpc.contains(255));
        assert_eq!(grpc.iter().collect::<Vec<_>>(), [14]);
    }
}
