//! No text makes the parser panic, hang, or say something about a place that is not there.
#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "the other test of the schemas uses the rest")]
mod checker;

use std::fs;
use std::path::Path;

use plimsoll_policy::{Diagnostic, MAX_SOURCE_BYTES, Source, parse};
use proptest::prelude::*;
use proptest::sample::Index;

/// Pieces that mean something to YAML or to policy.
const PIECES: [&str; 45] = [
    ":",
    ": ",
    "- ",
    "? ",
    "{",
    "}",
    "[",
    "]",
    ",",
    "#",
    " #",
    "&a ",
    "*a",
    "!t ",
    "!!str ",
    "|",
    ">",
    "'",
    "\"",
    "\\x",
    "%",
    "@",
    "`",
    "\t",
    "\n",
    "\n\n  ",
    "---\n",
    "...\n",
    "\r",
    "\r\n",
    "<<",
    "~",
    "null",
    "0",
    "99999999999999999999",
    "-1",
    "1e9",
    "250ms",
    "100/s",
    "../x",
    "protocol: TCP",
    "mode: Disabled",
    "\u{0}",
    "\u{feff}",
    "é\u{2028}",
];

fn texts() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let files = ["good", "bad", "warned"].iter().flat_map(|name| fs::read_dir(folder.join(name)).unwrap());
    let mut texts: Vec<_> = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    texts.sort();
    texts
}

#[derive(Clone, Debug)]
enum Change {
    Insert(Index, Index),
    Delete(Index, usize),
    Repeat(Index, usize),
    SwapLines(Index, Index),
}

fn changes() -> impl Strategy<Value = Change> {
    prop_oneof![
        (any::<Index>(), any::<Index>()).prop_map(|(at, piece)| Change::Insert(at, piece)),
        (any::<Index>(), 1..12usize).prop_map(|(at, length)| Change::Delete(at, length)),
        (any::<Index>(), 1..80usize).prop_map(|(at, length)| Change::Repeat(at, length)),
        (any::<Index>(), any::<Index>()).prop_map(|(one, other)| Change::SwapLines(one, other)),
    ]
}

fn changed(text: &str, change: &Change) -> String {
    let characters: Vec<char> = text.chars().collect();
    let split = |at: &Index| at.index(characters.len() + 1);
    let collect = |parts: [&[char]; 3]| parts.concat().into_iter().collect();
    match change {
        Change::Insert(at, piece) => {
            let (before, after) = characters.split_at(split(at));
            let piece: Vec<char> = PIECES[piece.index(PIECES.len())].chars().collect();
            collect([before, &piece, after])
        }
        Change::Delete(at, length) => {
            let (before, after) = characters.split_at(split(at));
            collect([before, &[], &after[(*length).min(after.len())..]])
        }
        Change::Repeat(at, length) => {
            let (before, after) = characters.split_at(split(at));
            collect([before, &after[..(*length).min(after.len())], after])
        }
        Change::SwapLines(one, other) => {
            let mut lines: Vec<&str> = text.lines().collect();
            if !lines.is_empty() {
                let (one, other) = (one.index(lines.len()), other.index(lines.len()));
                lines.swap(one, other);
            }
            lines.join("\n")
        }
    }
}

fn check(text: &str) {
    let list = match parse(&[Source::new("t", text)]) {
        Ok(set) => {
            let again = parse(&[Source::new("t", set.to_yaml())]).unwrap_or_else(|wrong| panic!("{text}\n{wrong}"));
            assert_eq!(again.to_yaml(), set.to_yaml());
            assert_eq!(checker::verdicts(&set.to_yaml()), [] as [&str; 0], "{text}");
            set.warnings
        }
        Err(wrong) => {
            assert!(wrong.errors().count() > 0);
            assert!(!wrong.to_string().is_empty());
            wrong.list
        }
    };
    list.iter().for_each(|diagnostic| check_place(text, diagnostic));
}

fn check_place(text: &str, diagnostic: &Diagnostic) {
    let Diagnostic { line, column, width, excerpt, excerpt_offset, .. } = diagnostic;
    assert!((1..=text.split(['\n', '\r']).count() + 1).contains(line), "{diagnostic}");
    assert!(*column >= 1 && *width >= 1, "{diagnostic}");
    let length = excerpt.chars().count();
    assert!(*excerpt_offset <= length && excerpt_offset + width <= length + 1, "{diagnostic:?}");
    assert!(!excerpt.chars().any(char::is_control));
    assert!(serde_json::to_value(diagnostic).unwrap()["text"].is_string());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn changed_policy(text in any::<Index>(), changes in prop::collection::vec(changes(), 1..6)) {
        let texts = texts();
        let text = texts[text.index(texts.len())].clone();
        check(&changes.iter().fold(text, |text, change| changed(&text, change)));
    }

    #[test]
    fn pieces_of_yaml(pieces in prop::collection::vec(any::<Index>(), 0..40)) {
        let pieces = pieces.iter().map(|piece| PIECES[piece.index(PIECES.len())]);
        check(&pieces.collect::<String>());
    }

    #[test]
    fn any_text(text in "\\PC*") {
        check(&text);
    }
}

const HEAD: &str = "\
apiVersion: plimsoll.dev/v1alpha1
kind: DependencyPolicy
metadata: {name: a}
spec:
  target: {hosts: [\"a:80\"]}
";

fn errors(text: String) -> Vec<String> {
    let wrong = parse(&[Source::new("t", text)]).unwrap_err();
    wrong.list.into_iter().map(|diagnostic| diagnostic.message).collect()
}

#[test]
fn a_source_has_a_size() {
    let text = format!("{HEAD}# {}", "x".repeat(MAX_SOURCE_BYTES));
    assert_eq!(errors(text), ["this policy is larger than 1 MiB"]);
}

#[test]
fn a_source_has_a_number_of_values() {
    let text = format!("{HEAD}  workloads: [{}]", "a, ".repeat(100_000));
    assert_eq!(errors(text), ["too many values in one policy source"]);
}

#[test]
fn depth_has_an_end() {
    for text in
        [format!("{HEAD}  mode: {}", "[".repeat(10_000)), "- ".repeat(10_000), "{a: ".repeat(200), "? ".repeat(10_000)]
    {
        let errors = errors(text);
        assert!(errors.iter().any(|error| error.contains("deep") || error.contains("not valid YAML")), "{errors:?}");
    }
}

#[test]
fn a_bomb_of_aliases_does_not_go_off() {
    let mut text = format!("{HEAD}  a0: &a0 [x, x]\n");
    for level in 1..30 {
        text.push_str(&format!("  a{level}: &a{level} [*a{}, *a{}]\n", level - 1, level - 1));
    }
    let errors = errors(text);
    assert!(errors.iter().any(|error| error.starts_with("aliases are not supported")));
}

#[test]
fn more_errors_than_anybody_reads_are_counted() {
    let fields: String = (0..10_000).map(|number| format!("f{number}: 1, ")).collect();
    let text = format!("{HEAD}  retry: {{{fields}}}\n");
    let wrong = parse(&[Source::new("t", text)]).unwrap_err();
    assert_eq!((wrong.list.len(), wrong.omitted_errors), (100, 9_900));
    assert!(wrong.to_string().ends_with("... and 9900 more"));
    assert!(wrong.list.iter().all(|diagnostic| diagnostic.excerpt.chars().count() <= 120));
}

#[test]
fn warnings_never_turn_into_errors() {
    let routes: String = (0..200).map(|number| format!("  - {{name: r{number}, match: {{}}}}\n")).collect();
    let set = parse(&[Source::new("t", format!("{HEAD}  routes:\n{routes}"))]).unwrap();
    assert_eq!((set.warnings.len(), set.dependencies[0].routes.len()), (100, 200));
}
