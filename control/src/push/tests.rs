use super::*;

fn bundle(files: &[(&str, &str)]) -> Bundle {
    let file = |(name, text): &(&str, &str)| Source::new(*name, *text);
    Bundle { files: files.iter().map(file).collect() }
}

fn diagnostic(file: &str, line: u64) -> Diagnostic {
    Diagnostic {
        line,
        column: 3,
        message: "unknown field `bulkhed`".into(),
        text: format!(
            "error: unknown field `bulkhed`\n --> {file}:{line}:3\n  |\n{line} |   bulkhed: {{}}\n  |   ^^^^^^^"
        ),
        ..Diagnostic::default()
    }
}

fn page(outcome: &PushAnswer, bundle: &Bundle) -> String {
    render(outcome, bundle, &"127.0.0.1:15000".parse().unwrap(), Paint::PLAIN)
}

#[test]
fn every_line_of_the_joined_files_finds_its_file_again() {
    let bundle = bundle(&[("a.yaml", "one\ntwo"), ("b.yaml", "three\n"), ("c.yaml", "four\n")]);
    let yaml = bundle.yaml();
    for (number, line) in (1..).zip(yaml.lines()) {
        let found = bundle.locate(number);
        let expected = match line {
            "one" => ("a.yaml", 1),
            "two" => ("a.yaml", 2),
            "three" => ("b.yaml", 1),
            "four" => ("c.yaml", 1),
            separator => {
                assert_eq!(separator, "---");
                continue;
            }
        };
        assert_eq!(found, Some(expected), "line {number}");
    }
    assert_eq!(bundle.locate(99), None);
}

#[test]
fn taken() {
    let outcome = PushAnswer {
        accepted: true,
        generation: "local-4".into(),
        open_circuits: vec!["shop/fraud-api".into()],
        ..PushAnswer::default()
    };
    insta::assert_snapshot!(page(&outcome, &bundle(&[("a.yaml", "x\n")])));
}

#[test]
fn refused() {
    let outcome =
        PushAnswer { generation: "local-3".into(), errors: vec![diagnostic("a.yaml", 4)], ..PushAnswer::default() };
    insta::assert_snapshot!(page(&outcome, &bundle(&[("a.yaml", "1\n2\n3\n4\n")])));
}

#[test]
fn refused_in_the_second_of_two_files() {
    let outcome = PushAnswer {
        generation: "local-3".into(),
        errors: vec![diagnostic("a.yaml+b.yaml", 4)],
        ..PushAnswer::default()
    };
    let bundle = bundle(&[("a.yaml", "1\n2\n"), ("b.yaml", "1\n2\n3\n4\n")]);
    insta::assert_snapshot!(page(&outcome, &bundle));
    let mut json = serde_json::json!({"errors": [{"file": "a.yaml+b.yaml", "line": 4}]});
    bundle.locate_all(&mut json);
    assert_eq!(json["errors"][0], serde_json::json!({"file": "b.yaml", "line": 1}));
}

#[test]
fn a_position_anywhere_in_a_message_is_told_by_file() {
    let bundle = bundle(&[("a.yaml", "1\n2\n"), ("b.yaml", "1\n")]);
    let told = bundle.with_positions("at a.yaml+b.yaml:2:7, the first is at a.yaml+b.yaml:4; a.yaml+b.yaml: 99");
    assert_eq!(told, "at a.yaml:2:7, the first is at b.yaml:1; a.yaml+b.yaml: 99");
}
