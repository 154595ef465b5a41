//! Every state and every input, as a table that a person has read.

use std::fmt::Write;

use super::*;
use crate::breaker::SlowTurn;

type State = (&'static str, fn(&mut World));
type Input = (&'static str, fn(&mut World) -> Vec<Action>);

const STATES: [State; 14] = [
    ("Queued", |w| {
        w.start("other", |_| {});
        w.start("a", |_| {});
    }),
    ("BackingOff", |w| {
        sent(w, false);
        w.head("a", unavailable());
    }),
    ("Picking", |w| {
        w.start("a", |_| {});
    }),
    ("Picking, waits for a socket", |w| {
        w.start("a", |_| {});
        w.waits_for_socket("a");
    }),
    ("Connecting", |w| {
        w.start("a", |_| {});
        w.picked("a");
    }),
    ("Connected", |w| connected(w, false)),
    ("Sent", |w| sent(w, false)),
    ("Answering", |w| {
        sent(w, false);
        w.head("a", ok());
    }),
    ("Answering, a stream", |w| {
        sent(w, false);
        w.head("a", Head { streaming: true, ..ok() });
    }),
    ("opaque, Connected", |w| connected(w, true)),
    ("opaque, Sent: the first turn", |w| {
        connected(w, true);
        w.tell("a", |flight, _, now| flight.handle_turn_begins(now));
    }),
    ("opaque, Answering", |w| {
        connected(w, true);
        w.tell("a", Flight::handle_turn_ends);
    }),
    ("opaque, Answering: in a turn", |w| {
        connected(w, true);
        w.tell("a", Flight::handle_turn_ends);
        w.tell("a", |flight, _, now| flight.handle_turn_begins(now));
    }),
    ("Over", |w| {
        w.start("a", |_| {});
        w.gone("a");
    }),
];

const INPUTS: [Input; 22] = [
    ("woken", |w| w.tell("a", Flight::handle_woken)),
    ("picked", |w| w.picked("a")),
    ("no socket", |w| w.waits_for_socket("a")),
    ("no endpoint", |w| w.tell("a", |flight, protection, now| flight.handle_no_endpoint(false, protection, now))),
    ("the shell refuses", |w| {
        let refused = Rejected::new(Reason::Loop, 0, 0);
        w.tell("a", |flight, protection, now| flight.handle_refused(refused, Block::Target, protection, now))
    }),
    ("connected", |w| w.tell("a", |flight, _, now| flight.handle_connected(now))),
    ("sent", |w| w.tell("a", |flight, _, now| flight.handle_sent(now))),
    ("head", |w| w.head("a", ok())),
    ("head 503", |w| w.head("a", unavailable())),
    ("head 500, no retry", |w| w.head("a", Head { failure: true, status: 500, ..ok() })),
    ("head, pushback", |w| w.head("a", Head { pushback: true, status: 429, ..ok() })),
    ("status: failure", |w| w.status("a", Head { failure: true, retry_code: true, ..ok() })),
    ("a stream begins", |w| w.tell("a", Flight::handle_stream_begins)),
    ("a turn begins", |w| w.tell("a", |flight, _, now| flight.handle_turn_begins(now))),
    ("a turn ends", |w| w.tell("a", Flight::handle_turn_ends)),
    ("ended", |w| w.ended("a")),
    ("no connection", |w| w.failed("a", Failure::Connect)),
    ("not sent", |w| w.failed("a", Failure::NotSent)),
    ("not begun", |w| w.failed("a", Failure::RefusedStream)),
    ("reset", |w| w.failed("a", Failure::Reset)),
    ("next clock", |w| match w.flight("a").next_timeout() {
        Some(_) => w.time_out("a"),
        None => w.tell("a", Flight::handle_timeout),
    }),
    ("caller gone", |w| w.gone("a")),
];

fn connected(world: &mut World, opaque: bool) {
    world.start("a", |call| call.opaque = opaque);
    world.tell("a", |flight, protection, now| {
        flight.handle_picked(EndpointKey(1), protection, now);
        flight.handle_connected(now);
    });
}

fn sent(world: &mut World, opaque: bool) {
    connected(world, opaque);
    world.tell("a", |flight, _, now| flight.handle_sent(now));
}

/// Slow after 600 ms, one attempt 2 s, the request 5 s, a place in the queue for 1 s; a retry in 100 ms.
fn world() -> World {
    let config = ProtectionConfig {
        bulkhead: bulkhead(1, 1, 1000),
        breaker: breaker_with(|settings| settings.slow_turn = SlowTurn::Enforce),
        ..ProtectionConfig::default()
    };
    let rules = rules_with(|rules| {
        rules.timeouts.attempt = Some(ms(2000));
        rules.timeouts.request = Some(ms(5000));
        rules.slow_call_threshold = Some(ms(600));
    });
    World::new(&config, rules)
}

fn word(action: Action) -> String {
    match action {
        Action::Attempt(attempt) => format!("Attempt {}", attempt.number),
        Action::Reject(rejection) => format!("Reject {}", rejection.reason),
        Action::Cut(reason) => format!("Cut {reason}"),
        Action::DeliverKept { .. } => "DeliverKept".into(),
        other => format!("{other:?}"),
    }
}

/// What follows, where the call then stands, and what the breaker's window holds: calls, failed, slow.
fn cell(world: &World, actions: Vec<Action>) -> String {
    let flight = world.flight("a");
    let stream = if flight.facts.streaming && !flight.facts.opaque { ", a stream" } else { "" };
    let counts = world.protection.view(at(0)).breakers[0].counts;
    let actions: Vec<String> = actions.into_iter().map(word).collect();
    let actions = if actions.is_empty() { "-".into() } else { actions.join(", ") };
    format!("{actions} -> {:?}{stream}; window {}/{}/{}", flight.phase, counts.calls, counts.failed, counts.slow)
}

#[test]
fn every_state_and_every_input() {
    let mut table = String::new();
    for (name, reach) in STATES {
        let mut before = world();
        reach(&mut before);
        let before = cell(&before, Vec::new());
        writeln!(table, "{name}: {before}").unwrap();
        for (input, happen) in INPUTS {
            let mut world = world();
            reach(&mut world);
            let actions = happen(&mut world);
            let after = cell(&world, actions);
            // What changes nothing is not written down.
            if after != before {
                writeln!(table, "  {input:18} {after}").unwrap();
            }
        }
    }
    insta::assert_snapshot!(table);
}
