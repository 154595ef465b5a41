//! One entry for each reason of contract.md: what it means, and what to change. A test holds the list complete.

/// What is to be said about a reason, whatever the numbers.
#[derive(Debug)]
pub struct Advice {
    /// Why the proxy refused, in a sentence that begins with a capital.
    pub why: &'static str,
    /// What to do, the likeliest first.
    pub change: &'static [&'static str],
}

/// What is known about `reason`, and about `cause` where that makes another matter of it; a word this version does not
/// know is still explained by its numbers.
pub fn advice(reason: &str, cause: Option<&str>) -> Advice {
    let (why, change) = cause
        .and_then(|cause| limits_on_connections(reason, cause))
        .or_else(|| limits(reason))
        .or_else(|| breakers_and_retries(reason))
        .or_else(|| clocks(reason))
        .or_else(|| connections(reason))
        .or_else(|| messages(reason))
        .unwrap_or(("This version of plimsoll does not know the reason; the proxy may be newer.", &[]));
    Advice { why, change }
}

type Entry = Option<(&'static str, &'static [&'static str])>;

fn limits_on_connections(reason: &str, cause: &str) -> Entry {
    Some(match (reason, cause) {
        ("BulkheadFull", "Connections") => (
            "As many connections were open as `bulkhead.maxConnections` allows, and none was to be waited for.",
            &[
                "`plimsoll status` shows how many are open. If the dependency is slow, each call holds its connection for longer: look there first.",
                "If it is simply busier, raise `bulkhead.maxConnections`, or let calls wait with `maxWaitDuration`.",
                "Calls of HTTP can share connections: over HTTP/2 (`upstreamProtocol: HTTP2`) one takes many at a time.",
            ],
        ),
        ("BulkheadWaitTimeout", "Connections") => (
            "As many connections were open as `bulkhead.maxConnections` allows, and none became free within `maxWaitDuration`.",
            &[
                "If the dependency is slow, each call holds its connection for longer: look there first.",
                "Raise `bulkhead.maxConnections` if it can bear more; `maxWaitDuration` only moves the wait.",
                "Connections that their application keeps open for nothing count too: `timeouts.idle` ends them.",
            ],
        ),
        ("RateLimited", "ConnectionRate") => (
            "More new connections were asked for than `bulkhead.connectionRate` allows, and this one was reset.",
            &[
                "The rate is there for reconnect storms: see whether the application lost its connections, or opens one for each request. A pool in the application is the cure.",
                "If so many new connections are normal here and the dependency takes them, raise `bulkhead.connectionRate`.",
            ],
        ),
        _ => return None,
    })
}

fn limits(reason: &str) -> Entry {
    Some(match reason {
        "BulkheadFull" => (
            "As many calls were in flight as the bulkhead allows, and there was no place left to wait.",
            &[
                "First look at the dependency: calls pile up when it turns slow, and then a higher limit only lets it take more of this service down.",
                "If it is as fast as ever and simply busier, raise `bulkhead.maxConcurrentCalls` to calls/s x p99 with some room.",
                "To ride out short bursts let calls wait: `maxQueued` and a `maxWaitDuration` well below `timeouts.request`.",
            ],
        ),
        "BulkheadWaitTimeout" => (
            "The call waited for a permit as long as `bulkhead.maxWaitDuration` (or its deadline) lets it, and none came free.",
            &[
                "The queue only helps with bursts; when it is full for long the dependency is too slow or the limit too low: see calls/s x p99.",
                "Shorten `timeouts.attempt`, so that hung calls give their permits back sooner.",
                "Raise `bulkhead.maxConcurrentCalls` if the dependency can bear it; `maxWaitDuration` only moves the wait.",
            ],
        ),
        "ConcurrencyLimited" => (
            "The adaptive limit had found how many calls can be in progress before latency grows, and so many were.",
            &[
                "This is load, not a fault: add replicas or make the work cheaper.",
                "If the limit is stuck low, raise `concurrencyLimit.minLimit`.",
            ],
        ),
        "RateLimited" => (
            "The caller has used up its rate limit.",
            &[
                "The caller should wait as long as `Retry-After` says.",
                "A caller that is entitled to more gets it in `rateLimit.limits[].overrides`.",
            ],
        ),
        "Shed" => (
            "There was more work than the service can do, and the call was of a class that goes first.",
            &[
                "Add capacity, or send less of the sheddable work.",
                "If this call matters more, its class is set in `priorities` (header and rules).",
            ],
        ),
        "Overloaded" => (
            "The proxy itself was near the end of its memory or file descriptors.",
            &[
                "Raise the limits of the process (`ulimit -n`, memory), or the number of replicas.",
                "Look for connections that are never closed: `plimsoll status` counts them.",
            ],
        ),
        "LimitStoreUnavailable" => (
            "The store that counts the shared rate limit did not answer, and the policy says to refuse then.",
            &[
                "Look at the store in `rateLimit.shared`.",
                "`onStoreFailure: LocalShare` or `Allow` keeps the calls going without it.",
            ],
        ),
        _ => return None,
    })
}

fn breakers_and_retries(reason: &str) -> Entry {
    Some(match reason {
        "CircuitOpen" => (
            "The breaker was open, so that the dependency is left alone for a while; `seen` says why.",
            &[
                "Look at the dependency. The breaker tries again by itself and closes when its probes succeed: `plimsoll circuits` shows when.",
                "If its answers are fine and only slower than the breaker was told, raise `slowCallDurationThreshold`.",
                "Give callers something in the meantime: answer without it, or from what is known.",
            ],
        ),
        "RetriesExhausted" => (
            "Every attempt that the policy allows was made, and the last one failed too.",
            &[
                "Look at the dependency: the attempts failed, the proxy only counted them.",
                "More attempts rarely help and multiply the load; `retry.maxAttempts` is the number.",
            ],
        ),
        "RetryBudgetExhausted" => (
            "The call failed and could have been repeated, but retries had used up their share of all calls.",
            &[
                "That is the budget at work: so many calls fail that repeating them would only add load. Look at the dependency.",
                "The share is `retry.budget.percent` of the calls in `interval`, plus `minPerSecond`.",
            ],
        ),
        "FaultInjected" => (
            "A FaultInjection policy broke this call on purpose.",
            &["It ends by itself after `expiresAfter`; remove the document to end it now."],
        ),
        _ => return None,
    })
}

fn clocks(reason: &str) -> Entry {
    Some(match reason {
        "RequestTimeout" => (
            "The whole call, with every attempt and wait in it, took longer than `timeouts.request`.",
            &[
                "If the dependency is slow, a breaker that counts slow calls ends this sooner: `circuitBreaker.slowCallDurationThreshold`.",
                "If this call rightly takes longer, give its route a `timeouts.request` of its own.",
            ],
        ),
        "AttemptTimeout" => (
            "One attempt took longer than `timeouts.attempt`, and no other was to be made.",
            &[
                "If the dependency is slow, a breaker that counts slow calls ends this sooner.",
                "If answers of this length are normal, raise `timeouts.attempt`, for the route if it is only one.",
                "A call that may be repeated can get another attempt: `retry`, or an `Idempotency-Key` from the caller.",
            ],
        ),
        "DeadlineExpired" => (
            "The time that the caller itself had set for the call was over.",
            &[
                "Nobody was waiting for the answer any more. Find where the time went before the call came here: the trace shows it.",
                "Otherwise the caller's deadline is too short for this work.",
            ],
        ),
        "IdleTimeout" => (
            "Not a byte moved in either direction for `timeouts.idle`.",
            &[
                "A peer that goes silent has usually hung or lost its network.",
                "For a stream that may be quiet this long, raise `timeouts.idle` on its route; for TCP and tunnels (1 h if not written), that of the dependency.",
            ],
        ),
        "RequestHeadTimeout" => (
            "The caller opened a request and did not finish its head in time.",
            &["A slow or stuck client, or one that sends slowly on purpose; nothing here is to be changed."],
        ),
        _ => return None,
    })
}

fn connections(reason: &str) -> Entry {
    Some(match reason {
        "NoHealthyEndpoint" => (
            "The dependency has no endpoint that could take the call.",
            &[
                "`plimsoll endpoints` shows each with its state, and `plimsoll circuits` its breaker.",
                "None at all: check `target.endpoints`, and whether the name resolves: `plimsoll status` says how the last look-up ended.",
            ],
        ),
        "ConnectFailure" => (
            "No connection to the endpoint could be made.",
            &[
                "Is it running, and on this address and port? Try `curl -v` to it from here.",
                "A timeout rather than a refusal points at the network or a firewall; the limit is `timeouts.connect`.",
            ],
        ),
        "DnsFailure" => (
            "The name of the dependency could not be resolved.",
            &[
                "`more` has the name and what the name servers said. A name that does not exist: check `target.hosts`, or what the caller asked for.",
                "Name servers that do not answer: the proxy asks those of /etc/resolv.conf, or of `--dns-server`.",
                "`endpoints.dns` without a `port` asks for SRV records: give the port if the name has addresses only.",
            ],
        ),
        "TlsFailure" => (
            "The TLS handshake with the endpoint failed.",
            &[
                "`more` says which part of it, in words; so does the proxy's log.",
                "A certificate that is not trusted: its authority belongs in `tls.caFile`. One for another name: `tls.serverName`. One that is wanted of us: `tls.certFile` and `tls.keyFile`.",
                "No TLS at all on that port: check the port of `target.endpoints`, or leave `tls` out.",
            ],
        ),
        "UpstreamReset" => (
            "The endpoint closed the connection after the request had been sent and before the answer was complete.",
            &[
                "It may have crashed or restarted: look at its log at this time.",
                "The call was not repeated, since it may have been carried out. If it can be repeated, let the caller send an `Idempotency-Key`.",
            ],
        ),
        "UpstreamProtocolError" => (
            "The endpoint does not speak the protocol that it was spoken to in, or broke its rules.",
            &[
                "`more` says what was wrong; so does the proxy's log.",
                "What is spoken to the endpoint is what the caller speaks, unless `target.upstreamProtocol` says so: HTTP2 without TLS needs a server that takes it with prior knowledge.",
                "A WebSocket over HTTP/2 needs a server with extended CONNECT (RFC 8441): `upstreamProtocol: HTTP1` carries it to any other.",
            ],
        ),
        "Draining" => (
            "The proxy was shutting down.",
            &[
                "Nothing to change if the caller went elsewhere. If calls are lost at each roll-out, lengthen `drain.delay`.",
            ],
        ),
        "NotReady" => (
            "The proxy had no policy yet and was told to wait for one (`--require-policy`).",
            &["See why the policy has not come: `plimsoll status`, and the proxy's log."],
        ),
        "ClientGone" => (
            "The caller hung up before the answer; the proxy ended the call.",
            &[
                "If many callers do, they wait less long than the call takes: see `status` for when they typically give up.",
            ],
        ),
        _ => return None,
    })
}

fn messages(reason: &str) -> Entry {
    Some(match reason {
        "NoRoute" => (
            "Nothing says where this call should go.",
            &[
                "On the outbound side: a request to the proxy itself needs a Host or an absolute URL of another machine; what is not HTTP has to be redirected, or to call a dependency's `listen` address.",
                "Check the host and port that the caller used against `target.hosts`.",
            ],
        ),
        "MalformedRequest" => (
            "The request is not valid HTTP, or could be read in two ways.",
            &[
                "The caller has to change; the proxy's log says what was wrong. It is refused because proxies that guess can be tricked.",
            ],
        ),
        "HeadersTooLarge" => (
            "The request's head is larger than the proxy takes (64 KiB, 128 fields; target 16 KiB).",
            &["Usually a cookie or a URL that grows without end: fix it at the caller."],
        ),
        "BodyTooLarge" => (
            "The request's body is larger than allowed here.",
            &["Send less at a time, or raise the limit that is named below."],
        ),
        "Forbidden" => (
            "What the caller asked for is not done for it at this address.",
            &[
                "CONNECT is for `HTTPS_PROXY`, on the outbound listener (127.0.0.1:15001); ports of `listen` and the inbound side take requests alone.",
                "The forward proxy serves its own machine only: run a proxy beside the caller.",
                "On the inbound side calls go to addresses of this workload alone: check what the redirect catches.",
            ],
        ),
        "Loop" => (
            "The call would have led the proxy to one of its own listeners.",
            &[
                "An endpoint in the policy, a DNS name or the Host points back at the proxy: give the service's own port instead.",
                "Calls to the inbound listener itself need `--app ADDRESS` to know where the service is.",
            ],
        ),
        _ => return None,
    })
}
