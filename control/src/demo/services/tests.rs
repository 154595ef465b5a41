use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::*;

#[test]
fn answer_times_spread_around_the_typical_one() {
    let mut times: Vec<f64> = (0..1000).map(spread).collect();
    times.sort_by(f64::total_cmp);
    let (first, last) = (times[0], times[999]);
    assert!(first >= 0.8 && last <= 1.7, "{first} {last}");
    assert!((times[500] - 1.0).abs() < 0.02, "median {}", times[500]);
    assert!(times[990] > 1.4, "a tail to measure: {}", times[990]);
}

#[test]
fn a_gauge_remembers_its_highest_value() {
    let gauge = Gauge::default();
    let first = gauge.enter();
    let second = gauge.enter();
    drop((first, second));
    assert_eq!((gauge.now.load(Relaxed), gauge.most.load(Relaxed)), (0, 2));
}

/// A payment service with one slot, whose only rail is the listener that comes with it.
async fn one_slot() -> (String, TcpListener) {
    let rail = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let args = PaymentsArgs { pool: 1, rails: vec![rail.local_addr().unwrap().to_string()] };
    tokio::spawn(serve_payments(listener, args));
    (address, rail)
}

/// A call under way; it comes to the status of its answer.
fn call(address: &str, path: &str) -> JoinHandle<u16> {
    let address = address.to_owned();
    let request = Request::post(path).header("host", &address).body(Full::default()).unwrap();
    tokio::spawn(async move { send(&address, request).await.unwrap().status().as_u16() })
}

fn customer(payments: &str) -> JoinHandle<u16> {
    call(payments, "/pay/0")
}

/// Asks until `wanted` holds: the service's word, whatever time it takes.
async fn until(payments: &str, wanted: impl Fn(PaymentsNumbers) -> bool) {
    while !wanted(backstage(payments, None).await.unwrap()) {
        tokio::task::yield_now().await;
    }
}

/// Answers the call that waits on this connection.
async fn approve(mut call: TcpStream) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut buffer = [0; 1024];
    assert!(call.read(&mut buffer).await.unwrap() > 0);
    call.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
}

#[tokio::test]
async fn who_finds_no_slot_waits_for_one() {
    let (payments, rail) = one_slot().await;
    let first = customer(&payments);
    until(&payments, |numbers| numbers.busy == 1).await;
    let second = customer(&payments);
    until(&payments, |numbers| numbers.waiting == 1).await;
    for customer in [first, second] {
        approve(rail.accept().await.unwrap().0).await;
        assert_eq!(customer.await.unwrap(), 200);
    }
    until(&payments, |numbers| numbers.busy == 0 && numbers.most_waiting == 1).await;
}

#[tokio::test]
async fn work_goes_on_when_the_customer_has_hung_up() {
    let (payments, rail) = one_slot().await;
    let first = customer(&payments);
    let call = rail.accept().await.unwrap().0;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    let second = customer(&payments);
    until(&payments, |numbers| numbers.waiting == 1).await;
    approve(call).await;
    approve(rail.accept().await.unwrap().0).await;
    assert_eq!(second.await.unwrap(), 200);
}

#[tokio::test]
async fn a_rail_that_is_not_there_is_a_502() {
    let (payments, rail) = one_slot().await;
    drop(rail);
    assert_eq!(customer(&payments).await.unwrap(), 502, "nobody listens there");
}

#[tokio::test]
async fn a_rail_takes_its_pace_from_backstage() {
    let rail = Arc::new(Rail { millis: AtomicU64::new(60_000), calls: AtomicU64::new(0), in_flight: Gauge::default() });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(serve(listener, move |request| {
        let rail = Arc::clone(&rail);
        async move { rail.handle(&request).await }
    }));
    let slow = call(&address, "/v1/charge");
    while backstage::<RailNumbers>(&address, None).await.unwrap().in_flight == 0 {
        tokio::task::yield_now().await;
    }
    let told: RailNumbers = backstage(&address, Some("millis=0")).await.unwrap();
    assert_eq!((told.in_flight, told.most_in_flight), (1, 1));
    let quick = call(&address, "/v1/charge");
    assert_eq!(quick.await.unwrap(), 200, "the new pace holds for new calls");
    assert!(!slow.is_finished(), "and not for old ones");
    slow.abort();
    while backstage::<RailNumbers>(&address, None).await.unwrap().in_flight > 0 {
        tokio::task::yield_now().await;
    }
}
