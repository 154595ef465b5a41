//! A swap of policy, row by row of design.md section 5; the calls that go on under it are those of `flight`.

use super::*;
use crate::breaker::Asker;
use crate::breaker::{self, Forced, Scope, Settings, State, WindowKind};
use crate::bulkhead;
use crate::mode::{Mode, Moded};
use crate::outcome::Ended;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * 1_000_000)
}

fn bulkhead(permits: u32, queued: u32) -> Option<Moded<bulkhead::Config>> {
    Some(Moded::enforced(bulkhead::Config::new(permits, queued, Duration::from_secs(60)).unwrap()))
}

fn settings() -> Settings {
    Settings { window: WindowKind::Count(10), minimum_calls: 2, ..Settings::default() }
}

fn breaker(settings: Settings) -> Option<Moded<breaker::Config>> {
    Some(Moded::enforced(breaker::Config::new(settings).unwrap()))
}

fn config() -> ProtectionConfig {
    ProtectionConfig { bulkhead: bulkhead(2, 2), breaker: breaker(settings()), ..ProtectionConfig::default() }
}

fn route(name: &str, permits: u32) -> RouteProtection {
    RouteProtection { name: name.into(), bulkhead: bulkhead(permits, 0) }
}

const FIRST: Wish = Wish { asker: Asker::First, latest: Timestamp::MAX };

fn start(protection: &mut Protection, id: u32) -> (Holdings, Admitted) {
    let mut holdings = protection.enter(RouteId(id));
    let admitted = protection.admit(&mut holdings, FIRST, at(0));
    (holdings, admitted)
}

fn admitted(protection: &mut Protection, id: u32) -> Option<Holdings> {
    match start(protection, id) {
        (holdings, Admitted::Yes) => Some(holdings),
        (holdings, Admitted::Refused(_)) => {
            protection.exit(&holdings);
            None
        }
        (_, Admitted::Queued { .. }) => panic!("queued"),
    }
}

fn end(protection: &mut Protection, mut holdings: Holdings, ended: Ended) {
    protection.finish(&mut holdings, ended, Duration::from_millis(1), at(0));
    protection.exit(&holdings);
}

fn fail(protection: &mut Protection, id: u32) {
    let holdings = admitted(protection, id).expect("admitted");
    end(protection, holdings, Ended::Transport);
}

fn states(protection: &Protection) -> Vec<(BreakerScope, State)> {
    protection.view(at(0)).breakers.iter().map(|view| (view.scope, view.state)).collect()
}

#[test]
fn nothing_changed_is_the_same_state() {
    let mut protection = Protection::new(&config(), 1, at(0));
    let held = admitted(&mut protection, 0).unwrap();
    fail(&mut protection, 0);
    protection.reconfigure(&config(), at(0));
    let view = protection.view(at(0));
    assert_eq!((view.bulkheads[0].in_flight, view.breakers[0].counts.failed), (1, 1));
    end(&mut protection, held, Ended::Transport);
    assert_eq!(states(&protection), [(BreakerScope::Dependency, State::Open)]);
}

#[test]
fn permits_above_a_lower_limit_are_paid_back() {
    let mut protection = Protection::new(&config(), 1, at(0));
    let first = admitted(&mut protection, 0).unwrap();
    let second = admitted(&mut protection, 0).unwrap();
    protection.reconfigure(&ProtectionConfig { bulkhead: bulkhead(1, 0), ..config() }, at(0));
    end(&mut protection, first, Ended::Whole);
    assert!(admitted(&mut protection, 0).is_none());
    end(&mut protection, second, Ended::Whole);
    let third = admitted(&mut protection, 0).unwrap();
    end(&mut protection, third, Ended::Whole);
}

#[test]
fn a_block_that_is_removed_and_put_back_counts_what_is_out() {
    let mut protection = Protection::new(&config(), 1, at(0));
    let held = [admitted(&mut protection, 0).unwrap(), admitted(&mut protection, 0).unwrap()];
    protection.reconfigure(&ProtectionConfig::default(), at(0));
    assert!(protection.view(at(0)).breakers.is_empty() && protection.view(at(0)).bulkheads.is_empty());
    let unprotected = admitted(&mut protection, 0).expect("no block, no limit");
    protection.reconfigure(&ProtectionConfig { bulkhead: bulkhead(2, 0), ..config() }, at(0));
    assert!(admitted(&mut protection, 0).is_none(), "both permits are still out");
    for holdings in held {
        end(&mut protection, holdings, Ended::Transport);
    }
    end(&mut protection, unprotected, Ended::Transport);
    assert_eq!(states(&protection), [(BreakerScope::Dependency, State::Open)], "and both tickets count");

    // Once the last ticket is back the state is gone, though nobody has looked.
    protection.reconfigure(&config(), at(0));
    let view = protection.view(at(0));
    assert_eq!((view.breakers[0].state, view.breakers[0].counts.calls), (State::Open, 2));
    protection.force(None, Forced::Closed, at(1), at(0)).unwrap();
    protection.force(None, Forced::Auto, at(1), at(0)).unwrap();
    fail(&mut protection, 0);
    let held = admitted(&mut protection, 0).unwrap();
    protection.reconfigure(&ProtectionConfig::default(), at(0));
    end(&mut protection, held, Ended::Whole);
    protection.reconfigure(&config(), at(0));
    assert_eq!(protection.view(at(0)).breakers[0].counts.calls, 0);

    // With nothing out the state goes with the block.
    protection.reconfigure(&ProtectionConfig::default(), at(0));
    protection.reconfigure(&config(), at(0));
    assert_eq!(states(&protection), [(BreakerScope::Dependency, State::Closed)]);
}

#[test]
fn the_mode_takes_the_state_along() {
    let mut protection = Protection::new(&config(), 1, at(0));
    fail(&mut protection, 0);
    fail(&mut protection, 0);
    let with =
        |mode: Mode| ProtectionConfig { breaker: config().breaker.map(|block| Moded { mode, ..block }), ..config() };
    for (mode, passes) in [(Mode::Observe, true), (Mode::Disabled, true), (Mode::Enforce, false)] {
        protection.reconfigure(&with(mode), at(0));
        let holdings = admitted(&mut protection, 0);
        assert_eq!(holdings.is_some(), passes, "{mode:?}");
        if let Some(holdings) = holdings {
            end(&mut protection, holdings, Ended::Whole);
        }
    }
}

#[test]
fn who_waits_is_let_go_when_the_block_no_longer_makes_anyone_wait() {
    for (mode, in_flight) in [(Mode::Observe, 1), (Mode::Disabled, 1)] {
        let config = ProtectionConfig { bulkhead: bulkhead(1, 2), ..ProtectionConfig::default() };
        let mut protection = Protection::new(&config, 1, at(0));
        let held = admitted(&mut protection, 0).unwrap();
        let (mut waits, queued) = start(&mut protection, 0);
        assert!(matches!(queued, Admitted::Queued { .. }));
        let bulkhead = config.bulkhead.map(|block| Moded { mode, ..block });
        protection.reconfigure(&ProtectionConfig { bulkhead, ..config.clone() }, at(0));
        assert_eq!(protection.poll_woken(), waits.waiter());
        assert!(matches!(protection.resume(&mut waits, FIRST, at(0)), Admitted::Yes));
        // Put back in force while both run: nobody else passes before both have ended or been counted.
        protection.reconfigure(&config, at(0));
        assert_eq!(protection.view(at(0)).bulkheads[0].in_flight, in_flight);
        end(&mut protection, held, Ended::Whole);
        end(&mut protection, waits, Ended::Whole);
        let view = &protection.view(at(0)).bulkheads[0];
        assert_eq!((view.in_flight, view.queued), (0, 0));
    }
}

#[test]
fn routes_are_found_again_by_name_whatever_their_order() {
    let config = ProtectionConfig { routes: vec![route("charge", 1), route("refund", 1)], ..config() };
    let mut protection = Protection::new(&config, 1, at(0));
    let charge = admitted(&mut protection, 1).unwrap();
    let swapped = ProtectionConfig { routes: vec![route("refund", 1), route("charge", 1)], ..config.clone() };
    protection.reconfigure(&swapped, at(0));
    assert!(admitted(&mut protection, 1).is_none(), "charge is the second one now, and full");
    let refund = admitted(&mut protection, 2).unwrap();

    // Gone and back while its call runs; another route in its place meanwhile.
    protection.reconfigure(&ProtectionConfig { routes: vec![route("other", 1)], ..config.clone() }, at(0));
    assert_eq!(protection.view(at(0)).bulkheads.len(), 2, "the dependency's, and that of `other`");
    protection.reconfigure(&config, at(0));
    assert!(admitted(&mut protection, 1).is_none());
    end(&mut protection, refund, Ended::Whole);
    end(&mut protection, charge, Ended::Whole);
    let charge = admitted(&mut protection, 1).unwrap();
    end(&mut protection, charge, Ended::Whole);

    // A route that nobody knows counts among the rest.
    let rest = admitted(&mut protection, 77).unwrap();
    end(&mut protection, rest, Ended::Whole);
}

#[test]
fn the_number_of_a_route_never_becomes_another_ones() {
    let of = |names: &[&str]| ProtectionConfig {
        breaker: breaker(Settings { scope: Scope::Route, ..settings() }),
        routes: names.iter().map(|name| route(name, 1)).collect(),
        ..config()
    };
    let mut protection = Protection::new(&of(&["charge"]), 1, at(0));
    let charge = protection.route_id("charge");
    // The next generation is prepared, but calls of the last one still begin, before it comes into force and after.
    let refund = protection.route_id("refund");
    assert_eq!((charge, refund), (RouteId(1), RouteId(2)));
    let held = admitted(&mut protection, charge.0).unwrap();
    protection.reconfigure(&of(&["refund", "charge"]), at(0));
    assert!(admitted(&mut protection, charge.0).is_none(), "its only permit is out");
    fail(&mut protection, refund.0);
    fail(&mut protection, refund.0);
    end(&mut protection, held, Ended::Whole);
    fail(&mut protection, charge.0);
    assert_eq!(protection.view(at(0)).breakers.len(), 3);
    assert_eq!(protection.force(Some(charge), Forced::Closed, at(9), at(0)), Ok(()));

    // A removed route cannot be forced, and what comes in its stead is another one.
    for names in [&["charge"][..], &["charge", "void"], &["charge", "other"]] {
        protection.reconfigure(&of(names), at(0));
        assert_eq!(protection.force(Some(refund), Forced::Open, at(9), at(0)), Err(ForceError::NoSuchRoute));
    }
    assert_eq!((protection.route_id("charge"), protection.route_id("other")), (charge, RouteId(4)));
    assert_eq!(protection.route_id("refund"), RouteId(5), "nobody knew it any more");
    // Whatever has come and gone, the slots of those that are gone are used again.
    for n in 0..100 {
        protection.reconfigure(&of(&["charge", &format!("route-{n}")]), at(10));
    }
    assert!(protection.routes.iter().count() <= 5, "{:?}", protection.routes);
}

#[test]
fn a_new_route_takes_nothing_from_one_that_stays() {
    let by_route = Settings { scope: Scope::Route, ..settings() };
    let config = ProtectionConfig { breaker: breaker(by_route), routes: vec![route("charge", 9)], ..config() };
    let mut protection = Protection::new(&config, 1, at(0));
    fail(&mut protection, 1);
    fail(&mut protection, 1);
    let longer = ProtectionConfig { routes: vec![route("refund", 9), route("charge", 9)], ..config.clone() };
    protection.reconfigure(&longer, at(0));
    let charge = |protection: &Protection| {
        let view = protection.view(at(0));
        let charge = view.breakers.iter().find(|view| view.route.as_deref() == Some("charge")).unwrap();
        (charge.state, charge.counts.failed)
    };
    assert_eq!(charge(&protection), (State::Open, 2));

    // An operator's word stays until its time is over, with the route gone meanwhile and others come and gone.
    protection.force(Some(RouteId(1)), Forced::Open, at(60_000), at(0)).unwrap();
    for name in ["void", "refund", "void"] {
        protection.reconfigure(&ProtectionConfig { routes: vec![route(name, 9)], ..config.clone() }, at(0));
    }
    protection.reconfigure(&longer, at(0));
    assert_eq!(charge(&protection).0, State::ForcedOpen);
}

#[test]
fn breakers_by_route_are_apart_and_the_scope_is_part_of_the_key() {
    let by_route = Settings { scope: Scope::Route, ..settings() };
    let config = ProtectionConfig { breaker: breaker(by_route), routes: vec![route("charge", 9)], ..config() };
    let mut protection = Protection::new(&config, 1, at(0));
    fail(&mut protection, 1);
    fail(&mut protection, 1);
    let (rest, charge) = (BreakerScope::Route(RouteId(0)), BreakerScope::Route(RouteId(1)));
    assert_eq!(states(&protection), [(rest, State::Closed), (charge, State::Open)]);
    assert_eq!(protection.view(at(0)).breakers[1].route.as_deref(), Some("charge"));
    let running = admitted(&mut protection, 0).unwrap();
    assert!(admitted(&mut protection, 1).is_none());
    // Another scope is another breaker; the old one of the rest lives while its ticket is out.
    protection.reconfigure(&ProtectionConfig { breaker: breaker(settings()), ..config.clone() }, at(0));
    assert_eq!(states(&protection), [(BreakerScope::Dependency, State::Closed)]);
    end(&mut protection, running, Ended::Transport);
    assert_eq!(protection.view(at(0)).breakers[0].counts.calls, 0);
}

#[test]
fn a_forced_state_stays_until_its_time_is_over() {
    let mut protection = Protection::new(&config(), 1, at(0));
    protection.force(None, Forced::Open, at(60_000), at(0)).unwrap();
    protection.reconfigure(&ProtectionConfig::default(), at(1));
    assert_eq!(protection.force(None, Forced::Open, at(1), at(1)), Err(ForceError::NoBreaker));
    protection.reconfigure(&config(), at(2));
    let view = &protection.view(at(2)).breakers[0];
    assert_eq!((view.state, view.forced_until), (State::ForcedOpen, Some(at(60_000))));
    assert_eq!(protection.view(at(60_000)).breakers[0].state, State::HalfOpen);

    assert_eq!(protection.force(Some(RouteId(1)), Forced::Open, at(9), at(0)), Err(ForceError::NotByRoute));
    let by_route = Settings { scope: Scope::Route, ..settings() };
    protection.reconfigure(&ProtectionConfig { breaker: breaker(by_route), ..config() }, at(2));
    assert_eq!(protection.force(Some(RouteId(7)), Forced::Open, at(9), at(0)), Err(ForceError::NoSuchRoute));
    protection.force(Some(RouteId(0)), Forced::Closed, at(9), at(0)).unwrap();

    // By endpoint: also those that come later.
    let by_endpoint = Settings { scope: Scope::Endpoint, ..settings() };
    protection.reconfigure(&ProtectionConfig { breaker: breaker(by_endpoint), ..config() }, at(2));
    protection.force(None, Forced::Open, at(60_000), at(2)).unwrap();
    assert!(!protection.endpoint_allows(crate::EndpointKey(9), Asker::First, at(3)));
    protection.force(None, Forced::Auto, at(0), at(3)).unwrap();
    assert!(protection.endpoint_allows(crate::EndpointKey(8), Asker::First, at(3)));
}

#[test]
fn what_a_breaker_does_is_told_with_its_numbers() {
    let mut protection = Protection::new(&config(), 1, at(0));
    fail(&mut protection, 0);
    assert_eq!(protection.poll_event(), None);
    fail(&mut protection, 0);
    let Some(Event::Breaker { scope, transition }) = protection.poll_event() else { panic!("told") };
    assert_eq!((scope, transition.from, transition.to), (BreakerScope::Dependency, State::Closed, State::Open));
    assert_eq!((transition.counts.failed, transition.retry_at), (2, Some(at(10_000))));
    assert_eq!(protection.poll_event(), None);
}
