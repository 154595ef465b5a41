//! Numbers as people read them.

use std::time::Duration;

/// `12345` as `12,345`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Milliseconds: three figures where they matter, `0.42 ms`, `51 ms`, `8,012 ms`.
pub fn millis(ms: f64) -> String {
    if ms < 1.0 {
        format!("{ms:.2} ms")
    } else if ms < 10.0 {
        format!("{ms:.1} ms")
    } else {
        format!("{} ms", count(ms.round() as u64))
    }
}

/// A duration in milliseconds.
pub fn latency(duration: Duration) -> String {
    millis(duration.as_secs_f64() * 1000.0)
}

/// A share given in percent: `71 %`.
pub fn percent(share: f64) -> String {
    format!("{share:.0} %")
}

/// How long something lasts, as exactly as anyone wants to know: `2.5 s`, `3 m 12 s`, `2 d 4 h`.
pub fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{} ms", duration.as_millis()),
        1..10 if duration.subsec_millis() >= 50 => format!("{:.1} s", duration.as_secs_f64()),
        1..60 => format!("{seconds} s"),
        60..3600 => format!("{} m {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// `1 call`, `2 calls`.
pub fn plural(n: u64, one: &str) -> String {
    let ending = if n == 1 { "" } else { "s" };
    format!("{} {one}{ending}", count(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped_by_thousands() {
        let shown = [0, 999, 1000, 65_536, 1_234_567].map(count);
        assert_eq!(shown, ["0", "999", "1,000", "65,536", "1,234,567"]);
    }

    #[test]
    fn milliseconds_keep_the_figures_that_matter() {
        let shown = [0.416, 3.25, 50.6, 8012.0].map(millis);
        assert_eq!(shown, ["0.42 ms", "3.2 ms", "51 ms", "8,012 ms"]);
    }

    #[test]
    fn spans_are_as_exact_as_anyone_wants_to_know() {
        let shown = [0.4, 2.5, 59.0, 192.0, 7260.0, 187_200.0].map(|s| span(Duration::from_secs_f64(s)));
        assert_eq!(shown, ["400 ms", "2.5 s", "59 s", "3 m 12 s", "2 h 1 m", "2 d 4 h"]);
    }

    #[test]
    fn one_is_singular() {
        assert_eq!(plural(1, "call"), "1 call");
        assert_eq!(plural(0, "call"), "0 calls");
    }
}
