use std::fs;

use hickory_resolver::proto::op::ResponseCode;
use tempfile::TempDir;
use tokio::time::Instant;

use super::super::testing::{NameServer, Zone};
use super::*;

/// A machine that asks `servers`, with these files.
fn machine(servers: &[&NameServer], files: &[(&str, &str)]) -> (TempDir, Arc<System>) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let servers = servers.iter().map(|server| server.address).collect();
    let system = System::new(Files::in_folder(folder.path(), servers));
    (folder, system)
}

async fn ask(system: &Arc<System>, name: &str) -> Result<(Vec<String>, u64), String> {
    match system.addresses(name.into()).await {
        Ok(Answer { addresses, holds }) => {
            Ok((addresses.iter().map(|address| address.ip().to_string()).collect(), holds.as_secs()))
        }
        Err(error) => Err(error.to_string()),
    }
}

fn answer(addresses: &[&str], seconds: u64) -> Result<(Vec<String>, u64), String> {
    Ok((addresses.iter().map(|address| (*address).to_owned()).collect(), seconds))
}

const NO_NAME: &str = "there is no such name";
const NO_ADDRESS: &str = "the name has no address";

#[tokio::test(start_paused = true)]
async fn both_families_are_told_and_hold_for_the_shorter_ttl_within_bounds() {
    let zone = Zone::default()
        .address("both.example.", 120, "10.0.0.1")
        .address("both.example.", 120, "10.0.0.2")
        .address("both.example.", 30, "fd00::1")
        .address("day.example.", 86_400, "10.0.0.3")
        .address("never.example.", 0, "fd00::4");
    let server = NameServer::start(zone).await;
    let (_folder, system) = machine(&[&server], &[]);
    assert_eq!(ask(&system, "Both.example").await, answer(&["fd00::1", "10.0.0.1", "10.0.0.2"], 30));
    assert_eq!(ask(&system, "day.example").await, answer(&["10.0.0.3"], 300));
    assert_eq!(ask(&system, "never.example.").await, answer(&["fd00::4"], 1));
    assert_eq!(ask(&system, "gone.example").await, Err(NO_NAME.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn an_alias_holds_no_longer_than_its_shortest_link() {
    let zone = Zone::default()
        .alias("www.example.", 60, "edge.example.")
        .alias("edge.example.", 20, "pop.example.")
        .address("pop.example.", 40, "10.0.0.1")
        .alias("lost.example.", 60, "nowhere.example.");
    let server = NameServer::start(zone).await;
    let (_folder, system) = machine(&[&server], &[]);
    assert_eq!(ask(&system, "www.example").await, answer(&["10.0.0.1"], 20));
    assert!(ask(&system, "lost.example").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_truncated_answer_is_asked_for_again_over_tcp() {
    let zone = (1..=100).fold(Zone::default().truncated("many.example."), |zone, last| {
        zone.address("many.example.", 60, &format!("10.0.0.{last}"))
    });
    let server = NameServer::start(zone).await;
    let (_folder, system) = machine(&[&server], &[]);
    let (addresses, _) = ask(&system, "many.example").await.unwrap();
    assert_eq!(addresses.len(), 100);
    assert!(server.asked().contains(&"A many.example. TCP".to_owned()), "{:?}", server.asked());
}

#[tokio::test(start_paused = true)]
async fn what_is_known_on_this_machine_is_not_asked_for() {
    let server = NameServer::start(Zone::default()).await;
    let hosts = "10.0.0.1 db.internal\n127.0.0.9 localhost\n";
    let (_folder, system) = machine(&[&server], &[("hosts", hosts)]);
    assert_eq!(ask(&system, "db.internal").await, answer(&["10.0.0.1"], 5));
    assert_eq!(ask(&system, "localhost").await, answer(&["127.0.0.9"], 5), "as the hosts file says");
    assert_eq!(ask(&system, "api.localhost").await, answer(&["::1", "127.0.0.1"], 300));
    assert_eq!(ask(&system, "10.1.2.3").await, answer(&["10.1.2.3"], 300));
    assert_eq!(ask(&system, "fd00::7").await, answer(&["fd00::7"], 300));
    for nonsense in ["", ".", "a..b", &"a".repeat(64)] {
        assert_eq!(ask(&system, nonsense).await, Err("this is no host name".to_owned()), "{nonsense:?}");
    }
    assert_eq!(server.asked(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_search_list_is_followed_until_a_name_has_an_address() {
    let zone = Zone::default()
        .empty("fraud.risk.local.")
        .address("fraud.svc.local.", 30, "10.0.0.1")
        .fails("ledger.risk.local.", ResponseCode::ServFail)
        .address("ledger.svc.local.", 30, "10.0.0.2")
        .empty("void.risk.local.")
        .fails("broken.svc.local.", ResponseCode::ServFail)
        .empty("broken.");
    let server = NameServer::start(zone).await;
    let resolv = "search risk.local svc.local\noptions ndots:5 attempts:1\n";
    let (_folder, system) = machine(&[&server], &[("resolv.conf", resolv)]);
    assert_eq!(ask(&system, "fraud").await, answer(&["10.0.0.1"], 30));
    assert_eq!(ask(&system, "void").await, Err(NO_ADDRESS.to_owned()));
    assert_eq!(ask(&system, "ledger").await, answer(&["10.0.0.2"], 30), "one domain is out of order");
    let failed = ask(&system, "broken").await.unwrap_err();
    assert_eq!(failed, "no name server could answer: DNS error: error response: Server Failure");
    assert_eq!(ask(&system, "fraud.").await, Err(NO_NAME.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_is_passed_over_and_one_that_knows_better_is_not() {
    let failing = NameServer::start(Zone::default().fails("a.example.", ResponseCode::Refused)).await;
    let knowing =
        NameServer::start(Zone::default().address("a.example.", 30, "10.0.0.1").address("b.example.", 30, "10.0.0.2"))
            .await;
    let (_folder, system) = machine(&[&failing, &knowing], &[]);
    assert_eq!(ask(&system, "a.example").await, answer(&["10.0.0.1"], 30));
    assert_eq!(ask(&system, "b.example").await, Err(NO_NAME.to_owned()), "the first server says so");
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_costs_its_head_start() {
    let silent = NameServer::start(Zone::default().silent("a.example.", None)).await;
    let knowing = NameServer::start(Zone::default().address("a.example.", 30, "10.0.0.1")).await;
    let (_folder, system) = machine(&[&silent, &knowing], &[]);
    let start = Instant::now();
    assert_eq!(ask(&system, "a.example").await, answer(&["10.0.0.1"], 30));
    assert!(start.elapsed() < HEAD_START * 2, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn silence_ends_after_ten_seconds() {
    let silent = NameServer::start(Zone::default().silent("a.example.", None)).await;
    let (_folder, system) = machine(&[&silent], &[]);
    let start = Instant::now();
    let failed = ask(&system, "a.example").await.unwrap_err();
    assert!(failed.starts_with("no name server could answer: "), "{failed}");
    assert!(start.elapsed() <= PATIENCE + Duration::from_millis(10), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_family_that_is_never_answered_for_holds_up_nothing() {
    let zone = Zone::default()
        .address("four.example.", 60, "10.0.0.1")
        .silent("four.example.", Some(RecordType::AAAA))
        .address("six.example.", 60, "fd00::1")
        .silent("six.example.", Some(RecordType::A));
    let server = NameServer::start(zone).await;
    let (_folder, system) = machine(&[&server], &[]);
    let start = Instant::now();
    assert_eq!(ask(&system, "four.example").await, answer(&["10.0.0.1"], 1), "asked again soon");
    assert_eq!(ask(&system, "six.example").await, answer(&["fd00::1"], 1));
    assert!(start.elapsed() < HEAD_START, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn services_come_by_priority_and_without_those_that_say_they_are_none() {
    let zone = Zone::default()
        .service("_grpc._tcp.fraud.example.", 45, (10, 3), ("a.example.", 9001))
        .service("_grpc._tcp.fraud.example.", 45, (20, 0), ("c.example.", 9003))
        .service("_grpc._tcp.fraud.example.", 45, (10, 1), ("b.example.", 9002))
        .service("_none._tcp.example.", 45, (0, 0), (".", 0))
        .address("plain.example.", 45, "10.0.0.1");
    let server = NameServer::start(zone).await;
    let (_folder, system) = machine(&[&server], &[("resolv.conf", "search example\noptions ndots:5\n")]);
    let services = system.services("_grpc._tcp.fraud".into()).await.unwrap();
    let told: Vec<Vec<_>> = services
        .groups
        .iter()
        .map(|group| group.iter().map(|one| format!("{}:{} {}", one.target, one.port, one.weight)).collect())
        .collect();
    assert_eq!(told, [vec!["a.example.:9001 3", "b.example.:9002 1"], vec!["c.example.:9003 0"]]);
    assert_eq!(services.holds, Duration::from_secs(45));
    for name in ["_none._tcp.example", "plain.example"] {
        let error = system.services(name.into()).await.unwrap_err();
        assert!(matches!(error, ResolveError::NoAddress), "{name}: {error}");
    }
}

#[test]
fn whatever_a_caller_names_is_parsed_or_refused() {
    for seed in 0..2_000 {
        let mut random = plimsoll_resilience::Random::new(seed);
        let letters = b"aA1-_.\\*:%@ \"[]\x00\xc3\xa9\xe2\x84";
        let length = random.next_u64() % 300;
        let bytes: Vec<u8> =
            (0..length).map(|_| letters[(random.next_u64() % letters.len() as u64) as usize]).collect();
        let _ = parse(&String::from_utf8_lossy(&bytes));
    }
    for name in ["my_service.ns", "_grpc._tcp.fraud.", "b\u{fc}cher.example", "1.example", "a--b"] {
        assert!(parse(name).is_ok(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_systems_resolver_is_asked_only_where_it_knows_more_and_dns_does_not() {
    let server = NameServer::start(Zone::default()).await;
    let (_folder, system) = machine(&[&server], &[("nsswitch.conf", "hosts: files mdns4 [NOTFOUND=return] dns\n")]);
    // Nobody knows it; what DNS says is told.
    assert_eq!(ask(&system, "gone.invalid.").await, Err(NO_NAME.to_owned()));
    // This the system knows, and nothing that was read here.
    assert_eq!(elsewhere(&Arc::new(Semaphore::new(1)), "127.0.0.1".to_owned()).await.unwrap().addresses.len(), 1);
}
