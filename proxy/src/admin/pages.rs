//! What each page of the two addresses says.

use std::sync::Arc;

use tokio::sync::Mutex;

use super::answer::{Answer, JSON, TEXT};
use super::connection::{Pages, Reply, Request};
use super::control::{Control, Facts, ForceOrder, ForceRefused, PutAnswer};
use super::force::parse_order;
use super::metrics;
use super::route::{Page, admit};
use super::status::{Status, circuit};
use super::token::Token;
use crate::report::{Collector, Decision, Report};

/// Decisions in one answer when nobody says how many.
const DECISIONS: usize = 100;

const INDEX: &str = "\
plimsoll-proxy admin
  GET  /ready /live /metrics /status                    free
  GET  /policy /config-dump /decisions /events          with Authorization: Bearer TOKEN
  PUT  /policy                                          with the token: hand policy over as YAML
  POST /dependencies/NAME/circuit {\"state\":..,\"ttl\":..}  with the token: force a breaker
  POST /drain                                           with the token
";

/// The pages of the admin address.
#[derive(Debug)]
pub(super) struct AdminPages<C> {
    pub control: Arc<C>,
    pub report: Report,
    pub collector: Mutex<Collector>,
    pub token: Token,
}

/// The pages of the health address: `/ready` and `/live`, and nothing else, for whoever can reach it.
#[derive(Debug)]
pub(super) struct HealthPages<C> {
    pub control: Arc<C>,
}

impl<C: Control> Pages for HealthPages<C> {
    fn admit(&self, request: &Request) -> Result<(), Answer> {
        if !matches!(request.path.as_str(), "/ready" | "/live") {
            return Err(Answer::error(404, "this address serves /ready and /live"));
        }
        match request.method.as_str() {
            "GET" | "HEAD" => Ok(()),
            _ => Err(Answer::method_not_allowed("GET, HEAD")),
        }
    }

    async fn serve(&self, request: Request) -> Reply {
        Reply::Answer(if request.path == "/ready" { ready(&*self.control) } else { live() })
    }
}

impl<C: Control> Pages for AdminPages<C> {
    fn admit(&self, request: &Request) -> Result<(), Answer> {
        admit(request, &self.token).map(drop)
    }

    async fn serve(&self, request: Request) -> Reply {
        let Some(page) = Page::of(&request.path) else {
            return Reply::Answer(Answer::error(404, "no such page"));
        };
        Reply::Answer(match page {
            Page::Index => Answer::text(200, TEXT, INDEX),
            Page::Ready => ready(&*self.control),
            Page::Live => live(),
            Page::Metrics => self.metrics().await,
            Page::Status => self.status().await,
            Page::Policy if request.method == "PUT" => self.put_policy(request).await,
            Page::Policy => Answer::text(200, "application/yaml", self.control.policy()),
            Page::ConfigDump => Answer::json(200, &self.control.config_dump()),
            Page::Decisions => self.decisions(&request.query).await,
            Page::Events => return Reply::Events(self.report.events().subscribe()),
            Page::Circuit(name) => self.force(name, &request.body),
            Page::Drain => self.drain(),
        })
    }
}

impl<C: Control> AdminPages<C> {
    async fn metrics(&self) -> Answer {
        let mut collector = self.collector.lock().await;
        collector.collect().await;
        Answer::text(200, metrics::CONTENT_TYPE, metrics::page(self.control.facts(), &collector.reading()))
    }

    async fn status(&self) -> Answer {
        let mut collector = self.collector.lock().await;
        collector.collect().await;
        let facts = self.control.facts();
        Answer::json(200, &Status::new(&facts, &collector.reading()))
    }

    async fn put_policy(&self, request: Request) -> Answer {
        let Ok(text) = String::from_utf8(request.body) else {
            return Answer::error(400, "the body must be YAML in UTF-8");
        };
        let name = request.file.filter(|name| !name.is_empty()).unwrap_or_else(|| "-".to_owned());
        // A task of its own: a caller who hangs up must not stop a swap halfway.
        let control = self.control.clone();
        let put = tokio::task::spawn_local(async move { control.put_policy(name, text).await });
        match put.await {
            Ok(answer) => put_answer(answer),
            Err(_) => Answer::error(500, "applying the policy failed inside the proxy; its log says why"),
        }
    }

    async fn decisions(&self, query: &str) -> Answer {
        #[derive(serde::Serialize)]
        struct Body {
            decisions: Vec<Decision>,
            dropped: u64,
        }
        let (limit, id) = match parse_decisions_query(query) {
            Ok(parsed) => parsed,
            Err(error) => return Answer::error(400, error),
        };
        let mut collector = self.collector.lock().await;
        collector.collect().await;
        let dropped = collector.reading().dropped().decisions;
        Answer::json(200, &Body { decisions: self.report.decisions().newest(limit, id), dropped })
    }

    fn force(&self, name: String, body: &[u8]) -> Answer {
        let order = match parse_order(name, body) {
            Ok(order) => order,
            Err(error) => return Answer::error(400, error),
        };
        match self.control.force(&order) {
            Ok(()) => forced_circuit(&self.control.facts(), &order),
            Err(refused @ ForceRefused::Ambiguous(_)) => Answer::error(409, refused.to_string()),
            Err(refused) => Answer::error(404, refused.to_string()),
        }
    }

    fn drain(&self) -> Answer {
        self.control.drain();
        Answer { status: 202, content_type: JSON, body: b"{\"draining\":true}\n".to_vec(), allow: None }
    }
}

fn ready(control: &impl Control) -> Answer {
    if control.ready() { Answer::text(200, TEXT, "ready\n") } else { Answer::text(503, TEXT, "not ready\n") }
}

fn live() -> Answer {
    Answer::text(200, TEXT, "live\n")
}

fn put_answer(answer: PutAnswer) -> Answer {
    match answer {
        PutAnswer::Accepted { generation, warnings, open_circuits } => Answer::json(
            200,
            &serde_json::json!({
                "accepted": true, "generation": generation, "warnings": warnings, "open_circuits": open_circuits
            }),
        ),
        PutAnswer::Refused { generation, errors } => {
            Answer::json(422, &serde_json::json!({ "accepted": false, "generation": generation, "errors": errors }))
        }
    }
}

/// The breaker that an order was about, as it stands now.
fn forced_circuit(facts: &Facts, order: &ForceOrder) -> Answer {
    let named =
        |name: &str| name == order.dependency || name.split_once('/').is_some_and(|(_, bare)| bare == order.dependency);
    let found = facts.dependencies.iter().filter(|one| named(&one.name)).find_map(|one| {
        let view = one.protection.breakers.iter().find(|view| order.route.is_none() || view.route == order.route)?;
        Some(Answer::json(200, &circuit(one, view, facts.now)))
    });
    // It was there a moment ago; a swap has taken it away since.
    found.unwrap_or_else(|| Answer::error(404, "the breaker is gone"))
}

fn parse_decisions_query(query: &str) -> Result<(usize, Option<&str>), String> {
    let (mut limit, mut id) = (DECISIONS, None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("limit", number)) => {
                limit = number.parse().map_err(|_| format!("limit must be a number, not {number:?}"))?;
            }
            Some(("id", value)) => id = Some(value),
            _ => return Err(format!("{pair:?} is not known here; use limit=N and id=ID")),
        }
    }
    Ok((limit, id))
}
