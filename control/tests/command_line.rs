//! The program as a user meets it: exit codes, messages and what reaches the proxy, against a scripted admin address.
#![allow(clippy::unwrap_used)] // In the functions around the tests, too, a panic is the report.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use std::thread::JoinHandle;

use serde_json::{Value, json};

/// Answers one connection after the other from a script, and remembers what was asked.
struct ScriptedAdmin {
    port: u16,
    thread: JoinHandle<Vec<String>>,
}

impl ScriptedAdmin {
    fn answering(script: Vec<String>) -> ScriptedAdmin {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let thread = std::thread::spawn(move || {
            let mut asked = Vec::new();
            for answer in script {
                let (mut stream, _) = listener.accept().unwrap();
                asked.push(read_request(&mut stream));
                stream.write_all(answer.as_bytes()).unwrap();
            }
            asked
        });
        ScriptedAdmin { port, thread }
    }

    /// The requests, once the whole script has been played.
    fn asked(self) -> Vec<String> {
        self.thread.join().unwrap()
    }
}

fn read_request(stream: &mut impl Read) -> String {
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let seen = String::from_utf8_lossy(&text).to_string();
        if let Some((head, body)) = seen.split_once("\r\n\r\n") {
            let length =
                head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return seen;
            }
        }
        let n = stream.read(&mut buffer).unwrap();
        assert!(n > 0, "the request ended early: {seen}");
        text.extend_from_slice(&buffer[..n]);
    }
}

fn answer(status: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
}

fn ok(body: &Value) -> String {
    answer("200 OK", &body.to_string())
}

/// Runs `plimsoll`, with `dir` as the only place where a token can be.
fn plimsoll(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(args)
        .env("PLIMSOLL_STATE_DIR", dir)
        .env_remove("PLIMSOLL_PROXY")
        .env_remove("PLIMSOLL_ADMIN_TOKEN_FILE")
        .output()
        .unwrap()
}

/// Runs `verb --proxy PORT` with a token where the proxy on that port would have written it.
fn with_token(port: u16, verb: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(format!("admin-{port}.token")), "s3cret\n").unwrap();
    let port = port.to_string();
    plimsoll(dir.path(), &[verb, &["--proxy", &port]].concat())
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Exit code and standard error of a failed run, which prints nothing else.
fn failure(output: &Output) -> (i32, String) {
    assert_eq!(stdout(output), "");
    (output.status.code().unwrap(), stderr(output))
}

fn a_status() -> Value {
    json!({"version": "0.1.0", "generation": "local-1", "state": "Serving", "workers": 2,
        "dependencies": [{"policy": "shop/fraud-api", "mode": "Enforce", "circuits": [
            {"scope": "Dependency", "mode": "Enforce", "state": "Open", "next_probe_in_ms": 3000}]}]})
}

fn a_decision() -> Value {
    json!({"id": "7f3a", "time": "2026-11-30T14:03:07Z", "direction": "outbound", "policy": "shop/fraud-api",
        "reason": "CircuitOpen", "status": 503, "block": "circuitBreaker", "mode": "Enforce", "generation": "local-1"})
}

#[test]
fn without_a_proxy_it_says_how_to_start_one() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (code, message) = failure(&with_token(port, &["status"]));
    assert_eq!(code, 2);
    assert!(message.contains(&format!("no proxy answers on 127.0.0.1:{port}")), "{message}");
    assert!(message.contains("plimsoll-proxy --policy FILE"), "{message}");
}

#[test]
fn status_needs_no_token() {
    let admin = ScriptedAdmin::answering(vec![ok(&a_status())]);
    let nowhere = tempfile::tempdir().unwrap();
    let output = plimsoll(nowhere.path(), &["status", "--proxy", &admin.port.to_string()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let page = stdout(&output);
    assert!(page.contains("shop/fraud-api") && page.contains("Open, 3 s left"), "{page}");
    assert!(!page.contains('\x1b'), "no colour into a pipe: {page:?}");
    let asked = admin.asked();
    assert!(asked[0].starts_with("GET /status HTTP/1.1\r\n"), "{}", asked[0]);
    assert!(!asked[0].to_lowercase().contains("authorization"), "{}", asked[0]);
}

#[test]
fn status_as_json_is_what_the_proxy_said() {
    let admin = ScriptedAdmin::answering(vec![ok(&a_status())]);
    let output = with_token(admin.port, &["status", "-o", "json"]);
    let said: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(said, a_status());
}

#[test]
fn circuits_as_json_name_their_dependency() {
    let admin = ScriptedAdmin::answering(vec![ok(&a_status())]);
    let output = with_token(admin.port, &["circuits", "-o", "json"]);
    let said: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(said[0]["dependency"], "shop/fraud-api");
    assert_eq!(said[0]["state"], "Open");
}

#[test]
fn push_sends_the_file_its_name_and_the_token() {
    let taken = json!({"accepted": true, "generation": "local-2", "warnings": [], "open_circuits": ["shop/bank"]});
    let admin = ScriptedAdmin::answering(vec![ok(&taken)]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("payments.yaml");
    std::fs::write(&file, "kind: DependencyPolicy\n").unwrap();
    let output = with_token(admin.port, &["push", file.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let page = stdout(&output);
    assert!(page.contains("generation local-2 is in force") && page.contains("shop/bank is open"), "{page}");
    let asked = &admin.asked()[0];
    let head = asked.to_lowercase();
    assert!(asked.starts_with("PUT /policy HTTP/1.1\r\n"), "{asked}");
    assert!(head.contains("authorization: bearer s3cret\r\n"), "{asked}");
    let name = file.display().to_string().to_lowercase();
    assert!(head.contains(&format!("x-plimsoll-file: {name}\r\n")), "{asked}");
    assert!(asked.ends_with("\r\n\r\nkind: DependencyPolicy\n"), "{asked}");
}

#[test]
fn a_refused_push_prints_the_error_and_exits_with_1() {
    let refused = json!({"accepted": false, "generation": "local-1", "errors": [
        {"file": "p.yaml", "line": 1, "column": 1, "message": "unknown field", "text": "error: unknown field `kin`\n"}]});
    let admin = ScriptedAdmin::answering(vec![answer("422 Unprocessable Content", &refused.to_string())]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.yaml");
    std::fs::write(&file, "kin: x\n").unwrap();
    let output = with_token(admin.port, &["push", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let page = stdout(&output);
    assert!(page.contains("error: unknown field `kin`"), "{page}");
    assert!(page.contains("1 error; generation local-1 stays in force"), "{page}");
}

#[test]
fn a_missing_token_is_named_with_its_place() {
    let admin = ScriptedAdmin::answering(vec![ok(&a_status())]);
    let dir = tempfile::tempdir().unwrap();
    let (code, message) = failure(&plimsoll(dir.path(), &["explain", "--proxy", &admin.port.to_string()]));
    assert_eq!(code, 2);
    let place = dir.path().join(format!("admin-{}.token", admin.port));
    assert!(message.contains(&place.display().to_string()), "{message}");
    assert!(message.contains("--admin-token-file"), "{message}");
}

#[test]
fn a_wrong_address_is_not_mistaken_for_a_missing_token() {
    let admin = ScriptedAdmin::answering(vec![answer("503 Service Unavailable", "plimsoll: CircuitOpen")]);
    let dir = tempfile::tempdir().unwrap();
    let (code, message) = failure(&plimsoll(dir.path(), &["explain", "--proxy", &admin.port.to_string()]));
    assert_eq!(code, 2);
    assert!(message.contains("not like the admin address"), "{message}");
}

#[test]
fn a_given_token_file_is_used() {
    let admin = ScriptedAdmin::answering(vec![ok(&json!({"decisions": []}))]);
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("mine");
    std::fs::write(&token, "other").unwrap();
    let output = with_token(admin.port, &["explain", "--admin-token-file", token.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("refused nothing"), "{}", stdout(&output));
    let asked = admin.asked()[0].to_lowercase();
    assert!(asked.contains("authorization: bearer other\r\n"), "{asked}");
}

#[test]
fn a_token_of_another_proxy_is_explained() {
    let said = json!({"error": "this token is not mine"});
    let admin = ScriptedAdmin::answering(vec![answer("401 Unauthorized", &said.to_string())]);
    let (code, message) = failure(&with_token(admin.port, &["explain"]));
    assert_eq!(code, 2);
    assert!(message.contains("did not take the token in ") && message.contains("this token is not mine"), "{message}");
}

#[test]
fn another_server_is_told_from_the_admin_address() {
    for strange in [
        answer("404 Not Found", "<html>no</html>"),
        answer("404 Not Found", "{}"),
        "SSH-2.0-x\r\n".into(),
        String::new(),
    ] {
        let admin = ScriptedAdmin::answering(vec![strange.clone()]);
        let (code, message) = failure(&with_token(admin.port, &["status"]));
        assert_eq!(code, 2);
        assert!(message.contains("not like the admin address"), "{strange:?}: {message}");
        assert!(message.contains("\"admin\""), "{message}");
    }
}

#[test]
fn explain_tells_the_newest_refusal() {
    let admin = ScriptedAdmin::answering(vec![ok(&json!({"decisions": [a_decision()]})), ok(&a_status())]);
    let output = with_token(admin.port, &["explain"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let page = stdout(&output);
    assert!(page.starts_with("7f3a  2026-11-30T14:03:07Z  -> 503 CircuitOpen\n"), "{page}");
    assert!(page.contains("breaker Open, 3 s left") && page.contains("What to change"), "{page}");
    assert!(admin.asked()[0].starts_with("GET /decisions?limit=1 "));
}

#[test]
fn explain_as_json_adds_the_explanation() {
    let admin = ScriptedAdmin::answering(vec![ok(&json!({"decisions": [a_decision()]})), ok(&a_status())]);
    let output = with_token(admin.port, &["explain", "7f3a", "-o", "json"]);
    let said: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(said["reason"], "CircuitOpen");
    assert!(said["explanation"]["why"].as_str().unwrap().contains("breaker was open"));
    assert!(!said["explanation"]["change"].as_array().unwrap().is_empty());
    assert!(admin.asked()[0].starts_with("GET /decisions?id=7f3a "));
}

#[test]
fn an_unknown_refusal_exits_with_1() {
    let admin = ScriptedAdmin::answering(vec![ok(&json!({"decisions": []}))]);
    let (code, message) = failure(&with_token(admin.port, &["explain", "beef"]));
    assert_eq!(code, 1);
    assert!(message.contains("`beef`") && message.contains("only the newest are kept"), "{message}");
}

#[test]
fn a_missing_policy_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (code, message) = failure(&plimsoll(dir.path(), &["push", "/no/such.yaml"]));
    assert_eq!(code, 2);
    assert!(message.contains("cannot read /no/such.yaml"), "{message}");
}

#[test]
fn a_demo_without_a_proxy_binary_says_how_to_get_one() {
    let dir = tempfile::tempdir().unwrap();
    let (code, message) = failure(&plimsoll(dir.path(), &["demo", "--proxy-binary", "/no/such-proxy"]));
    assert_eq!(code, 2);
    assert!(message.contains("cannot start /no/such-proxy"), "{message}");
}

#[test]
fn completions_are_a_script() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let output = plimsoll(dir.path(), &["completions", shell]);
        let script = stdout(&output);
        assert!(script.contains("explain") && script.contains("circuits"), "{shell}");
    }
}
