use std::net::IpAddr;

use plimsoll_resilience::Random;

use super::super::system::Asking;
use super::*;

const TTL: Duration = Duration::from_secs(60);

fn answer(addresses: &[&str]) -> Result<Answer, ResolveError> {
    Answer::new(addresses.iter().map(|address| address.parse::<IpAddr>().unwrap()), TTL)
}

fn policy(name: &str) -> Arc<str> {
    name.into()
}

fn find(book: &AddressBook, address: &str) -> Option<String> {
    book.find(address.parse().unwrap(), |name| Some(name.to_owned()))
}

fn tell(book: &AddressBook, followed: &Followed, found: &Result<Answer, ResolveError>, now: Instant) {
    book.change(|pages| pages.on_answer(followed.page, found, now));
}

#[test]
fn an_address_is_that_of_a_name_with_its_port() {
    let (book, now) = (AddressBook::default(), Instant::now());
    let (db, fresh) = book.open("db.internal", 5432, &policy("shop/db"));
    assert!(fresh);
    assert_eq!(find(&book, "10.0.0.1:5432"), None);
    tell(&book, &db, &answer(&["10.0.0.1", "fd00::1"]), now);
    assert_eq!(find(&book, "10.0.0.1:5432").as_deref(), Some("db.internal"));
    assert_eq!(find(&book, "[::ffff:10.0.0.1]:5432").as_deref(), Some("db.internal"));
    assert_eq!(find(&book, "[fd00::1]:5432").as_deref(), Some("db.internal"));
    assert_eq!(find(&book, "10.0.0.1:5433"), None);
    assert_eq!(find(&book, "10.0.0.2:5432"), None);
}

#[test]
fn every_answer_is_remembered_for_its_ttl_and_an_hour() {
    let (book, start) = (AddressBook::default(), Instant::now());
    let (db, _) = book.open("db.internal", 5432, &policy("shop/db"));
    tell(&book, &db, &answer(&["10.0.0.1"]), start);
    let over = start + TTL + OUTLIVES;
    let last = over - Duration::from_millis(1);
    tell(&book, &db, &answer(&["10.0.0.2"]), last);
    assert!(find(&book, "10.0.0.1:5432").is_some() && find(&book, "10.0.0.2:5432").is_some());
    tell(&book, &db, &Err(ResolveError::NoAnswer("a test".into())), over);
    assert!(find(&book, "10.0.0.1:5432").is_some(), "nobody has said that it is another's");
    tell(&book, &db, &Err(ResolveError::NoName), over);
    assert!(find(&book, "10.0.0.1:5432").is_none() && find(&book, "10.0.0.2:5432").is_some());
}

#[test]
fn of_two_names_the_one_followed_for_longest_has_an_address_while_it_is_in_a_policy() {
    let (book, now) = (AddressBook::default(), Instant::now());
    let (first, _) = book.open("a.internal", 443, &policy("shop/a"));
    let (second, _) = book.open("b.internal", 443, &policy("shop/b"));
    let (third, _) = book.open("c.internal", 443, &policy("shop/b"));
    tell(&book, &third, &answer(&["10.0.0.1", "10.0.0.9"]), now);
    tell(&book, &second, &answer(&["10.0.0.1", "10.0.0.9"]), now);
    assert_eq!(book.contested(), 0, "both are names of one policy");
    tell(&book, &first, &answer(&["10.0.0.1"]), now);
    assert_eq!(book.contested(), 1);
    let address = "10.0.0.1:443".parse().unwrap();
    let known = |known: &'static [&str]| move |name: &str| known.contains(&name).then(|| name.to_owned());
    assert_eq!(book.find(address, known(&["a.internal", "b.internal"])).as_deref(), Some("a.internal"));
    assert_eq!(book.find(address, known(&["c.internal", "b.internal"])).as_deref(), Some("b.internal"));
    assert_eq!(book.find(address, known(&[])), None);
    assert_eq!(book.pages().told.len(), 1, "told once");
}

#[test]
fn a_name_is_in_the_book_once_and_gone_with_the_last_who_holds_it() {
    let (book, now) = (AddressBook::default(), Instant::now());
    let (held, _) = book.open("db.internal", 5432, &policy("shop/db"));
    let (again, fresh) = book.open("db.internal", 5432, &policy("shop/database"));
    assert!(Arc::ptr_eq(&held, &again) && !fresh);
    tell(&book, &held, &answer(&["10.0.0.1"]), now);
    drop((held, again));
    let (back, fresh) = book.open("db.internal", 5432, &policy("shop/db"));
    assert!(fresh, "nobody follows it any more");
    book.change(Pages::forget_abandoned);
    assert!(find(&book, "10.0.0.1:5432").is_some(), "put back in time, it is where it was");
    drop(back);
    book.change(Pages::forget_abandoned);
    assert_eq!(find(&book, "10.0.0.1:5432"), None);
}

#[test]
fn of_too_many_addresses_those_not_heard_of_for_longest_are_forgotten() {
    let (book, now) = (AddressBook::default(), Instant::now());
    let (pool, _) = book.open("pool.example", 443, &policy("shop/pool"));
    for number in 0..=MOST_ADDRESSES as u32 {
        let address = std::net::Ipv4Addr::from(0x0a00_0000 + number);
        let told = Answer::new([address.into()], TTL);
        tell(&book, &pool, &told, now + Duration::from_millis(number.into()));
    }
    assert_eq!(book.index.load().names.len(), MOST_ADDRESSES);
    assert_eq!(find(&book, "10.0.0.0:443"), None);
    assert!(find(&book, "10.0.0.1:443").is_some() && find(&book, "10.0.4.0:443").is_some());
}

/// Against the plainest telling of the rule: every answer ever given, and when.
#[test]
fn any_order_of_answers_keeps_the_rule() {
    for seed in 0..50 {
        let (mut random, book, mut now) = (Random::new(seed), AddressBook::default(), Instant::now());
        let mut below = |bound: u64| random.next_u64() % bound;
        let names: Vec<_> =
            (0..4).map(|number| book.open(&format!("{number}"), 80, &policy(&number.to_string())).0).collect();
        let mut told: Vec<Vec<(u64, Instant)>> = vec![Vec::new(); names.len()];
        for _ in 0..200 {
            now += Duration::from_secs(below(1200));
            let which = below(4) as usize;
            let last = below(6);
            tell(&book, &names[which], &answer(&[&format!("10.0.0.{last}")]), now);
            told[which].retain(|(_, until)| now < *until);
            told[which].push((last, now + TTL + OUTLIVES));
            for last in 0..6 {
                let has = |told: &Vec<(u64, Instant)>| told.iter().any(|(known, _)| *known == last);
                let expected = told.iter().position(has).map(|number| number.to_string());
                assert_eq!(find(&book, &format!("10.0.0.{last}:80")), expected, "seed {seed}");
            }
        }
    }
}

/// Says another address each time, or nothing that helps.
struct Moving {
    asked: Mutex<Vec<tokio::time::Instant>>,
    fails: bool,
}

impl Source for Moving {
    fn addresses(&self, _: Arc<str>) -> Asking<Answer> {
        let mut asked = self.asked.lock().unwrap();
        asked.push(tokio::time::Instant::now());
        let last = asked.len();
        let found = if self.fails { Err(ResolveError::NoName) } else { answer(&[&format!("10.0.0.{last}")]) };
        Box::pin(std::future::ready(found))
    }

    fn services(&self, _: Arc<str>) -> Asking<super::super::services::Services> {
        Box::pin(std::future::ready(Err(ResolveError::NoName)))
    }
}

async fn seconds_of_asking(fails: bool, seconds: u64) -> (Vec<u64>, AddressBook) {
    let (book, start) = (AddressBook::default(), tokio::time::Instant::now());
    let source = Arc::new(Moving { asked: Mutex::default(), fails });
    let (followed, _) = book.open("db.internal", 5432, &policy("shop/db"));
    let asked: Arc<dyn Source> = Arc::clone(&source) as _;
    let follows = book.follow(asked, Arc::downgrade(&followed));
    let _ = tokio::time::timeout(Duration::from_millis(seconds * 1000 + 500), follows).await;
    let asked = source.asked.lock().unwrap().iter().map(|at| at.duration_since(start).as_secs()).collect();
    (asked, book)
}

#[tokio::test(start_paused = true)]
async fn a_name_is_followed_from_one_address_to_the_next() {
    let (asked, book) = seconds_of_asking(false, 130).await;
    assert_eq!(asked, [0, 60, 120]);
    for address in ["10.0.0.1:5432", "10.0.0.2:5432", "10.0.0.3:5432"] {
        assert_eq!(find(&book, address).as_deref(), Some("db.internal"), "{address}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_does_not_exist_is_asked_for_ever_more_rarely() {
    let (asked, _) = seconds_of_asking(true, 200).await;
    assert_eq!(asked, [0, 1, 3, 7, 15, 31, 63, 123, 183]);
}

#[tokio::test(start_paused = true)]
async fn following_ends_with_the_last_who_holds_the_name() {
    let book = AddressBook::default();
    let source: Arc<dyn Source> = Arc::new(Moving { asked: Mutex::default(), fails: false });
    let (followed, _) = book.open("db.internal", 5432, &policy("shop/db"));
    let follows = book.follow(source, Arc::downgrade(&followed));
    tokio::time::timeout(Duration::from_secs(600), async {
        tokio::join!(follows, async move {
            tokio::time::sleep(Duration::from_secs(30)).await;
            drop(followed);
        })
    })
    .await
    .expect("ends at the next look-up");
    assert_eq!(find(&book, "10.0.0.1:5432"), None);
}
