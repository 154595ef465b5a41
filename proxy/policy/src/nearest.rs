//! The valid name nearest to a mistyped one.

/// Longer than any name of ours; the cost of a comparison is the product of both lengths.
const LONGEST: usize = 48;

/// The candidate that a typo most likely stands for, if one is near enough to be worth naming.
pub(crate) fn nearest<'a>(written: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = written.chars().count();
    if length > LONGEST {
        return None;
    }
    let lower = written.to_lowercase();
    let allowed = (length / 3).max(1);
    let scored = candidates.into_iter().map(|candidate| (distance(&lower, &candidate.to_lowercase()), candidate));
    scored.filter(|(distance, _)| *distance <= allowed).min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// Edits between two words, a swap of neighbours counting as one (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut older: Vec<usize> = Vec::new();
    let mut old: Vec<usize> = (0..=b.len()).collect();
    let mut previous = None;
    for (i, from) in a.chars().enumerate() {
        let mut row = vec![i + 1];
        for (j, to) in b.iter().enumerate() {
            let change = old[j] + usize::from(from != *to);
            let mut best = change.min(old[j + 1] + 1).min(row[j] + 1);
            if j > 0 && previous == Some(*to) && b[j - 1] == from {
                best = best.min(older[j - 1] + 1);
            }
            row.push(best);
        }
        older = std::mem::replace(&mut old, row);
        previous = Some(from);
    }
    old[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_edits_and_swaps() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("retry", "retry"), 0);
        assert_eq!(distance("rerty", "retry"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn names_what_is_near_and_nothing_else() {
        let names = ["bulkhead", "retry", "timeouts"];
        assert_eq!(nearest("bulkHead", names), Some("bulkhead"));
        assert_eq!(nearest("timeout", names), Some("timeouts"));
        assert_eq!(nearest("fallbacks", names), None);
        assert_eq!(nearest(&"x".repeat(100_000), names), None);
    }
}
