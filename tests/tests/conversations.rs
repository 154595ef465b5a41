//! Thousands of random conversations: every framing, size and split of requests and answers, pipelined or not, and
//! what arrives on either side is what was sent on the other. A failure names its seed; `SEED=n` runs that one alone.

use plimsoll_tests::client::Client;
use plimsoll_tests::proxy::{Setup, listened};
use plimsoll_tests::random::{Random, chunked};
use plimsoll_tests::upstream::{Request, Script, Step, Upstream};

/// What one request is and what its answer shall be; both sides compute it from the seed in the target.
struct Exchange {
    seed: u64,
    method: &'static str,
    body: Vec<u8>,
    body_chunked: bool,
    status: u16,
    answer: Vec<u8>,
    framing: Framing,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Framing {
    Length,
    Chunked,
    Close,
    None,
}

impl Exchange {
    fn new(seed: u64) -> Exchange {
        let mut random = Random::new(seed);
        let method = random.pick(&["GET", "GET", "POST", "PUT", "DELETE", "HEAD"]);
        let length = if matches!(method, "POST" | "PUT") || random.one_in(6) { random.length() } else { 0 };
        let status = random.pick(&[200, 200, 200, 201, 204, 304, 404, 500]);
        let bodiless = method == "HEAD" || status == 204 || status == 304;
        let framing = if bodiless {
            Framing::None
        } else {
            random.pick(&[Framing::Length, Framing::Length, Framing::Chunked, Framing::Close])
        };
        let answer_length = if bodiless { 0 } else { random.length() };
        Exchange {
            seed,
            method,
            body: random.text(length),
            body_chunked: random.one_in(2),
            status,
            answer: random.text(answer_length),
            framing,
        }
    }

    fn request(&self) -> Vec<u8> {
        let mut head = format!("{} /{} HTTP/1.1\r\nHost: a\r\n", self.method, self.seed);
        let mut random = Random::new(self.seed ^ 1);
        for number in 0..random.below(6) {
            head.push_str(&format!("X-Field-{number}: {}\r\n", String::from_utf8_lossy(&random.text(number * 40))));
        }
        let body = if self.body_chunked && (!self.body.is_empty() || matches!(self.method, "POST" | "PUT")) {
            head.push_str("Transfer-Encoding: chunked\r\n");
            chunked(&self.body, &mut random)
        } else {
            if !self.body.is_empty() || matches!(self.method, "POST" | "PUT") {
                head.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
            }
            self.body.clone()
        };
        head.push_str("\r\n");
        [head.into_bytes(), body].concat()
    }

    /// The answer, written in pieces.
    fn script(&self) -> Script {
        let mut random = Random::new(self.seed ^ 2);
        let mut bytes = format!("HTTP/1.1 {} Some Words\r\nX-Seed: {}\r\n", self.status, self.seed).into_bytes();
        if random.one_in(5) {
            bytes.splice(0..0, b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".iter().copied());
        }
        match self.framing {
            Framing::Length => {
                bytes.extend_from_slice(format!("Content-Length: {}\r\n\r\n", self.answer.len()).as_bytes());
                bytes.extend_from_slice(&self.answer);
            }
            Framing::Chunked => {
                bytes.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
                bytes.extend_from_slice(&chunked(&self.answer, &mut random));
            }
            Framing::Close => {
                bytes.extend_from_slice(b"\r\n");
                bytes.extend_from_slice(&self.answer);
            }
            Framing::None => bytes.extend_from_slice(b"\r\n"),
        }
        let mut script: Script = pieces(&bytes, &mut random).into_iter().map(Step::Bytes).collect();
        if self.framing == Framing::Close {
            script.push(Step::Close);
        }
        script
    }
}

fn pieces(bytes: &[u8], random: &mut Random) -> Vec<Vec<u8>> {
    let mut rest = bytes;
    let mut pieces = Vec::new();
    while !rest.is_empty() && pieces.len() < 12 {
        let most = rest.len().min(random.pick(&[1, 3, 50, 4_000, 200_000]));
        let (piece, after) = rest.split_at(1 + random.below(most));
        pieces.push(piece.to_vec());
        rest = after;
    }
    pieces.push(rest.to_vec());
    pieces
}

fn seed_of(request: &Request) -> u64 {
    request.target.trim_start_matches('/').parse().expect("the seed is the path")
}

fn check(exchange: &Exchange, client: &mut Client) {
    let seed = exchange.seed;
    let answer =
        client.read_answer(exchange.method == "HEAD").unwrap_or_else(|failure| panic!("seed {seed}: {failure:?}"));
    assert_eq!(answer.status, exchange.status, "seed {seed}: {}", answer.text());
    assert_eq!(answer.field("x-seed"), Some(seed.to_string().as_str()), "answers come in order");
    assert!(answer.body == exchange.answer, "seed {seed}: {} bytes of {}", answer.body.len(), exchange.answer.len());
    assert!(answer.keeps_alive(), "seed {seed}: {answer}");
}

#[test]
fn what_arrives_is_what_was_sent() {
    let server = Upstream::start(|request| {
        let exchange = Exchange::new(seed_of(request));
        assert_eq!(request.method, exchange.method);
        assert!(
            request.body == exchange.body,
            "seed {}: {} of {} bytes",
            exchange.seed,
            request.body.len(),
            exchange.body.len()
        );
        exchange.script()
    });
    let spec = "  bulkhead: {maxConcurrentCalls: 50}\n  circuitBreaker: {minimumNumberOfCalls: 1000000}\n  timeouts: {request: 20s}";
    let dependency = listened("fraud-api", server.address, spec);
    let proxy = Setup::new().workers(2).policy(&dependency.policy).start();
    let only: Option<u64> = std::env::var("SEED").ok().map(|seed| seed.parse().expect("SEED is a number"));
    let callers: Vec<_> = (0..4)
        .map(|caller| {
            let listen = dependency.listen;
            std::thread::spawn(move || {
                let mut client = Client::connect(listen);
                let seeds = (0..500).map(|number| caller * 1_000_000 + number);
                let mut seeds: Vec<u64> = only.map_or_else(|| seeds.collect(), |seed| vec![seed]);
                while let Some(seed) = seeds.pop() {
                    let mut random = Random::new(seed ^ 3);
                    // Now and then two requests go out before the first answer is read.
                    let mut exchanges = vec![Exchange::new(seed)];
                    if random.one_in(4) && exchanges[0].body.len() < 30_000 && exchanges[0].answer.len() < 30_000 {
                        exchanges.extend(seeds.pop().map(Exchange::new));
                    }
                    let bytes: Vec<u8> = exchanges.iter().flat_map(Exchange::request).collect();
                    for piece in pieces(&bytes, &mut random) {
                        client.write(piece).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                    }
                    for exchange in &exchanges {
                        check(exchange, &mut client);
                    }
                    if random.one_in(10) {
                        client = Client::connect(listen);
                    }
                }
            })
        })
        .collect();
    for caller in callers {
        caller.join().expect("every conversation went well");
    }
    if only.is_none() {
        assert_eq!(server.requests(), 2_000);
        assert_eq!(proxy.admin.dependency("fraud-api")["requests_total"], 2_000);
    }
    plimsoll_tests::eventually("every permit is back", || {
        proxy.admin.dependency("fraud-api")["bulkheads"][0]["in_flight"] == 0
    });
}
