//! The demo's own services, each a process: a rail, and the payment service that calls three of them.
//!
//! The payment service is deliberately ordinary: 200 slots shared by everything it does, a slot held until the rail
//! has answered, no timeout of its own, and work that goes on when the customer has hung up. That is how a service
//! with a thread per request behaves, and what the sidecar has to save it from.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::http::{answer, send, serve};
use crate::{Failure, Verdict};

/// Where a service tells its numbers and takes orders; not part of the story.
const BACKSTAGE: &str = "/backstage";

/// `demo-rail`.
#[derive(Clone, Debug, Args)]
pub struct RailArgs {
    /// 127.0.0.1:PORT
    #[arg(long)]
    port: u16,
    /// Typical answer time
    #[arg(long)]
    millis: u64,
}

/// `demo-payments`.
#[derive(Clone, Debug, Args)]
pub struct PaymentsArgs {
    /// Calls in progress at once, whatever they wait for
    #[arg(long)]
    pool: usize,
    /// Where each rail is called: the sidecar's local ports
    #[arg(long = "rail", required = true)]
    rails: Vec<String>,
}

/// What a rail tells backstage.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct RailNumbers {
    /// Calls it is working on.
    pub in_flight: u64,
    /// The most it was ever working on at once, since it was last told its pace.
    pub most_in_flight: u64,
}

/// What the payment service tells backstage.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct PaymentsNumbers {
    /// Slots in use.
    pub busy: u64,
    /// Calls that wait for a slot.
    pub waiting: u64,
    /// The most slots that were in use at once.
    pub most_busy: u64,
    /// The most calls that waited at once.
    pub most_waiting: u64,
}

/// A number that goes up and down, and its highest value.
#[derive(Debug, Default)]
struct Gauge {
    now: AtomicU64,
    most: AtomicU64,
}

/// One unit of a gauge, given back on drop: also when the caller hangs up.
struct Unit<'a>(&'a Gauge);

impl Gauge {
    fn enter(&self) -> Unit<'_> {
        let now = self.now.fetch_add(1, Relaxed) + 1;
        self.most.fetch_max(now, Relaxed);
        Unit(self)
    }
}

impl Drop for Unit<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Relaxed);
    }
}

#[derive(Debug)]
struct Rail {
    millis: AtomicU64,
    calls: AtomicU64,
    in_flight: Gauge,
}

/// A rail: answers every charge after a while.
///
/// # Errors
/// When its port is taken.
pub async fn run_rail(args: RailArgs) -> Result<Verdict, Failure> {
    let rail =
        Arc::new(Rail { millis: AtomicU64::new(args.millis), calls: AtomicU64::new(0), in_flight: Gauge::default() });
    let listener = TcpListener::bind(("127.0.0.1", args.port)).await?;
    ready(&listener)?;
    serve(listener, move |request| {
        let rail = Arc::clone(&rail);
        async move { rail.handle(&request).await }
    })
    .await;
    Ok(Verdict::Yes)
}

impl Rail {
    async fn handle(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if request.uri().path() == BACKSTAGE {
            self.obey(request.uri().query());
            return json(&RailNumbers {
                in_flight: self.in_flight.now.load(Relaxed),
                most_in_flight: self.in_flight.most.load(Relaxed),
            });
        }
        let _unit = self.in_flight.enter();
        let typical = self.millis.load(Relaxed) as f64;
        let nth = self.calls.fetch_add(1, Relaxed);
        tokio::time::sleep(Duration::from_secs_f64(typical * spread(nth) / 1000.0)).await;
        answer(200, r#"{"approved":true}"#)
    }

    /// `millis=8000` sets the pace and starts the highest value afresh.
    fn obey(&self, query: Option<&str>) {
        let millis = query.and_then(|q| q.strip_prefix("millis=")?.parse().ok());
        if let Some(millis) = millis {
            self.millis.store(millis, Relaxed);
            let now = self.in_flight.now.load(Relaxed);
            self.in_flight.most.store(now, Relaxed);
        }
    }
}

/// Real services do not answer like clockwork: the n-th answer takes 0.8 to 1.2 of the typical time, one in forty
/// up to 1.7 of it. Without randomness, so that runs can be compared.
fn spread(nth: u64) -> f64 {
    // Steps of the golden ratio fill the interval evenly, whatever stretch of calls is looked at.
    let even = (nth as f64 * 0.618_033_988_75).fract();
    if even < 0.975 { 0.8 + 0.4 * even / 0.975 } else { 1.2 + 0.5 * (even - 0.975) / 0.025 }
}

#[derive(Debug)]
struct Payments {
    pool: Semaphore,
    busy: Gauge,
    waiting: Gauge,
    rails: Vec<String>,
}

/// The payment service: `POST /pay/N` charges by the N-th rail.
///
/// # Errors
/// When no port is free.
pub async fn run_payments(args: PaymentsArgs) -> Result<Verdict, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    ready(&listener)?;
    serve_payments(listener, args).await;
    Ok(Verdict::Yes)
}

async fn serve_payments(listener: TcpListener, args: PaymentsArgs) {
    let payments = Arc::new(Payments {
        pool: Semaphore::new(args.pool),
        busy: Gauge::default(),
        waiting: Gauge::default(),
        rails: args.rails,
    });
    serve(listener, move |request| {
        let payments = Arc::clone(&payments);
        async move { payments.handle(request).await }
    })
    .await;
}

impl Payments {
    async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        if path == BACKSTAGE {
            return json(&self.numbers());
        }
        let rail = path.strip_prefix("/pay/").and_then(|n| n.parse().ok());
        let Some(rail) = rail.filter(|rail: &usize| *rail < self.rails.len()) else {
            return answer(404, "POST /pay/N\n");
        };
        // A task of its own, because a thread does not notice that its customer has hung up either.
        let work = tokio::spawn(async move { self.pay(rail).await });
        work.await.unwrap_or_else(|_| answer(500, "the payment service has a bug\n"))
    }

    async fn pay(&self, rail: usize) -> Response<Full<Bytes>> {
        let waiting = self.waiting.enter();
        let _slot = self.pool.acquire().await.expect("the pool is never closed");
        drop(waiting);
        let _busy = self.busy.enter();
        let address = &self.rails[rail];
        let request = Request::post("/v1/charge")
            .header("host", address)
            .header("content-type", "application/json")
            .body(Full::from(r#"{"amount":1250,"currency":"EUR"}"#))
            .expect("the address is one that was bound");
        match send(address, request).await {
            Ok(said) => pass_on(&said),
            Err(failure) => answer(502, format!("the rail did not answer: {failure}\n")),
        }
    }

    fn numbers(&self) -> PaymentsNumbers {
        PaymentsNumbers {
            busy: self.busy.now.load(Relaxed),
            waiting: self.waiting.now.load(Relaxed),
            most_busy: self.busy.most.load(Relaxed),
            most_waiting: self.waiting.most.load(Relaxed),
        }
    }
}

/// The rail's answer, or the sidecar's refusal, for the customer.
fn pass_on(said: &Response<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(said.body().clone()));
    *response.status_mut() = said.status();
    response
}

fn json(value: &impl Serialize) -> Response<Full<Bytes>> {
    answer(200, serde_json::to_vec(value).expect("numbers are always JSON"))
}

/// The same line that the proxy prints when it is ready.
fn ready(listener: &TcpListener) -> std::io::Result<()> {
    let address = listener.local_addr()?.to_string();
    println!("{}", serde_json::json!({"event": "ready", "listen": address}));
    Ok(())
}

/// Asks a demo service for its numbers, passing `order` along.
///
/// # Errors
/// When it does not answer with numbers.
pub async fn backstage<T: serde::de::DeserializeOwned>(address: &str, order: Option<&str>) -> Result<T, Failure> {
    let query = order.map_or_else(String::new, |order| format!("?{order}"));
    let request = Request::get(format!("{BACKSTAGE}{query}")).header("host", address).body(Full::default())?;
    let answer = tokio::time::timeout(Duration::from_secs(5), send(address, request)).await??;
    Ok(serde_json::from_slice(answer.body())?)
}

#[cfg(test)]
mod tests;
