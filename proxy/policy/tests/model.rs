//! What the defaults, the modes and the inheritance of the documentation come to in the model.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use plimsoll_policy::{
    Algorithm, ConnectionLimit, DependencyPolicy, Endpoints, GrpcMatch, PortPolicy, Protocol, Source, Tls,
    UpstreamProtocol, WorkloadPolicy, load, parse,
};
use plimsoll_resilience::breaker::{SlowTurn, WindowKind};
use plimsoll_resilience::codes::{GrpcCode, GrpcCodes};
use plimsoll_resilience::rules::{Methods, Streaming, WhenExpired};
use plimsoll_resilience::{Mode, token_bucket};

fn dependency(spec: &str) -> DependencyPolicy {
    let head = "apiVersion: plimsoll.dev/v1alpha1\nkind: DependencyPolicy\nmetadata: {name: a}\nspec:\n";
    let target = if spec.contains("target:") { "" } else { "  target: {hosts: [\"a:80\"]}\n" };
    let source = Source::new("test.yaml", format!("{head}{target}{spec}"));
    let set = parse(&[source]).unwrap_or_else(|wrong| panic!("{wrong}"));
    set.dependencies.into_iter().next().unwrap()
}

fn workload(spec: &str) -> WorkloadPolicy {
    let head = "apiVersion: plimsoll.dev/v1alpha1\nkind: WorkloadPolicy\nmetadata: {name: a}\nspec:\n  workload: a\n";
    let source = Source::new("test.yaml", format!("{head}{spec}"));
    let set = parse(&[source]).unwrap_or_else(|wrong| panic!("{wrong}"));
    set.workloads.into_iter().next().unwrap()
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn slow(spec: &str) -> Duration {
    dependency(spec).rules.slow_call_threshold.unwrap()
}

#[test]
fn a_policy_that_names_no_block_only_has_the_built_in_clocks() {
    let policy = dependency("");
    let rules = &policy.rules;
    assert_eq!(policy.id.to_string(), "default/a");
    assert_eq!(rules.timeouts.connect, ms(1000));
    assert_eq!((rules.timeouts.request, rules.timeouts.request_written), (Some(ms(15_000)), false));
    assert_eq!((rules.timeouts.attempt, rules.timeouts.stream_max), (None, None));
    assert_eq!((rules.timeouts.idle, policy.tunnel_idle), (ms(300_000), ms(3_600_000)));
    assert!(rules.deadline.propagate && rules.deadline.reserve.is_zero());
    assert_eq!(rules.deadline.when_expired, WhenExpired::Reject);
    assert!(rules.retry.is_none() && rules.slow_call_threshold.is_none());
    assert!(
        rules.failure_codes.contains(500) && rules.failure_codes.contains(599) && !rules.failure_codes.contains(429)
    );
    assert!(rules.failure_grpc_codes.contains(GrpcCode::Unavailable));
    assert!(!rules.failure_grpc_codes.contains(GrpcCode::ResourceExhausted));
    assert!(policy.protection.bulkhead.is_none() && policy.protection.breaker.is_none());
    assert!(policy.connections.is_none() && policy.routes.is_empty());
    assert_eq!(policy.target.endpoints, Endpoints::AsAddressed);
}

#[test]
fn blocks_without_fields_have_the_defaults_of_the_core() {
    let policy = dependency("  circuitBreaker: {}\n  retry: {}\n");
    let breaker = policy.protection.breaker.unwrap();
    assert_eq!(breaker.config, plimsoll_resilience::breaker::Config::default());
    let retry = policy.rules.retry.unwrap();
    let built_in = plimsoll_resilience::rules::RetryRules::default();
    assert_eq!(format!("{:?}", retry.config), format!("{built_in:?}"));
    assert_eq!(policy.protection.budget, plimsoll_resilience::budget::Config::default());
    let rules = dependency("").rules;
    let built_in = plimsoll_resilience::Rules::default();
    assert_eq!(format!("{rules:?}"), format!("{built_in:?}"));
}

#[test]
fn what_is_slow_follows_the_shorter_written_timeout() {
    assert_eq!(slow("  circuitBreaker: {}\n"), ms(2000));
    assert_eq!(slow("  circuitBreaker: {}\n  timeouts: {connect: 1s, idle: 1s}\n"), ms(2000));
    assert_eq!(slow("  circuitBreaker: {}\n  timeouts: {request: 1s}\n"), ms(600));
    assert_eq!(slow("  circuitBreaker: {}\n  timeouts: {request: 1s, attempt: 500ms}\n"), ms(300));
    assert_eq!(slow("  circuitBreaker: {}\n  timeouts: {request: 20s}\n"), ms(12_000));
    assert_eq!(slow("  circuitBreaker: {slowCallDurationThreshold: 5s}\n  timeouts: {request: 10s}\n"), ms(5000));
    // A route's own timeouts decide for its own calls.
    let routes = "  routes:\n  - {name: r, match: {}, timeouts: {attempt: 100ms}}\n";
    let policy = dependency(&format!("  circuitBreaker: {{}}\n  timeouts: {{request: 1s}}\n{routes}"));
    assert_eq!(policy.routes[0].rules.slow_call_threshold, Some(ms(60)));
    assert_eq!(policy.rules.slow_call_threshold, Some(ms(600)));
}

#[test]
fn a_block_has_its_own_mode_or_the_policys() {
    let policy = dependency(
        "  mode: Observe
  timeouts: {mode: Enforce}
  deadline: {mode: Disabled}
  circuitBreaker: {mode: Disabled}
  bulkhead: {maxConcurrentCalls: 3, maxConnections: 4, maxWaitDuration: 1s}
  retry: {}
  routes:
  - {name: r, match: {}, retry: {mode: Enforce}, bulkhead: {mode: Disabled, maxConcurrentCalls: 1}}
",
    );
    assert_eq!(policy.mode, Mode::Observe);
    assert_eq!(policy.rules.timeouts.mode, Mode::Enforce);
    assert_eq!(policy.rules.deadline.mode, Mode::Disabled);
    assert_eq!(policy.protection.breaker.unwrap().mode, Mode::Disabled);
    assert_eq!(policy.rules.slow_call_threshold, None);
    assert_eq!(policy.protection.bulkhead.unwrap().mode, Mode::Observe);
    let connections = policy.connections.unwrap();
    assert_eq!((connections.mode, connections.config), (Mode::Observe, ConnectionLimit { max: 4, max_wait: ms(1000) }));
    assert_eq!(policy.rules.retry.unwrap().mode, Mode::Observe);
    assert_eq!(policy.routes[0].rules.retry.unwrap().mode, Mode::Enforce);
    assert_eq!(policy.protection.routes[0].bulkhead.unwrap().mode, Mode::Disabled);
}

#[test]
fn a_route_replaces_the_fields_that_it_names() {
    let policy = dependency(
        "  timeouts: {connect: 3s, request: 2s, attempt: 1s}
  deadline: {propagate: false, reserve: 20ms}
  retry: {maxAttempts: 5, backoff: {base: 100ms, max: 7s}, budget: {percent: 7}}
  routes:
  - name: r
    match: {}
    timeouts: {request: 9s}
    deadline: {propagate: true}
    retry: {methods: Safe, backoff: {max: 200ms}}
    streaming: Never
  - {name: s, match: {}}
",
    );
    let [route, same] = policy.routes.as_slice() else { panic!("two routes") };
    let clocks = &route.rules.timeouts;
    assert_eq!((clocks.connect, clocks.request, clocks.attempt), (ms(3000), Some(ms(9000)), Some(ms(1000))));
    assert!(route.rules.deadline.propagate);
    assert_eq!(route.rules.deadline.reserve, ms(20));
    let retry = route.rules.retry.unwrap().config;
    assert_eq!((retry.max_attempts, retry.methods), (5, Methods::Safe));
    assert_eq!((retry.backoff.ceiling(0), retry.backoff.ceiling(9)), (ms(100), ms(200)));
    assert_eq!(route.rules.streaming, Streaming::Never);
    assert_eq!(format!("{:?}", same.rules), format!("{:?}", policy.rules));
    let names: Vec<_> = policy.protection.routes.iter().map(|route| route.name.as_str()).collect();
    assert_eq!(names, ["r", "s"]);
    let percent = plimsoll_resilience::budget::Config::new(7, ms(10_000), 3).unwrap();
    assert_eq!(policy.protection.budget, percent);
}

#[test]
fn a_429_is_retried_only_with_retry_after_until_it_is_written() {
    let built_in = dependency("  retry: {}\n").rules.retry.unwrap().config;
    assert!(built_in.codes.contains(429) && built_in.retry_429_only_with_retry_after);
    let written = dependency("  retry: {codes: [429, 5xx]}\n").rules.retry.unwrap().config;
    assert!(written.codes.contains(429) && written.codes.contains(599) && !written.retry_429_only_with_retry_after);
    let none =
        dependency("  retry: {codes: [], connectionErrors: [Reset], grpcCodes: []}\n").rules.retry.unwrap().config;
    assert_eq!((none.codes.iter().count(), none.grpc_codes.iter().count()), (0, 0));
    assert!(none.on_reset && !none.on_connect_failure && !none.on_refused_stream && !none.on_reset_before_request);
}

#[test]
fn windows_are_time_or_calls() {
    let window = |spec: &str| dependency(spec).protection.breaker.unwrap().config.settings().window;
    assert_eq!(window("  circuitBreaker: {slidingWindowSize: 10s}\n"), WindowKind::Time(ms(10_000)));
    let count = "  circuitBreaker: {slidingWindowType: Count, slidingWindowSize: 50}\n";
    assert_eq!(window(count), WindowKind::Count(50));
}

#[test]
fn a_local_port_leads_to_the_one_host() {
    let endpoints =
        |target: &str| dependency(&format!("  target: {{listen: \"127.0.0.1:0\", {target}}}\n")).target.endpoints;
    let dns = Endpoints::Dns { name: "api.internal".to_owned(), port: Some(80), refresh: None };
    assert_eq!(endpoints("hosts: [\"API.internal:80\"]"), dns);
    assert_eq!(endpoints("hosts: [\"10.0.0.1:80\"]"), Endpoints::Static(vec!["10.0.0.1:80".parse().unwrap()]));
    let written = "hosts: [\"api.internal:80\"], endpoints: {static: [\"10.0.0.9:1\"]}";
    assert_eq!(endpoints(written), Endpoints::Static(vec!["10.0.0.9:1".parse().unwrap()]));
}

#[test]
fn what_names_stand_for_is_asked_as_written() {
    let endpoints =
        |dns: &str| dependency(&format!("  target: {{hosts: [a], endpoints: {{dns: {{{dns}}}}}}}\n")).target.endpoints;
    let dns = |name: &str, port, refresh| Endpoints::Dns { name: name.to_owned(), port, refresh };
    assert_eq!(endpoints("name: a.internal, port: 80"), dns("a.internal", Some(80), None));
    assert_eq!(endpoints("name: a.internal, port: 80, refresh: 5s"), dns("a.internal", Some(80), Some(ms(5000))));
    assert_eq!(endpoints("name: _http._tcp.A.internal."), dns("_http._tcp.a.internal", None, None));
}

#[test]
fn protocols_are_what_is_written() {
    let target = |target: &str| dependency(&format!("  target: {{hosts: [\"a:80\"], {target}}}\n")).target;
    let plain = target("");
    assert_eq!((plain.protocol, plain.upstream_protocol, plain.tls), (Protocol::Auto, UpstreamProtocol::Same, None));
    for (text, protocol) in [
        ("Auto", Protocol::Auto),
        ("HTTP1", Protocol::Http1),
        ("HTTP2", Protocol::Http2),
        ("GRPC", Protocol::Grpc),
        ("TCP", Protocol::Tcp),
    ] {
        assert_eq!(target(&format!("protocol: {text}")).protocol, protocol);
        let ports = workload(&format!("  ports: [{{port: 80, protocol: {text}}}]\n")).ports;
        assert_eq!(ports, [PortPolicy { port: 80, protocol }]);
    }
    assert_eq!(target("upstreamProtocol: HTTP1").upstream_protocol, UpstreamProtocol::Http1);
    assert_eq!(target("protocol: GRPC, upstreamProtocol: HTTP2").upstream_protocol, UpstreamProtocol::Http2);
    assert_eq!(dependency("").load_balancing, Algorithm::RoundRobin);
    assert!(!dependency("").protection.least_request);
    assert!(dependency("  loadBalancing: {algorithm: LeastRequest}\n").protection.least_request);
    assert_eq!(dependency("  loadBalancing: {algorithm: LeastRequest}\n").load_balancing, Algorithm::LeastRequest);
}

#[test]
fn tls_is_originated_only_where_it_says_so() {
    let tls = |tls: &str| dependency(&format!("  target: {{hosts: [\"a:443\"], tls: {{{tls}}}}}\n")).target.tls;
    assert_eq!(tls("mode: Disabled, serverName: a.example, caFile: ca.pem"), None);
    let system = Tls { server_name: None, ca_file: None, cert_file: None, key_file: None };
    assert_eq!(tls("mode: Originate"), Some(system));
    let all = "mode: Originate, serverName: A.example., caFile: p/ca.pem, certFile: c.pem, keyFile: c.key";
    let text = |text: &str| Some(text.to_owned());
    let written = Tls {
        server_name: text("a.example"),
        ca_file: text("p/ca.pem"),
        cert_file: text("c.pem"),
        key_file: text("c.key"),
    };
    assert_eq!(tls(all), Some(written));
}

#[test]
fn only_files_of_the_command_line_say_where_files_are() {
    let text = "apiVersion: plimsoll.dev/v1alpha1\nkind: DependencyPolicy\nmetadata: {name: a}\nspec:\n  \
                target: {hosts: [\"a:443\"], tls: {mode: Originate, caFile: /etc/ca.pem}}\n";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.yaml"), text).unwrap();
    for named in [folder.path().to_path_buf(), folder.path().join("a.yaml")] {
        let set = parse(&load(&[named]).unwrap()).unwrap_or_else(|wrong| panic!("{wrong}"));
        assert_eq!(set.dependencies[0].target.tls.as_ref().unwrap().ca_file.as_deref(), Some("/etc/ca.pem"));
        assert!(parse(&[Source::new("pushed", set.to_yaml())]).is_err());
    }
}

#[test]
fn new_connections_have_a_rate_where_one_is_written() {
    assert!(dependency("  bulkhead: {maxConnections: 5}\n").protection.connection_rate.is_none());
    let policy = dependency("  mode: Observe\n  bulkhead: {connectionRate: 500/m}\n");
    let rate = policy.protection.connection_rate.unwrap();
    assert_eq!((rate.mode, rate.config), (Mode::Observe, token_bucket::Config::smooth(500, ms(60_000)).unwrap()));
    assert!(policy.connections.is_none() && policy.protection.bulkhead.is_none());
}

#[test]
fn slow_turns_only_observe_until_it_is_written() {
    let slow_turn = |breaker: &str| {
        let policy = dependency(&format!(
            "  circuitBreaker: {{{breaker}}}
"
        ));
        policy.protection.breaker.unwrap().config.settings().slow_turn
    };
    assert_eq!(slow_turn(""), SlowTurn::Observe);
    assert_eq!(slow_turn("slowTurn: Enforce"), SlowTurn::Enforce);
}

#[test]
fn routes_are_for_services_and_methods() {
    let routes = "  routes:\n  - {name: r, match: {grpc: {service: a.B, method: C}}}\n  - {name: s, match: {grpc: {service: a.B}}}\n";
    let grpc = |method: Option<&str>| GrpcMatch { service: "a.B".to_owned(), method: method.map(str::to_owned) };
    let matchers: Vec<_> = dependency(routes).routes.into_iter().map(|route| route.matcher.grpc.unwrap()).collect();
    assert_eq!(matchers, [grpc(Some("C")), grpc(None)]);
}

#[test]
fn grpc_statuses_are_those_that_are_written() {
    let policy =
        dependency("  circuitBreaker: {failureGrpcCodes: [Aborted]}\n  retry: {grpcCodes: [Aborted, Internal]}\n");
    assert_eq!(policy.rules.failure_grpc_codes, GrpcCodes::of(&[GrpcCode::Aborted]));
    let retry = policy.rules.retry.unwrap().config;
    assert_eq!(retry.grpc_codes, GrpcCodes::of(&[GrpcCode::Aborted, GrpcCode::Internal]));
    let names: Vec<_> = GrpcCode::ALL[1..].iter().map(|code| code.as_str()).collect();
    let all = dependency(&format!("  retry: {{grpcCodes: [{}]}}\n", names.join(", "))).rules.retry.unwrap().config;
    assert_eq!(all.grpc_codes, GrpcCodes::of(&GrpcCode::ALL[1..]));
}

#[test]
fn what_needs_calls_is_named() {
    assert_eq!(dependency("  bulkhead: {maxConnections: 5}\n").about_calls, [] as [&str; 0]);
    let policy = dependency(
        "  timeouts: {request: 2s, idle: 1h}\n  bulkhead: {maxConcurrentCalls: 5}\n  deadline: {mode: Disabled}\n  \
         retry: {}\n",
    );
    assert_eq!(policy.about_calls, ["timeouts.request", "bulkhead.maxConcurrentCalls", "retry"]);
    assert_eq!(dependency("  mode: Disabled\n  retry: {}\n").about_calls, [] as [&str; 0]);
}

#[test]
fn tunnels_wait_an_hour() {
    let policy = dependency("");
    assert_eq!((policy.rules.timeouts.idle, policy.tunnel_idle), (ms(300_000), ms(3_600_000)));
    let policy = dependency("  timeouts: {idle: 5s}\n");
    assert_eq!((policy.rules.timeouts.idle, policy.tunnel_idle), (ms(5000), ms(5000)));
}

#[test]
fn a_workload_has_no_limits_until_they_are_given() {
    let policy = workload("");
    assert_eq!((policy.rules.timeouts.request, policy.rules.timeouts.idle), (None, ms(300_000)));
    assert!(policy.protection.bulkhead.is_none() && policy.connections.is_none());
    assert!(policy.ports.is_empty());
    assert_eq!((policy.drain.delay, policy.drain.grace), (Duration::ZERO, ms(25_000)));
    assert_eq!(policy.rules.deadline.mode, Mode::Enforce);
    assert_eq!(workload("  deadline: {accept: false}\n").rules.deadline.mode, Mode::Disabled);
    let bulkhead = workload("  bulkhead: {maxConcurrentCalls: 9}\n").protection.bulkhead.unwrap().config;
    assert_eq!((bulkhead.max_concurrent(), bulkhead.max_queued()), (9, 0));
}

#[test]
fn policies_are_for_the_sidecars_that_they_name() {
    let policy = dependency("  workloads: [payments, orders]\n");
    assert!(policy.is_for(Some("default"), Some("orders")) && policy.is_for(None, None));
    assert!(!policy.is_for(Some("shop"), Some("orders")) && !policy.is_for(None, Some("search")));
    assert!(dependency("").is_for(None, Some("search")));
    assert!(workload("").is_for(None, Some("a")) && !workload("").is_for(None, Some("b")));
}
