use std::collections::BTreeSet;

use plimsoll_resilience::Random;

use super::*;

const HOLDS: Duration = Duration::from_secs(30);

fn found() -> Found {
    Answer::new([[10, 0, 0, 1].into()], HOLDS)
}

fn failure() -> Found {
    Err(ResolveError::NoAnswer("a test".into()))
}

fn wait(names: &mut Names, name: &str, now: Instant) -> watch::Receiver<Option<Found>> {
    match names.ask(name, now) {
        Asked::Waits { told, .. } => told,
        Asked::Answered(found) => panic!("{name}: {found:?}"),
    }
}

/// Asks for `name`, has it looked up in `takes`, and returns when that was.
fn look_up(names: &mut Names, name: &str, now: Instant, takes: Duration) -> Instant {
    let _asker = wait(names, name, now);
    assert_eq!(names.poll_next(now).as_deref(), Some(name));
    names.on_answer(name, found(), now + takes);
    now + takes
}

fn begin_all(names: &mut Names, now: Instant) -> usize {
    std::iter::from_fn(|| names.poll_next(now)).count()
}

#[test]
fn answers_hold_for_their_time_and_failures_for_a_second() {
    let (mut names, now) = (Names::default(), Instant::now());
    for (found, holds) in [(found(), HOLDS), (failure(), FAILURE_HOLDS)] {
        let name = format!("{}.example", holds.as_secs());
        let asker = wait(&mut names, &name, now);
        assert_eq!(names.poll_next(now).as_deref(), Some(&*name));
        names.on_answer(&name, found.clone(), now);
        assert_eq!(asker.borrow().as_ref().map(Result::is_ok), Some(found.is_ok()));
        let last = now + holds - Duration::from_millis(1);
        assert!(matches!(names.ask(&name, last), Asked::Answered(held) if held.is_ok() == found.is_ok()));
        assert!(matches!(names.ask(&name, now + holds), Asked::Waits { .. }));
    }
}

#[test]
fn a_dead_name_asked_for_all_the_time_costs_one_look_up_a_second() {
    let (mut names, start) = (Names::default(), Instant::now());
    let mut look_ups = 0;
    for ask in 0..500 {
        let now = start + Duration::from_millis(20) * ask;
        let _asker = names.ask("gone.example", now);
        while let Some(name) = names.poll_next(now) {
            look_ups += 1;
            names.on_answer(&name, failure(), now);
        }
    }
    assert_eq!(look_ups, 10, "500 asks in ten seconds");
}

#[test]
fn a_look_up_that_nobody_waits_for_is_not_begun() {
    let (mut names, now) = (Names::default(), Instant::now());
    drop(wait(&mut names, "left.example", now));
    let _asker = wait(&mut names, "stays.example", now);
    drop(wait(&mut names, "stays.example", now));
    assert_eq!(names.poll_next(now).as_deref(), Some("stays.example"));
    assert_eq!(names.poll_next(now), None);
    assert_eq!(names.flights.len(), 1);
}

#[test]
fn who_asks_while_a_name_is_looked_up_for_nobody_gets_that_answer() {
    let (mut names, now) = (Names::default(), Instant::now());
    let first = wait(&mut names, "a.example", now);
    assert!(names.poll_next(now).is_some());
    drop(first);
    let second = wait(&mut names, "A.Example", now);
    assert_eq!(names.poll_next(now), None);
    names.on_answer("a.example", found(), now);
    assert!(second.borrow().is_some());
}

#[test]
fn past_the_bound_a_name_is_refused_unless_others_wait_no_more() {
    let (mut names, now) = (Names::default(), Instant::now());
    let mut askers: Vec<_> = (0..MOST).map(|number| wait(&mut names, &number.to_string(), now)).collect();
    assert_eq!(begin_all(&mut names, now), Lane::New.room());
    let Asked::Answered(Err(error)) = names.ask("one.more", now) else { panic!("taken") };
    let words = "256 names are being resolved already: the name server is slow, or too many names are asked for";
    assert_eq!(error.to_string(), words);
    assert!(matches!(names.ask("0", now), Asked::Waits { .. }), "a name among them is no other name");
    askers.pop();
    assert!(matches!(names.ask("one.more", now), Asked::Waits { .. }));
    assert!(matches!(names.ask(&"a".repeat(LONGEST + 1), now), Asked::Answered(Err(ResolveError::TooLong))));
}

#[test]
fn names_that_hang_leave_places_to_names_that_do_not() {
    let (mut names, start) = (Names::default(), Instant::now());
    let slow: Vec<String> = (0..40).map(|number| format!("slow-{number}")).collect();
    let new: Vec<String> = (0..40).map(|number| format!("new-{number}")).collect();
    let prompt: Vec<String> = (0..40).map(|number| format!("prompt-{number}")).collect();
    let mut now = slow.iter().fold(start, |now, name| look_up(&mut names, name, now, PROMPT * 2));
    now = prompt.iter().fold(now, |now, name| look_up(&mut names, name, now, PROMPT));
    now += HOLDS;
    let mut askers = Vec::new();
    for (asked, begun) in [(&slow, 8), (&new, 16), (&prompt, 8)] {
        askers.extend(asked.iter().map(|name| wait(&mut names, name, now)));
        assert_eq!(begin_all(&mut names, now), begun, "{}", asked[0]);
    }
    names.on_answer("slow-0", failure(), now);
    assert_eq!(names.poll_next(now).as_deref(), Some("prompt-8"), "the quickest come first");
    names.on_answer("prompt-0", found(), now);
    assert_eq!(names.poll_next(now).as_deref(), Some("prompt-9"));
}

#[test]
fn the_answers_that_ended_first_make_room_for_new_ones() {
    let (mut names, now) = (Names::default(), Instant::now());
    for number in 0..=MOST_HELD {
        look_up(&mut names, &number.to_string(), now + Duration::from_micros(number as u64), Duration::ZERO);
    }
    assert_eq!(names.held.len(), MOST_HELD);
    let later = now + HOLDS / 2;
    assert!(names.recall("0", later).is_none() && names.recall("1", later).is_some());
}

#[test]
fn what_was_true_within_the_hour_is_told_while_no_name_server_answers() {
    let (mut names, start) = (Names::default(), Instant::now());
    let over = look_up(&mut names, "a.example", start, Duration::ZERO) + HOLDS;
    let Asked::Waits { before, told } = names.ask("a.example", over) else { panic!("its time is over") };
    assert_eq!(before, found().ok());
    assert!(names.poll_next(over).is_some());
    names.on_answer("a.example", failure(), over);
    assert!(told.borrow().as_ref().unwrap().is_ok(), "everyone is told what was known");
    assert!(matches!(names.ask("a.example", over), Asked::Answered(Ok(_))), "and for a second nobody else is asked");
    let Asked::Waits { before, .. } = names.ask("a.example", over + FAILURE_HOLDS) else { panic!("a second is over") };
    assert!(before.is_some());

    let late = over + OUTLIVES;
    let Asked::Waits { before, told: _told } = names.ask("a.example", late) else { panic!("nothing is held") };
    assert!(before.is_none());
    assert!(names.poll_next(late).is_some());
    names.on_answer("a.example", failure(), late);
    assert!(matches!(names.ask("a.example", late), Asked::Answered(Err(_))), "an hour is enough");
}

#[test]
fn an_answer_is_recalled_for_an_hour_beyond_its_time() {
    let (mut names, start) = (Names::default(), Instant::now());
    let got = look_up(&mut names, "a.example", start, Duration::ZERO);
    let answer = found().unwrap();
    let recalled = |fresh| Some(Recalled { answer: answer.clone(), fresh });
    assert_eq!(names.recall("A.example", got), recalled(true));
    assert_eq!(names.recall("a.example", got + HOLDS), recalled(false));
    assert_eq!(names.recall("a.example", got + HOLDS + OUTLIVES), None);
    assert_eq!(names.recall("b.example", got), None);
}

#[test]
fn that_there_is_no_such_name_is_believed() {
    let (mut names, start) = (Names::default(), Instant::now());
    let over = look_up(&mut names, "a.example", start, Duration::ZERO) + HOLDS;
    let _asker = wait(&mut names, "a.example", over);
    assert!(names.poll_next(over).is_some());
    names.on_answer("a.example", Err(ResolveError::NoName), over);
    assert!(matches!(names.ask("a.example", over), Asked::Answered(Err(ResolveError::NoName))));
    assert!(matches!(names.ask("a.example", over + FAILURE_HOLDS), Asked::Waits { before: None, .. }));
}

#[test]
fn a_full_house_still_tells_what_was_known() {
    let (mut names, start) = (Names::default(), Instant::now());
    let over = look_up(&mut names, "a.example", start, Duration::ZERO) + HOLDS;
    let _askers: Vec<_> = (0..MOST).map(|number| wait(&mut names, &number.to_string(), over)).collect();
    assert!(matches!(names.ask("a.example", over), Asked::Answered(Ok(_))));
}

/// Against the rules, told in the plainest way: which names run, and who waits for which.
#[test]
fn any_order_of_events_keeps_the_rules() {
    for seed in 0..40 {
        let (mut random, mut names, mut now) = (Random::new(seed), Names::default(), Instant::now());
        let mut running: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut askers: Vec<(String, watch::Receiver<Option<Found>>)> = Vec::new();
        let mut below = |bound: usize| (random.next_u64() % bound as u64) as usize;
        for _ in 0..1000 {
            now += Duration::from_millis(below(20) as u64);
            match below(8) {
                0 if !askers.is_empty() => drop(askers.swap_remove(below(askers.len()))),
                1 | 2 if !running.is_empty() => {
                    let name = running.iter().nth(below(running.len())).cloned().unwrap();
                    running.remove(&name);
                    names.on_answer(&name, if below(2) == 0 { found() } else { failure() }, now);
                    let (told, wait) = askers.drain(..).partition(|(asker, _)| **asker == *name);
                    askers = wait;
                    let told: Vec<_> = told;
                    assert!(told.iter().all(|(_, told)| told.borrow().is_some()), "seed {seed}: everyone is told");
                }
                _ => {
                    let name = format!("name-{}", below(300));
                    if let Asked::Waits { told, .. } = names.ask(&name, now) {
                        askers.push((name, told));
                    }
                }
            }
            if let Some(next) = names.poll_next(now) {
                assert!(askers.iter().any(|(name, _)| **name == *next), "seed {seed}: someone waits for {next}");
                assert!(running.insert(next), "seed {seed}: looked up twice at a time");
            }
            assert_eq!(names.poll_next(now), None, "seed {seed}: an event gives one turn");
            assert_eq!(names.running.iter().sum::<usize>(), running.len(), "seed {seed}");
            assert!(names.flights.len() <= MOST && running.len() <= 32, "seed {seed}");
            assert!(names.running[1] + names.running[2] <= 24 && names.running[2] <= 8, "seed {seed}");
            assert!(askers.iter().all(|(_, told)| told.borrow().is_none()), "seed {seed}: told early");
        }
        while let Some(name) = running.iter().next().cloned() {
            running.remove(&name);
            names.on_answer(&name, found(), now);
            running.extend(names.poll_next(now));
        }
        assert!(askers.iter().all(|(_, told)| told.borrow().is_some()), "seed {seed}: someone waits for ever");
        assert!(names.flights.is_empty() && names.running == [0; LANES], "seed {seed}");
    }
}
