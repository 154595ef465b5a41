use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use super::super::answer::{Answer, Found};
use super::super::system::Asking;
use super::*;

/// Answers in the order in which they were written down, and stays with the last one.
#[derive(Default)]
struct Script {
    addresses: Mutex<BTreeMap<&'static str, VecDeque<Found>>>,
    services: Option<Services>,
    asked: Mutex<Vec<(String, u64)>>,
    start: Option<Instant>,
}

impl Script {
    fn new() -> Self {
        Self { start: Some(Instant::now()), ..Self::default() }
    }

    fn says(self, name: &'static str, answers: impl IntoIterator<Item = Found>) -> Self {
        self.addresses.lock().unwrap().insert(name, answers.into_iter().collect());
        self
    }

    fn serves(mut self, targets: Vec<Service>, ttl: u64) -> Self {
        self.services = Services::new(targets, Duration::from_secs(ttl)).ok();
        self
    }

    fn note(&self, name: &str) {
        let seconds = self.start.unwrap().elapsed().as_secs();
        self.asked.lock().unwrap().push((name.to_owned(), seconds));
    }

    /// When `name` was asked for, in seconds.
    fn asked(&self, name: &str) -> Vec<u64> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|(known, _)| known == name).map(|(_, seconds)| *seconds).collect()
    }
}

impl Source for Script {
    fn addresses(&self, name: Arc<str>) -> Asking<Answer> {
        self.note(&name);
        let mut all = self.addresses.lock().unwrap();
        let answers = all.get_mut(&*name).unwrap();
        let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
        Box::pin(std::future::ready(answer.unwrap()))
    }

    fn services(&self, name: Arc<str>) -> Asking<Services> {
        self.note(&name);
        Box::pin(std::future::ready(self.services.clone().ok_or(ResolveError::NoName)))
    }
}

fn answer(last: impl IntoIterator<Item = u8>, ttl: u64) -> Found {
    Answer::new(last.into_iter().map(|last| [10, 0, 0, last].into()), Duration::from_secs(ttl))
}

fn no_answer() -> Found {
    Err(ResolveError::NoAnswer("a test".into()))
}

/// Follows `resolved` until `seconds` have passed, and returns what then are its endpoints: last number and port.
async fn follow(script: &Arc<Script>, resolved: &Arc<Resolved>, seconds: u64) -> Vec<(u8, u16)> {
    let source: Arc<dyn Source> = Arc::clone(script) as _;
    let follows = Watches::new(source).follow(Arc::downgrade(resolved));
    let _ = tokio::time::timeout(Duration::from_millis(seconds * 1000 + 500), follows).await;
    let last = |address: &SocketAddr| match address.ip() {
        std::net::IpAddr::V4(v4) => v4.octets()[3],
        std::net::IpAddr::V6(_) => panic!("all are v4 here"),
    };
    resolved.load().iter().map(|endpoint| (last(&endpoint.address), endpoint.address.port())).collect()
}

fn resolved(port: Option<u16>, refresh: Option<u64>) -> Arc<Resolved> {
    Resolved::new("api.example".to_owned(), port, refresh.map(Duration::from_secs))
}

fn service(priority: u16, weight: u16, target: &str) -> Service {
    Service { priority, weight, target: target.into(), port: 9000 + priority }
}

#[tokio::test(start_paused = true)]
async fn a_name_is_asked_for_again_when_its_ttl_is_over() {
    let script = Arc::new(Script::new().says("api.example", [answer([1], 20), answer([2], 5), answer([3], 60)]));
    let resolved = resolved(Some(80), None);
    assert_eq!(follow(&script, &resolved, 30).await, [(3, 80)]);
    assert_eq!(script.asked("api.example"), [0, 20, 25]);
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_is_written_holds_whatever_the_ttl() {
    let script = Arc::new(Script::new().says("api.example", [answer([1], 300), answer([2], 1)]));
    let resolved = resolved(Some(80), Some(10));
    assert_eq!(follow(&script, &resolved, 29).await, [(2, 80)]);
    assert_eq!(script.asked("api.example"), [0, 10, 20]);
}

#[tokio::test(start_paused = true)]
async fn addresses_stay_however_long_no_name_server_answers() {
    let script = Arc::new(Script::new().says("api.example", [answer([1, 2], 10), no_answer()]));
    let resolved = resolved(Some(80), None);
    assert_eq!(follow(&script, &resolved, 3600).await, [(1, 80), (2, 80)]);
    assert_eq!(script.asked("api.example")[..4], [0, 10, 11, 12], "asked again every second");
}

#[tokio::test(start_paused = true)]
async fn that_a_name_is_gone_is_believed_after_a_minute() {
    let gone = || Err(ResolveError::NoName);
    let script = Arc::new(Script::new().says("api.example", [answer([1], 10), gone(), Err(ResolveError::NoAddress)]));
    let resolved = resolved(Some(80), None);
    assert_eq!(follow(&script, &resolved, 68).await, [(1, 80)]);
    let resolved = self::resolved(Some(80), None);
    let script = Arc::new(Script::new().says("api.example", [answer([1], 10), gone()]));
    assert_eq!(follow(&script, &resolved, 72).await, []);
    let script = Arc::new(Script::new().says("api.example", [gone(), answer([5], 10)]));
    assert_eq!(follow(&script, &resolved, 2).await, [(5, 80)]);
}

/// A name server that comes back after an outage may know nothing yet, however long the outage was.
#[tokio::test(start_paused = true)]
async fn the_minute_does_not_run_while_no_name_server_answers() {
    let outage = (0..300).map(|_| no_answer());
    let script = Script::new()
        .says("api.example", [answer([1], 10)].into_iter().chain(outage).chain([Err(ResolveError::NoName)]));
    let script = Arc::new(script);
    let resolved = resolved(Some(80), None);
    assert_eq!(follow(&script, &resolved, 365).await, [(1, 80)]);
    let asked = script.asked("api.example").len();
    assert!(asked > 320, "{asked}: the name server has been back for a while");
}

#[tokio::test(start_paused = true)]
async fn services_are_served_by_the_first_group_that_has_addresses() {
    let targets = vec![service(1, 10, "dead"), service(2, 3, "a"), service(2, 1, "b"), service(3, 1, "far")];
    let script = Script::new().serves(targets, 60).says("dead", [Err(ResolveError::NoName)]);
    let script = script.says("a", [answer([1], 40)]).says("b", [answer([2], 15), answer([3], 15)]);
    let script = Arc::new(script.says("far", [answer([9], 60)]));
    let resolved = resolved(None, None);
    let (a, b) = ((1, 9002), (3, 9002));
    assert_eq!(follow(&script, &resolved, 20).await, [a, a, b, a]);
    assert_eq!(script.asked("api.example"), [0, 15], "the smallest TTL counts");
    assert_eq!(script.asked("far"), [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_group_of_which_nothing_is_known_is_not_passed_over() {
    let targets = vec![service(1, 1, "near"), service(2, 1, "far")];
    let script = Script::new().serves(targets, 60).says("near", [no_answer(), answer([1], 60)]);
    let script = Arc::new(script.says("far", [answer([9], 60)]));
    let resolved = resolved(None, None);
    assert_eq!(follow(&script, &resolved, 0).await, []);
    assert_eq!(follow(&script, &resolved, 5).await, [(1, 9001)]);
    assert_eq!(script.asked("far"), [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_target_that_could_not_be_asked_for_is_asked_for_again_soon() {
    let targets = vec![service(1, 1, "a"), service(1, 1, "b")];
    let script = Script::new().serves(targets, 60).says("a", [answer([1], 60)]);
    let script = Arc::new(script.says("b", [no_answer(), answer([2], 60)]));
    let resolved = resolved(None, None);
    assert_eq!(follow(&script, &resolved, 30).await, [(1, 9001), (2, 9001)]);
    assert_eq!(script.asked("api.example"), [0, 1]);
}
