//! The customers: calls at a steady rate, whatever becomes of the earlier ones, with the patience and the habit of
//! trying again that make an overload worse.

use std::thread::JoinHandle;
use std::time::Duration;

use http_body_util::Full;
use hyper::Request;
use tokio::sync::oneshot;

use super::measure::{CallId, End, Ledger};
use crate::http::send;

/// How customers behave.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// Calls a second to each rail.
    pub rate: u32,
    /// How long they wait for an answer.
    pub patience: Duration,
    /// How often they try, the first included.
    pub attempts: u32,
    /// How long they pause before trying again.
    pub pause: Duration,
}

/// Customers at work, on a thread of their own: a slow terminal must not slow them down.
#[derive(Debug)]
pub struct Customers {
    /// Dropped, it sends them home.
    open: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    ledger: Ledger,
}

impl Customers {
    /// Begins to call `payments` for each of `rails` rails.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(payments: String, rails: usize, habits: Habits, ledger: Ledger) -> std::io::Result<Customers> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (open, closed) = oneshot::channel();
        let shared = ledger.clone();
        let work = move || {
            runtime.block_on(async {
                for rail in 0..rails {
                    let customer = Customer { payments: payments.clone(), rail, habits, ledger: shared.clone() };
                    // The rails take turns, so that calls do not come in bunches of three.
                    let offset = habits.period() * rail as u32 / rails as u32;
                    tokio::spawn(customer.call_steadily(offset));
                }
                // Nothing is ever sent: the error is the news.
                let _ = closed.await;
            });
            // Dropping the runtime hangs up whatever is still open.
        };
        let thread = std::thread::Builder::new().name("customers".into()).spawn(work)?;
        Ok(Customers { open: Some(open), thread: Some(thread), ledger })
    }
}

impl Drop for Customers {
    fn drop(&mut self) {
        drop(self.open.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed; the figures will not hold.
            let _ = thread.join();
        }
        self.ledger.abandon();
    }
}

impl Habits {
    fn period(&self) -> Duration {
        Duration::from_secs(1) / self.rate
    }
}

#[derive(Clone, Debug)]
struct Customer {
    payments: String,
    rail: usize,
    habits: Habits,
    ledger: Ledger,
}

impl Customer {
    async fn call_steadily(self, offset: Duration) {
        tokio::time::sleep(offset).await;
        let mut ticks = tokio::time::interval(self.habits.period());
        loop {
            ticks.tick().await;
            let customer = self.clone();
            tokio::spawn(async move { customer.call().await });
        }
    }

    async fn call(&self) {
        let id = self.ledger.begin(self.rail);
        let end = self.attempts(id).await;
        self.ledger.end(id, end);
    }

    /// Tries until there is *an* answer: who is told no does not ask again at once, who hears nothing does.
    async fn attempts(&self, id: CallId) -> End {
        for attempt in 1..=self.habits.attempts {
            if attempt > 1 {
                tokio::time::sleep(self.habits.pause).await;
                self.ledger.retry(id);
            }
            let request = Request::post(format!("/pay/{}", self.rail))
                .header("host", &self.payments)
                .body(Full::default())
                .expect("the address is one that was bound");
            let answer = tokio::time::timeout(self.habits.patience, send(&self.payments, request));
            if let Ok(Ok(answer)) = answer.await {
                let paid = answer.status().is_success();
                return if paid { End::Paid } else { End::Refused };
            }
        }
        End::GaveUp
    }
}
