//! Our own survivable faults: debug builds stop, release builds say so once for each place and count.

use std::sync::atomic::{AtomicU64, Ordering};

static COUNT: AtomicU64 = AtomicU64::new(0);

/// A thing that cannot happen has happened at this place, and going on is safe.
///
/// Panics in debug builds. In release builds it is counted in `plimsoll_bugs_total` and logged the first time.
#[macro_export]
macro_rules! bug {
    ($($message:tt)+) => {{
        static SAID: ::std::sync::Once = ::std::sync::Once::new();
        $crate::report::count_bug();
        ::std::debug_assert!(false, $($message)+);
        SAID.call_once(|| ::tracing::error!(file = file!(), line = line!(), "bug: {}", format_args!($($message)+)));
    }};
}

/// For [`bug!`] and for panics that were caught.
pub fn count_bug() {
    COUNT.fetch_add(1, Ordering::Relaxed);
}

/// How many faults of our own there were.
pub(super) fn bugs() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_bug_stops_a_debug_build_and_is_counted() {
        let before = super::bugs();
        let stopped = std::panic::catch_unwind(|| bug!("the number {} is impossible", 7));
        assert_eq!(stopped.is_err(), cfg!(debug_assertions));
        assert!(super::bugs() > before);
    }
}
