use super::*;

fn findings(yaml: &str) -> Findings {
    Findings::of(&[Source::new("payments.yaml", yaml)])
}

const GOOD: &str = "\
apiVersion: plimsoll.dev/v1alpha1
kind: DependencyPolicy
metadata: {name: fraud-api, namespace: shop}
spec:
  target: {hosts: [fraud.internal]}
  bulkhead: {maxConcurrentCalls: 30}
";

#[test]
fn a_good_policy_is_counted() {
    let found = findings(GOOD);
    assert_eq!(found.render(Paint::PLAIN), "ok: 1 policy\n");
}

#[test]
fn an_error_is_shown_in_its_line() {
    let found = findings(&GOOD.replace("bulkhead", "bulkhed"));
    assert_eq!(found.policies, None);
    insta::assert_snapshot!(found.render(Paint::PLAIN));
}

#[test]
fn a_warning_does_not_refuse() {
    let found = findings(&format!("{GOOD}  circuitBreaker: {{}}\n"));
    assert_eq!(found.list.len(), 1);
    assert_eq!(found.policies, Some(1));
    insta::assert_snapshot!(found.render(Paint::PLAIN));
}

#[test]
fn what_is_not_shown_is_counted_as_what_it_is() {
    // A source without policy is a warning; there are more of them than are shown, and still the errors are.
    let mut sources = vec![Source::new("empty.yaml", "# nothing\n"); 120];
    let found = Findings::of(&sources);
    let text = found.render(Paint::PLAIN);
    assert!(text.ends_with("... and 20 more\n\nok: 0 policies, 120 warnings\n"), "{text}");
    sources.push(Source::new("bad.yaml", GOOD.replace("bulkhead", "bulkhed")));
    let text = Findings::of(&sources).render(Paint::PLAIN);
    assert!(text.contains("unknown field `bulkhed`"), "{text}");
    assert!(text.ends_with("\nrefused: 1 error, 120 warnings\n"), "{text}");
    let many: String = (0..120).map(|n| format!("  x{n}: 1\n")).collect();
    let text = findings(&format!("{GOOD}{many}")).render(Paint::PLAIN);
    assert!(text.ends_with("... and 20 more\n\nrefused: 120 errors\n"), "{text}");
}

#[test]
fn the_schema_and_the_defaults_cover_every_kind() {
    assert_eq!(schema()["oneOf"].as_array().unwrap().len(), Kind::ALL.len());
    for kind in Kind::ALL {
        let rows = defaults()[kind.as_str()].clone();
        assert!(rows.as_array().unwrap().iter().any(|row| row["field"] == "spec.mode"), "{rows}");
    }
}
