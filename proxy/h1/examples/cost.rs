//! What a head costs: `cargo run --release -p plimsoll-h1 --example cost [WORDS]`. Prints nanoseconds, those of the quickest of 41 rounds.

use std::{hint::black_box, time::Instant};

use plimsoll_h1::{
    BodyDecoder, BodyFraming, FieldKind, KindSet, Limits, Method, RequestHead, ResponseHead, Rewrite, decode_request,
    decode_response, encode_request, encode_response,
};

const REQUEST: &[u8] = b"POST /v1/payments/authorize?currency=EUR HTTP/1.1\r\n\
    Host: payments.shop.svc.cluster.local:8080\r\n\
    User-Agent: python-requests/2.32.3\r\n\
    Accept: application/json\r\n\
    Accept-Encoding: gzip, deflate\r\n\
    Content-Type: application/json\r\n\
    Content-Length: 182\r\n\
    Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJzaG9wIn0.c2lnbmF0dXJlLW9mLXRoaXMtdG9rZW4\r\n\
    Traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\
    X-Request-Id: 8d0f5f1e-6a0c-4f0c-9e53-1b3f6c1c2a77\r\n\
    Idempotency-Key: 4a1d8f0c\r\n\r\n";

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Server: nginx\r\n\
    Date: Mon, 30 Nov 2026 13:40:24 GMT\r\n\
    Content-Type: application/json\r\n\
    Content-Length: 64\r\n\
    Connection: keep-alive\r\n\
    Cache-Control: no-store\r\n\r\n";

fn main() {
    let limits = Limits::default();
    let mut request = RequestHead::default();
    let mut response = ResponseHead::default();
    let mut out = Vec::with_capacity(4096);
    let rewrite = Rewrite { drop: KindSet::of(&[FieldKind::XPlimsoll]), ..Rewrite::default() };

    report("httparse alone, request of 10 fields", || {
        let mut headers = [const { std::mem::MaybeUninit::uninit() }; 128];
        let mut parsed = httparse::Request::new(&mut []);
        black_box(parsed.parse_with_uninit_headers(black_box(REQUEST), &mut headers).is_ok());
    });
    report("decode_request, 10 fields", || {
        black_box(decode_request(black_box(REQUEST), &limits, &mut request)).expect("it is well-formed");
    });
    report("encode_request, one field added", || {
        out.clear();
        let rewrite = Rewrite { add: &[(b"x-envoy-expected-rq-timeout-ms", b"950")], ..rewrite };
        encode_request(&request, black_box(REQUEST), &rewrite, &mut out);
        black_box(&out);
    });
    report("decode_response, 6 fields", || {
        black_box(decode_response(black_box(RESPONSE), Method::Post, &limits, &mut response))
            .expect("it is well-formed");
    });
    report("encode_response", || {
        out.clear();
        encode_response(&response, black_box(RESPONSE), &rewrite, &mut out);
        black_box(&out);
    });
    let chunks = chunked_body();
    report("decode 16 chunks of 1 KiB, verbatim", || {
        let mut body = BodyDecoder::verbatim(BodyFraming::Chunked, &limits);
        black_box(body.decode(black_box(&chunks))).expect("it is well-formed");
    });
}

fn chunked_body() -> Vec<u8> {
    let mut body = Vec::new();
    for _ in 0..16 {
        body.extend_from_slice(b"400\r\n");
        body.extend_from_slice(&[b'x'; 1024]);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"0\r\n\r\n");
    body
}

/// Only what has `WORDS` in its name is measured: for `perf stat` on one of them.
fn report(what: &str, mut work: impl FnMut()) {
    if !std::env::args().nth(1).is_none_or(|words| what.contains(&words)) {
        return work();
    }
    const TURNS: u32 = 20_000;
    let mut rounds: Vec<f64> = (0..41)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..TURNS {
                work();
            }
            start.elapsed().as_secs_f64() * 1e9 / f64::from(TURNS)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("{:8.1} ns  {what}", rounds[0]);
}
