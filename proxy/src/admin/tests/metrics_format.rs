//! A strict reader of OpenMetrics text: what `promtool` and the Python parser would also refuse.

use std::collections::{BTreeMap, BTreeSet};

/// One family as announced.
struct Family<'a> {
    name: &'a str,
    kind: &'a str,
}

/// Panics with the line that breaks the format.
pub(super) fn check(page: &str) {
    assert!(page.ends_with("\n# EOF\n"), "the page must end with # EOF");
    let (mut families, mut samples) = (BTreeSet::new(), BTreeSet::new());
    let mut histograms = BTreeMap::<String, (f64, f64)>::new();
    let mut current: Option<Family<'_>> = None;
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "# EOF" {
            assert!(lines.next().is_none(), "something follows # EOF");
            return;
        }
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').expect("a help text");
            assert!(families.insert(name), "{name} comes twice");
            assert!(!text.trim().is_empty(), "{line}");
            let kind =
                lines.next().and_then(|line| line.strip_prefix("# TYPE ")?.strip_prefix(name)).expect("a type").trim();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{kind}");
            if let Some(unit) = lines.next_if(|line| line.starts_with("# UNIT ")) {
                assert!(name.ends_with(unit.rsplit(' ').next().unwrap()), "{unit}");
            }
            current = Some(Family { name, kind });
            continue;
        }
        let family = current.as_ref().unwrap_or_else(|| panic!("a sample before any family: {line}"));
        let (id, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value: {line}"));
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
        assert!(samples.insert(id.to_owned()), "{id} comes twice");
        let (name, labels) = labels_of(id);
        let suffix = name.strip_prefix(family.name).unwrap_or_else(|| panic!("{line} is not of {}", family.name));
        match (family.kind, suffix) {
            ("counter", "_total") => assert!(value >= 0.0, "{line}"),
            ("gauge", "") | ("histogram", "_sum" | "_count") => {}
            ("histogram", "_bucket") => check_bucket(&mut histograms, family.name, &labels, value),
            _ => panic!("{line} in a {}", family.kind),
        }
        if family.kind == "counter" || family.kind == "histogram" {
            assert!(value.is_finite(), "{line}");
        }
    }
    panic!("no # EOF");
}

/// Buckets come in order, never shrink, and end with +Inf.
fn check_bucket(seen: &mut BTreeMap<String, (f64, f64)>, family: &str, labels: &[(String, String)], value: f64) {
    let bound = &labels.iter().find(|(key, _)| key == "le").expect("a bucket has a bound").1;
    let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() };
    let others: Vec<_> = labels.iter().filter(|(key, _)| key != "le").collect();
    let last = seen.entry(format!("{family}{others:?}")).or_insert((f64::NEG_INFINITY, 0.0));
    assert!(bound > last.0 && value >= last.1, "{family} {others:?}: {bound} {value} after {last:?}");
    *last = (bound, value);
}

fn labels_of(id: &str) -> (&str, Vec<(String, String)>) {
    let Some((name, rest)) = id.split_once('{') else {
        return (id, Vec::new());
    };
    let mut rest = rest.strip_suffix('}').unwrap_or_else(|| panic!("{id}"));
    let mut labels = Vec::new();
    while !rest.is_empty() {
        let (key, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("{id}"));
        assert!(key.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{id}");
        // No label of ours holds a quote or a backslash.
        let (value, after) = after.split_once('"').unwrap_or_else(|| panic!("{id}"));
        labels.push((key.to_owned(), value.to_owned()));
        rest = after.strip_prefix(',').unwrap_or(after);
    }
    let keys: BTreeSet<_> = labels.iter().map(|(key, _)| key).collect();
    assert_eq!(keys.len(), labels.len(), "a label comes twice: {id}");
    (name, labels)
}
