//! Any inputs in any order, late timers and swaps of policy: the never-conditions of style.md hold after each step.

use proptest::prelude::*;

use super::*;
use crate::breaker::{Forced, Scope, State};
use crate::mode::Mode;
use crate::rules::Methods;

const BUDGET_PERCENT: u64 = 25;
const BUDGET_FLOOR: u64 = 1;
/// 32 buckets of 100 ms.
const INTERVAL: u64 = 3200;

#[derive(Clone, Copy, Debug)]
enum Op {
    Start { safety: u8, route: u32, deadline: Option<u64>, kind: u8 },
    Feed { who: usize, input: Input },
    Forward(u64),
    Back(u64),
    Resize { permits: u32, queued: u32 },
    Swap(u8),
    Force(u8),
}

#[derive(Clone, Copy, Debug)]
enum Input {
    Picked(u64),
    SocketWait(u64),
    NoEndpoint,
    Refused,
    Connected,
    Sent,
    Head(u8),
    Status(u8),
    StreamBegins,
    TurnBegins,
    TurnEnds,
    Ended,
    Failed(u8),
    Gone,
    Timeout,
    Woken,
    CallerWait,
    CallerReady,
    Progress,
    Unrepeatable,
    /// What the shell would do next in an ordinary call.
    Proceed(u8),
}

fn op(swaps: bool) -> impl Strategy<Value = Op> {
    let input = prop_oneof![
        30 => any::<u8>().prop_map(Input::Proceed),
        2 => (0u64..3).prop_map(Input::Picked),
        4 => (0u64..3).prop_map(Input::SocketWait),
        1 => Just(Input::NoEndpoint),
        1 => Just(Input::Refused),
        1 => Just(Input::Connected),
        1 => Just(Input::Sent),
        2 => any::<u8>().prop_map(Input::Head),
        1 => any::<u8>().prop_map(Input::Status),
        1 => Just(Input::StreamBegins),
        2 => Just(Input::TurnBegins),
        2 => Just(Input::TurnEnds),
        1 => Just(Input::Ended),
        3 => any::<u8>().prop_map(Input::Failed),
        2 => Just(Input::Gone),
        8 => Just(Input::Timeout),
        1 => Just(Input::Woken),
        1 => Just(Input::CallerWait),
        1 => Just(Input::CallerReady),
        1 => Just(Input::Progress),
        1 => Just(Input::Unrepeatable),
    ];
    let swap = move |choice| if swaps { Op::Swap(choice) } else { Op::Forward(choice.into()) };
    prop_oneof![
        12 => (0u8..4, 0u32..4, prop::option::weighted(0.2, 1u64..1500), 0u8..10)
            .prop_map(|(safety, route, deadline, kind)| Op::Start { safety, route, deadline, kind }),
        40 => (any::<usize>(), input).prop_map(|(who, input)| Op::Feed { who, input }),
        8 => (0u64..300).prop_map(Op::Forward),
        1 => (0u64..20_000).prop_map(Op::Forward),
        1 => (0u64..20).prop_map(Op::Back),
        1 => (1u32..6, 0u32..4).prop_map(|(permits, queued)| Op::Resize { permits, queued }),
        1 => any::<u8>().prop_map(swap),
        1 => any::<u8>().prop_map(Op::Force),
    ]
}

/// One call as seen from outside.
struct Watched {
    flight: Flight,
    call: Call,
    /// How it ended, as the caller saw it; one at most.
    answers: u32,
    done: u32,
    sent_once: bool,
    decided: Option<Decided>,
}

/// A retry that is paid for and not made yet.
#[derive(Clone, Copy)]
struct Decided {
    bucket: u64,
    attempts: u32,
}

struct Chaos {
    protection: Protection,
    config: ProtectionConfig,
    rules: Arc<Rules>,
    flights: Vec<Watched>,
    now: u64,
    newest_bucket: u64,
    /// The buckets in which calls were first sent, and in which retries were decided.
    calls: Vec<u64>,
    retries: Vec<u64>,
    /// The blocks have been enforced all the time: the strict conditions hold.
    strict: bool,
    trace: Vec<String>,
}

fn chaos_config() -> ProtectionConfig {
    ProtectionConfig {
        bulkhead: bulkhead(3, 3, 400),
        breaker: breaker_with(|settings| {
            settings.wait = ms(500);
            settings.max_wait = ms(2000);
            settings.probes = 2;
            settings.probe_limit = ms(300);
            settings.consecutive_failures = 4;
            settings.slow_turn = breaker::SlowTurn::Enforce;
        }),
        least_request: true,
        connection_rate: Some(Moded::enforced(crate::token_bucket::Config::smooth(20, ms(1000)).unwrap())),
        budget: crate::budget::Config::new(25, ms(INTERVAL), 1).unwrap(),
        routes: vec![
            RouteProtection { name: "narrow".into(), bulkhead: bulkhead(1, 2, 300) },
            RouteProtection { name: "plain".into(), bulkhead: None },
        ],
    }
}

fn chaos_rules(methods: Methods) -> Arc<Rules> {
    rules_with(|rules| {
        rules.timeouts.connect = ms(200);
        rules.timeouts.attempt = Some(ms(500));
        rules.timeouts.request = Some(ms(1500));
        rules.timeouts.idle = ms(400);
        rules.slow_call_threshold = Some(ms(250));
        if let Some(retry) = &mut rules.retry {
            retry.config.methods = methods;
            retry.config.backoff =
                crate::backoff::Config::new(ms(20), ms(200), crate::backoff::Jitter::Decorrelated).unwrap();
        }
    })
}

impl Chaos {
    fn new(methods: Methods) -> Self {
        let config = chaos_config();
        Self {
            protection: Protection::new(&config, 3, at(0)),
            config,
            rules: chaos_rules(methods),
            flights: Vec::new(),
            now: 0,
            newest_bucket: 0,
            calls: Vec::new(),
            retries: Vec::new(),
            strict: true,
            trace: Vec::new(),
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Forward(ms) => self.now += ms,
            Op::Back(ms) => self.now = self.now.saturating_sub(ms),
            Op::Start { safety, route, deadline, kind } => self.start(safety, route, deadline, kind),
            Op::Feed { who, input } => {
                if let Some(index) = who.checked_rem(self.flights.len()) {
                    self.feed(index, input);
                }
            }
            Op::Resize { permits, queued } => {
                self.config.bulkhead = bulkhead(permits, queued, 400);
                self.protection.reconfigure(&self.config, at(self.now));
            }
            Op::Swap(choice) => self.swap(choice),
            Op::Force(choice) => {
                let forced = [Forced::Open, Forced::Closed, Forced::Auto][usize::from(choice % 3)];
                let until = at(self.now + 200);
                _ = self.protection.force(None, forced, until, at(self.now));
            }
        }
        self.settle();
    }

    fn start(&mut self, safety: u8, route: u32, deadline: Option<u64>, kind: u8) {
        let mut call = call(self.now);
        call.safety = [Safety::Safe, Safety::Idempotent, Safety::Unsafe, Safety::Unsafe][usize::from(safety)];
        call.idempotency_key = safety == 3;
        call.route = RouteId(route);
        call.opaque = kind == 1;
        call.caller_deadline = deadline.map(|ms| at(self.now + ms)).filter(|_| !call.opaque);
        call.streaming = kind == 0;
        call.seed = self.flights.len() as u64;
        let flight = Flight::start(Arc::clone(&self.rules), call, &mut self.protection, at(self.now));
        let watched = Watched { flight, call, answers: 0, done: 0, sent_once: false, decided: None };
        self.flights.push(watched);
        self.drain(self.flights.len() - 1);
    }

    fn feed(&mut self, index: usize, input: Input) {
        let (flight, protection, now) = (&mut self.flights[index].flight, &mut self.protection, at(self.now));
        let input = match input {
            Input::Proceed(choice) => match flight.phase {
                Phase::Picking => Input::Picked(u64::from(choice % 3)),
                Phase::Connecting => Input::Connected,
                Phase::Connected => Input::Sent,
                Phase::Sent => Input::Head(choice),
                Phase::Answering => Input::Ended,
                Phase::Queued | Phase::BackingOff | Phase::Over => Input::Timeout,
            },
            other => other,
        };
        match input {
            Input::Picked(endpoint) => {
                let picking = flight.phase == Phase::Picking;
                flight.handle_picked(EndpointKey(endpoint), protection, now);
                let state = protection.view(now).breakers.first().map(|breaker| breaker.state);
                let open = matches!(state, Some(State::Open | State::ForcedOpen));
                let goes_on = picking && flight.phase == Phase::Connecting;
                assert!(!self.strict || !open || !goes_on, "sent to an open circuit");
            }
            Input::SocketWait(endpoint) => flight.handle_socket_wait(EndpointKey(endpoint), protection, now),
            Input::NoEndpoint => flight.handle_no_endpoint(false, protection, now),
            Input::Refused => {
                let rejected = Rejected::new(Reason::BulkheadFull, 1, 1);
                flight.handle_refused(rejected, Block::Bulkhead, protection, now);
            }
            Input::Connected => flight.handle_connected(now),
            Input::Sent => {
                flight.handle_sent(now);
                self.flights[index].sent_once |= self.flights[index].flight.phase == Phase::Sent;
            }
            Input::Head(choice) => {
                let was_ready = flight.phase == Phase::Connected;
                flight.handle_head(some_head(choice), protection, now);
                self.flights[index].sent_once |= was_ready;
            }
            Input::Status(choice) => flight.handle_status(some_head(choice), protection, now),
            Input::StreamBegins => {
                flight.handle_stream_begins(protection, now);
            }
            Input::TurnBegins => flight.handle_turn_begins(now),
            Input::TurnEnds => flight.handle_turn_ends(protection, now),
            Input::Ended => flight.handle_ended(protection, now),
            Input::Failed(choice) => {
                use Failure::{Connect, ConnectTimeout, Dns, NotSent, Protocol, RefusedStream, Reset, Tls};
                let kinds = [Connect, ConnectTimeout, Dns, Tls, NotSent, RefusedStream, Reset, Protocol];
                let failure = kinds[usize::from(choice) % kinds.len()];
                // What HTTP/2 says it has not begun was not sent.
                let was_sent = flight.phase == Phase::Sent && failure == RefusedStream;
                flight.handle_failed(failure, protection, now);
                self.flights[index].sent_once &= !was_sent;
            }
            Input::Gone => flight.handle_caller_gone(protection, now),
            Input::Timeout => {
                let due = flight.next_timeout().is_some_and(|next| next <= now);
                flight.handle_timeout(protection, now);
                assert!(due || flight.outbox.pop().is_none(), "a spurious timeout did something");
                for _ in 0..8 {
                    flight.handle_timeout(protection, now);
                }
                assert!(flight.next_timeout().is_none_or(|next| next > now), "it rings and nothing moves");
            }
            Input::Woken => flight.handle_woken(protection, now),
            Input::CallerWait => flight.handle_caller_wait(now),
            Input::CallerReady => flight.handle_caller_ready(now),
            Input::Progress => flight.handle_progress(now),
            Input::Unrepeatable => flight.handle_unrepeatable(),
            Input::Proceed(_) => unreachable!("translated above"),
        }
        self.drain(index);
    }

    /// Another policy: modes, scopes, routes in another order, blocks that come and go.
    fn swap(&mut self, choice: u8) {
        self.strict = false;
        let mode = [Mode::Enforce, Mode::Observe, Mode::Disabled][usize::from(choice % 3)];
        let mut config = chaos_config();
        config.least_request = choice.is_multiple_of(2);
        match choice / 3 % 8 {
            0 => config.bulkhead = config.bulkhead.map(|block| Moded { mode, ..block }),
            1 => config.breaker = config.breaker.map(|block| Moded { mode, ..block }),
            2 => config.routes.reverse(),
            3 => config.routes.clear(),
            4 => config.bulkhead = None,
            5 => config.breaker = None,
            6 => {
                let name = format!("new-{}", self.now % 3);
                config.routes.insert(0, RouteProtection { name, bulkhead: bulkhead(1, 1, 300) });
            }
            _ => {
                config.breaker = breaker_with(|settings| {
                    settings.scope = [Scope::Dependency, Scope::Route, Scope::Endpoint][usize::from(choice % 3)];
                });
            }
        }
        let mut rules = Rules::clone(&chaos_rules(Methods::Idempotent));
        match choice / 21 % 4 {
            0 => rules.timeouts.mode = mode,
            1 => rules.deadline.mode = mode,
            2 => rules.retry = rules.retry.map(|block| Moded { mode, ..block }),
            _ => {}
        }
        self.rules = Arc::new(rules);
        self.config = config;
        self.protection.reconfigure(&self.config, at(self.now));
    }

    /// Wakes who is to be woken, until nobody is.
    fn settle(&mut self) {
        self.protection.check_invariants();
        while let Some(waiter) = self.protection.poll_woken() {
            let woken = self.flights.iter().position(|watched| watched.flight.waiter() == Some(waiter));
            if let Some(index) = woken {
                self.feed(index, Input::Woken);
            }
        }
        while let Some(event) = self.protection.poll_event() {
            self.trace.push(format!("{} {event:?}", self.now));
        }
        if self.strict {
            self.check_permits();
            self.check_waits();
        }
    }

    /// Nobody waits for a socket that an open circuit will not let it use.
    fn check_waits(&self) {
        let state = self.protection.view(at(self.now)).breakers[0].state;
        let waits = |flight: &Flight| flight.phase == Phase::Picking && flight.waiter().is_some();
        let waits = self.flights.iter().any(|watched| waits(&watched.flight));
        assert!(!waits || !matches!(state, State::Open | State::ForcedOpen), "waits at an open circuit");
    }

    fn drain(&mut self, index: usize) {
        while let Some(action) = self.flights[index].flight.poll_action() {
            self.trace.push(format!("{} {index} {action:?}", self.now));
            self.check_action(index, action);
        }
        self.note_retry(index);
    }

    fn check_action(&mut self, index: usize, action: Action) {
        let watched = &mut self.flights[index];
        assert_eq!(watched.done, 0, "something after the end");
        match action {
            Action::Attempt(attempt) => self.check_attempt(index, attempt),
            Action::Deliver | Action::DeliverKept { .. } | Action::Reject(_) => watched.answers += 1,
            Action::Cut(_) => assert_eq!(watched.answers, 1, "cut before it began"),
            Action::Done => watched.done += 1,
            Action::Await => assert!(watched.flight.waiter().is_some()),
            Action::Abandon | Action::Keep => {}
        }
        assert!(self.flights[index].answers <= 1, "two answers");
    }

    fn check_attempt(&mut self, index: usize, attempt: Attempt) {
        let watched = &self.flights[index];
        let now = at(self.now);
        if self.strict {
            assert!(attempt.number <= 3, "more attempts than policy allows");
            assert!(watched.call.caller_deadline.is_none_or(|deadline| now < deadline), "after the deadline");
            let request_ends = watched.call.arrived + ms(1500);
            assert!(!watched.call.opaque || attempt.number == 1, "an opaque connection is not tried again");
            assert!(watched.flight.facts.streaming || now < request_ends, "after the request's clock");
            let state = self.protection.view(now).breakers[0].state;
            let passes = match state {
                State::Closed | State::ForcedClosed => true,
                State::HalfOpen => attempt.kind == AttemptKind::First || attempt.fresh_connection,
                // The fresh try of an attempt that was admitted before: refused when its endpoint is picked.
                State::Open | State::ForcedOpen => attempt.fresh_connection,
            };
            assert!(passes, "{attempt:?} sent to {state:?}");
            let rules = self.rules.retry.as_ref().map(|retry| retry.config).unwrap();
            assert!(attempt.number == 1 || !watched.sent_once || watched.flight.is_repeatable(&rules), "sent twice");
        }
        if attempt.number == 1 && !attempt.fresh_connection && !self.flights[index].call.opaque {
            let bucket = self.bucket();
            self.calls.push(bucket);
        }
    }

    /// A retry is decided when back-off begins. One that is refused or overtaken before its attempt gives its token
    /// back, and counts no more.
    fn note_retry(&mut self, index: usize) {
        let bucket = self.bucket();
        let watched = &mut self.flights[index];
        let (phase, attempts) = (watched.flight.phase, watched.flight.attempts);
        if let Some(decided) = watched.decided {
            let holds_token = watched.flight.token.is_some() && phase != Phase::BackingOff;
            if attempts > decided.attempts {
                // Until something is sent it may yet be refused.
                watched.decided = watched.decided.filter(|_| holds_token);
            } else if phase == Phase::Over {
                watched.decided = None;
                let position = self.retries.iter().position(|&taken| taken == decided.bucket).unwrap();
                self.retries.remove(position);
            }
        }
        let watched = &mut self.flights[index];
        if phase != Phase::BackingOff || watched.decided.is_some() {
            return;
        }
        watched.decided = Some(Decided { bucket, attempts });
        self.retries.push(bucket);
        let inside = |list: &[u64]| list.iter().filter(|&&b| b + 32 > bucket).count() as u64;
        let allowed = inside(&self.calls) * BUDGET_PERCENT / 100 + BUDGET_FLOOR * INTERVAL / 1000;
        assert!(!self.strict || inside(&self.retries) <= allowed, "a retry beyond the budget");
    }

    fn bucket(&mut self) -> u64 {
        self.newest_bucket = self.newest_bucket.max(self.now / 100);
        self.newest_bucket
    }

    /// Permits out = attempts in flight, of the dependency and of the narrow route.
    fn check_permits(&self) {
        let running = |route: Option<u32>| {
            let counted = self.flights.iter().filter(|watched| {
                let holds = watched.flight.is_running() && !watched.call.opaque;
                holds && route.is_none_or(|route| watched.call.route.0 == route)
            });
            counted.count()
        };
        let view = self.protection.view(at(self.now));
        assert_eq!(view.bulkheads[0].in_flight as usize, running(None), "of the dependency");
        let waits_at_the_wider = self.flights.iter().filter(|watched| {
            watched.flight.phase == Phase::Queued && watched.call.route.0 == 1 && watched.flight.holdings.holds_route()
        });
        assert_eq!(view.bulkheads[1].in_flight as usize, running(Some(1)) + waits_at_the_wider.count(), "of the route");
        let at_endpoints: u32 = view.loads.iter().map(|load| load.in_flight).sum();
        let picked = |flight: &Flight| flight.is_running() && flight.phase != Phase::Picking;
        let picked = self.flights.iter().filter(|watched| picked(&watched.flight)).count();
        assert_eq!(at_endpoints as usize, picked, "in flight to endpoints");
    }

    /// Every call ends, and nothing is left behind.
    fn finish(mut self) -> Vec<String> {
        for index in 0..self.flights.len() {
            self.feed(index, Input::Gone);
        }
        self.settle();
        for watched in &self.flights {
            assert_eq!(watched.done, 1, "not done exactly once");
            assert_eq!(watched.flight.next_timeout(), None);
            let summary = watched.flight.summary();
            let ends = u32::from(summary.first.is_some()) + summary.retries.iter().map(|&n| u32::from(n)).sum::<u32>();
            assert_eq!(ends, summary.attempts, "each attempt has one outcome");
        }
        let now = at(self.now);
        let view = self.protection.view(now);
        assert!(view.bulkheads.iter().all(|bulkhead| bulkhead.in_flight == 0 && bulkhead.queued == 0));
        assert!(view.loads.iter().all(|load| load.in_flight == 0));
        // With no ticket out the breakers go with their block.
        self.protection.reconfigure(&chaos_config(), now);
        _ = self.protection.force(None, Forced::Auto, now, now);
        self.protection.reconfigure(&ProtectionConfig::default(), now);
        self.protection.reconfigure(&chaos_config(), now);
        let breaker = &self.protection.view(now).breakers[0];
        assert_eq!((breaker.state, breaker.counts.calls), (State::Closed, 0), "a ticket is missing");
        self.trace
    }
}

fn some_head(choice: u8) -> Head {
    let failure = choice.is_multiple_of(3);
    Head {
        failure,
        retry_code: failure || choice % 16 == 1,
        status: if failure { 503 } else { 200 },
        retry_after: (choice % 32 == 3).then_some(ms(u64::from(choice))),
        pushback: choice % 16 == 1,
        no_retry: choice % 32 == 6,
        streaming: choice % 16 == 2,
        deadline_exceeded: choice % 16 == 3,
    }
}

fn run(ops: &[Op], methods: Methods) -> Vec<String> {
    let mut chaos = Chaos::new(methods);
    for &op in ops {
        chaos.apply(op);
    }
    chaos.finish()
}

proptest! {
    #[test]
    fn what_must_never_happen_never_does(ops in prop::collection::vec(op(false), 1..300), any_method: bool) {
        let methods = if any_method { Methods::Any } else { Methods::Idempotent };
        let trace = run(&ops, methods);
        prop_assert_eq!(trace, run(&ops, methods), "the same inputs give the same run");
    }

    #[test]
    fn swaps_of_policy_lose_nothing(ops in prop::collection::vec(op(true), 1..300)) {
        run(&ops, Methods::Idempotent);
    }
}
