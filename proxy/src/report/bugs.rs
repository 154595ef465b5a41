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
        ::std::debug_assert!(false, $($message)+);
        $crate::report::count_bug();
        SAID.call_once(|| ::tracing::error!(file = file!(), line = line!(), "bug: {}", format_args!($($message)+)));
    }};
}

/// For [`bug!`] and for panics, whoever catches them.
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
    fn a_bug_stops_a_debug_build_and_is_counted_in_a_release() {
        let before = super::bugs();
        let stopped = std::panic::catch_unwind(|| bug!("the number {} is impossible", 7)).is_err();
        let counted = super::bugs() > before;
        assert_eq!((stopped, counted), (cfg!(debug_assertions), !cfg!(debug_assertions)));
    }
}
