//! The time that every machine is told.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// A moment, in nanoseconds since an origin that the shell chose (process start, or zero in a simulation).
///
/// Arithmetic saturates: clocks may step back a little between threads, and a machine must survive that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// Later than every clock: "never".
    pub const MAX: Self = Self(u64::MAX);

    /// A moment `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This moment plus `duration`; [`Timestamp::MAX`] when that cannot be told.
    pub const fn saturating_add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        self.saturating_add(duration)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::MAX => f.write_str("never"),
            Self(nanos) => write!(f, "@{:?}", Duration::from_nanos(nanos)),
        }
    }
}

/// A duration in whole nanoseconds, saturating after 584 years.
pub(crate) const fn nanos(duration: Duration) -> u64 {
    let nanos = duration.as_nanos();
    if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let second = Timestamp::from_nanos(1_000_000_000);
        assert_eq!(Timestamp::ZERO.saturating_since(second), Duration::ZERO);
        assert_eq!(Timestamp::MAX + Duration::from_secs(1), Timestamp::MAX);
        assert_eq!(Timestamp::ZERO + Duration::MAX, Timestamp::MAX);
        assert_eq!(second.saturating_since(Timestamp::ZERO), Duration::from_secs(1));
    }
}
