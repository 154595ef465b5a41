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

macro_rules! grpc_codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal),* $(,)?) => {
        /// A gRPC status; <https://grpc.github.io/grpc/core/md_doc_statuscodes.html>.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum GrpcCode {
            $($(#[$doc])* $name = $number),*
        }

        impl GrpcCode {
            /// Every status, by number.
            pub const ALL: [Self; 17] = [$(Self::$name),*];

            /// The word of the YAML.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),* }
            }
        }
    };
}

grpc_codes! {
    /// Not a failure.
    Ok = 0,
    /// Given up by the caller.
    Cancelled = 1,
    /// An error that nobody named; also what a number that no status has stands for.
    Unknown = 2,
    /// The request makes no sense.
    InvalidArgument = 3,
    /// Too late.
    DeadlineExceeded = 4,
    /// It does not exist.
    NotFound = 5,
    /// It exists already.
    AlreadyExists = 6,
    /// The caller may not do this.
    PermissionDenied = 7,
    /// A quota or limit is spent.
    ResourceExhausted = 8,
    /// The state of the system does not allow it.
    FailedPrecondition = 9,
    /// A conflict; the whole transaction may be tried again.
    Aborted = 10,
    /// Past the end.
    OutOfRange = 11,
    /// Not there, or not switched on.
    Unimplemented = 12,
    /// Something is broken.
    Internal = 13,
    /// Not at the moment.
    Unavailable = 14,
    /// Lost for good.
    DataLoss = 15,
    /// Nobody said who the caller is.
    Unauthenticated = 16,
}

impl GrpcCode {
    /// The number on the wire.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The status that a `grpc-status` field names. What is no number of a status is [`GrpcCode::Unknown`], as gRPC's
    /// own libraries have it.
    pub fn of_field(value: &[u8]) -> Self {
        let digits = value.iter().all(u8::is_ascii_digit);
        let number = std::str::from_utf8(value).ok().filter(|_| digits).and_then(|text| text.parse::<usize>().ok());
        number.and_then(|number| Self::ALL.get(number).copied()).unwrap_or(Self::Unknown)
    }
}

/// A set of gRPC statuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GrpcCodes(u32);

impl GrpcCodes {
    /// No status at all.
    pub const EMPTY: Self = Self(0);

    /// The set of `codes`.
    pub const fn of(codes: &[GrpcCode]) -> Self {
        let mut set = Self::EMPTY;
        let mut rest = codes;
        while let [code, others @ ..] = rest {
            set.insert(*code);
            rest = others;
        }
        set
    }

    /// The built-in `failureGrpcCodes`: those that speak of the dependency and not of the request.
    pub const fn server_errors() -> Self {
        use GrpcCode::{DataLoss, DeadlineExceeded, Internal, Unavailable, Unknown};
        Self::of(&[Unknown, DeadlineExceeded, Internal, Unavailable, DataLoss])
    }

    /// Adds `code`.
    pub const fn insert(&mut self, code: GrpcCode) {
        self.0 |= 1 << code.number();
    }

    /// True if `code` is in the set.
    pub const fn contains(self, code: GrpcCode) -> bool {
        self.0 & (1 << code.number()) != 0
    }

    /// The statuses, by number.
    pub fn iter(self) -> impl Iterator<Item = GrpcCode> {
        GrpcCode::ALL.into_iter().filter(move |&code| self.contains(code))
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
    }

    #[test]
    fn a_grpc_status_has_a_number_and_a_name() {
        for (number, code) in (0..).zip(GrpcCode::ALL) {
            assert_eq!(code.number(), number);
            assert_eq!(GrpcCode::of_field(number.to_string().as_bytes()), code);
        }
        assert_eq!(GrpcCode::Unavailable.as_str(), "Unavailable");
        for odd in ["17", "-1", "+14", "", "1e1", " 14", "99999999999999999999999", "\u{661}"] {
            assert_eq!(GrpcCode::of_field(odd.as_bytes()), GrpcCode::Unknown, "{odd:?}");
        }
        assert_eq!(GrpcCode::of_field(b"\xff"), GrpcCode::Unknown);
    }

    #[test]
    fn a_set_of_grpc_statuses_holds_what_was_put_into_it() {
        for code in GrpcCode::ALL {
            let set = GrpcCodes::of(&[code]);
            assert!(GrpcCode::ALL.into_iter().all(|other| set.contains(other) == (other == code)));
        }
        let numbers = GrpcCodes::server_errors().iter().map(GrpcCode::number);
        assert_eq!(numbers.collect::<Vec<_>>(), [2, 4, 13, 14, 15]);
        assert_eq!(GrpcCodes::EMPTY.iter().count(), 0);
    }
}
