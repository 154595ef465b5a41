//! House rules that a compiler does not hold: who may depend on whom, how long a file may be, what may not be left
//! behind, and that what is promised is written down.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the workspace").to_owned()
}

/// What each package is really built with: its normal (not dev, not build) dependencies, by name.
fn direct_dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version", "1", "--locked"]).current_dir(root());
    let output = command.output().expect("cargo can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let names: BTreeMap<String, String> =
        list(&metadata["packages"]).iter().map(|package| (text(&package["id"]), text(&package["name"]))).collect();
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for node in list(&metadata["resolve"]["nodes"]) {
        let normal = list(&node["deps"])
            .into_iter()
            .filter(|dependency| list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null()))
            .map(|dependency| names[&text(&dependency["pkg"])].clone());
        found.entry(names[&text(&node["id"])].clone()).or_default().extend(normal);
    }
    found
}

/// All packages that `package` reaches through normal dependencies.
fn reachable(direct: &BTreeMap<String, BTreeSet<String>>, package: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![package.to_owned()];
    while let Some(next) = open.pop() {
        for dependency in direct.get(&next).into_iter().flatten() {
            if found.insert(dependency.clone()) {
                open.push(dependency.clone());
            }
        }
    }
    found
}

#[test]
fn dependencies_point_one_way() {
    let direct = direct_dependencies();
    let ours = |package: &str| -> BTreeSet<String> {
        direct[package].iter().filter(|name| name.starts_with("plimsoll")).cloned().collect()
    };
    assert_eq!(direct["plimsoll-resilience"], BTreeSet::new(), "resilience is std only");
    assert_eq!(ours("plimsoll-h1"), BTreeSet::new(), "h1 depends on nothing of ours");
    assert_eq!(ours("plimsoll-policy"), BTreeSet::from(["plimsoll-resilience".to_owned()]));
    for (package, others) in
        [("plimsoll-proxy", &["plimsoll", "plimsoll-tests"][..]), ("plimsoll", &["plimsoll-tests"])]
    {
        for other in others {
            assert!(!ours(package).contains(*other), "{package} must not depend on {other}");
        }
    }
}

#[test]
fn the_data_path_has_no_http_framework() {
    let reached = reachable(&direct_dependencies(), "plimsoll-proxy");
    assert!(reached.contains("tokio"), "the graph was read");
    for banned in ["hyper", "hyper-util", "tower", "tonic", "reqwest", "axum"] {
        assert!(!reached.contains(banned), "plimsoll-proxy is built with {banned}");
    }
}

fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder").flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() && !matches!(name.to_str(), Some("target" | ".git" | "node_modules")) {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
}

fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in ["proxy", "control", "tests"] {
        files(&root().join(folder), "rs", &mut found);
    }
    assert!(found.len() > 20, "the walk found the workspace");
    found
}

/// Above this a file holds more than one idea. Generated tables and tests are counted too: they rot as well.
const LONGEST: usize = 800;

#[test]
fn files_hold_one_idea() {
    let long: Vec<String> = sources()
        .iter()
        .map(|path| (fs::read_to_string(path).expect("UTF-8").lines().count(), path))
        .filter(|(lines, _)| *lines > LONGEST)
        .map(|(lines, path)| format!("{} has {lines} lines", path.display()))
        .collect();
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn nothing_is_left_for_later() {
    // Spelled apart, so that this file does not name them itself.
    let banned = [["todo", "!("].concat(), ["unimplemented", "!("].concat(), ["#[ign", "ore"].concat()];
    let marks = [["FIX", "ME"].concat(), ["XX", "X"].concat()];
    let mut found = Vec::new();
    for path in sources() {
        let text = fs::read_to_string(&path).expect("UTF-8");
        for (number, line) in text.lines().enumerate() {
            if banned.iter().chain(&marks).any(|word| line.contains(word.as_str())) {
                found.push(format!("{}:{}: {}", path.display(), number + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn modules_are_named_for_what_they_are() {
    let vague = ["utils", "util", "helpers", "helper", "common", "manager", "misc"];
    let found: Vec<PathBuf> = sources()
        .into_iter()
        .filter(|path| path.file_stem().and_then(|stem| stem.to_str()).is_some_and(|stem| vague.contains(&stem)))
        .collect();
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn every_reason_is_explained_on_a_page() {
    let entries = fs::read_dir(root()).expect("a readable folder").flatten().map(|entry| entry.path());
    let pages = entries.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let text: String = pages.map(|page| fs::read_to_string(page).expect("UTF-8")).collect();
    let missing: Vec<&str> = plimsoll_resilience::Reason::ALL
        .iter()
        .map(|reason| reason.as_str())
        .filter(|reason| !text.contains(reason))
        .collect();
    assert!(missing.is_empty(), "no page at the top level mentions {missing:?}");
}
