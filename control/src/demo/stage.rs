//! The processes of the demo, and one run of the play on them.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::Value;

use super::child::Child;
use super::customers::{Customers, Habits};
use super::measure::{Ledger, Stretch};
use super::plan::Plan;
use super::screen::{Board, CustomerCounts, Row, Screen};
use super::services::{PaymentsNumbers, backstage};
use super::summary::{Run, habits};
use crate::Failure;
use crate::admin::shapes::{Decision, PushAnswer, Status};
use crate::admin::{Admin, ProxyAddress};
use crate::figures::span;

/// Slots of the payment service: what a service with a pool of threads or connections typically has.
pub const POOL: u64 = 200;
/// A rail that is well.
const WELL: Duration = Duration::from_millis(50);
/// A rail that is not: slow, but without an error.
const ILL: Duration = Duration::from_secs(8);
/// 25 calls/s x 8 s = the 200 slots: the slow rail fills the pool in 8 s, and sooner with the repeated calls.
const HABITS: Habits = Habits {
    rate: 25,
    // Longer than the 2 s after which the policy answers for a rail that does not.
    patience: Duration::from_millis(2500),
    attempts: 3,
    pause: Duration::from_millis(100),
};

/// Connections are made and pages touched for the first time: not measured.
const WARM_UP: Duration = Duration::from_secs(1);
/// Every rail is well.
const BEFORE: Duration = Duration::from_secs(6);
/// One is slow.
const SLOW: Duration = Duration::from_secs(15);
/// Calls that began last may end.
const SETTLE: Duration = Duration::from_secs(1);
/// Start-up and the restart in between, for the clock on the board.
const SET_UP: Duration = Duration::from_secs(2);
/// How often everything is looked at.
const TICK: Duration = Duration::from_millis(250);

/// Everything that runs. Dropped: all of it is killed, and the terminal is as it was.
#[derive(Debug)]
pub struct Stage {
    /// What is played.
    pub plan: Plan,
    /// Where it is shown.
    pub screen: Screen,
    myself: PathBuf,
    admin: Admin,
    sidecar: Child,
    rails: Vec<Child>,
    began: Instant,
    // Last: the logs in it are read until the children are gone.
    dir: tempfile::TempDir,
}

/// One run of the play, under way.
struct Scene<'a> {
    title: String,
    slow: bool,
    since: Duration,
    ledger: &'a Ledger,
    payments: &'a str,
}

impl Stage {
    /// Starts the sidecar, which knows where the rails are and nothing else, and the rails.
    ///
    /// # Errors
    /// When a process does not get ready: with the end of its log.
    pub async fn set(proxy: &Path) -> Result<Stage, Failure> {
        let began = Instant::now();
        allow_many_connections()?;
        let plan = Plan::new()?;
        let dir = tempfile::Builder::new().prefix("plimsoll-demo-").tempdir()?;
        let myself = std::env::current_exe()?;
        let mut rails = Vec::new();
        for rail in &plan.rails {
            let port = rail.endpoint.port().to_string();
            let well = WELL.as_millis().to_string();
            let args = ["demo-rail", "--port", &port, "--millis", &well];
            let name = format!("rail-{}", rail.name);
            rails.push(Child::start(&name, &myself, args.map(OsString::from).into(), dir.path()).await?.0);
        }
        let (sidecar, admin) = start_sidecar(proxy, &plan, dir.path()).await?;
        Ok(Stage { plan, screen: Screen::new(), myself, admin, sidecar, rails, began, dir })
    }

    /// The rail that turns slow: the last, so that the table shows the healthy ones first.
    pub fn slow_rail(&self) -> usize {
        self.plan.rails.len() - 1
    }

    /// Says what is about to happen.
    ///
    /// # Errors
    /// When standard output is gone.
    pub fn introduce(&mut self) -> Result<(), Failure> {
        let names: Vec<_> = self.plan.rails.iter().map(|rail| rail.name.as_str()).collect();
        let slow = names[self.slow_rail()];
        for (wanted, instead) in &self.plan.moved {
            self.screen.say(&format!("{wanted} is in use here: {instead} is used in its place."))?;
        }
        self.screen.say(&format!(
            "A payment service with {POOL} slots calls the rails {}\n\
             through one plimsoll-proxy. All of them are processes on this machine.\n\
             {}\n\
             Then {slow} turns from {} to {}, without an error: first without policy,\n\
             then with examples/payments.yaml.\n",
            names.join(", "),
            habits(&HABITS),
            span(WELL),
            span(ILL),
        ))?;
        Ok(())
    }

    /// Plays it once: every rail well, then one slow. Returns when they were well, and what was measured after.
    ///
    /// # Errors
    /// When a process ends early.
    pub async fn play(&mut self, title: &str, ledger: &Ledger) -> Result<(Stretch, Run), Failure> {
        self.pace(WELL).await?;
        let (payments, address) = self.start_payments().await?;
        let customers = Customers::start(address.clone(), self.plan.rails.len(), HABITS, ledger.clone())?;
        let since = ledger.now();
        let mut scene =
            Scene { title: format!("{title}: every rail is well"), slow: false, since, ledger, payments: &address };
        let before = Stretch { from: since + WARM_UP, to: since + WARM_UP + BEFORE };
        self.show_until(before.to, &scene).await?;

        self.pace(ILL).await?;
        let turned = ledger.now();
        let slow = Stretch { from: turned, to: turned + SLOW };
        let name = &self.plan.rails[self.slow_rail()].name;
        scene.title = format!("{title}: {name} answers in {}", span(ILL));
        scene.slow = true;
        self.show_until(slow.to + SETTLE, &scene).await?;
        let run = self.measure(slow, &scene).await?;
        drop(customers);
        payments.end().await?;
        Ok((before, run))
    }

    /// Hands the sidecar the policy that the demo is about.
    ///
    /// # Errors
    /// When it refuses.
    pub async fn push_policy(&mut self) -> Result<(), Failure> {
        let pushed = self.admin.push("examples/payments.yaml", self.plan.policy.clone()).await?;
        let answer: PushAnswer = self.admin.read(&pushed.json)?;
        if !answer.accepted {
            let errors: Vec<_> = answer.errors.iter().map(|e| e.text.as_str()).collect();
            return Err(format!("the proxy refused examples/payments.yaml:\n{}", errors.join("\n")).into());
        }
        self.screen.say(&format!(
            "\nThe payment service is restarted, and examples/payments.yaml pushed to the proxy,\n\
             which runs on: generation {} is in force.\n",
            answer.generation
        ))?;
        Ok(())
    }

    /// A refusal of the sidecar in the words of `plimsoll explain`.
    pub async fn last_refusal(&self) -> Option<String> {
        let decisions = self.admin.decisions(1, None).await.ok()?;
        let decision: Decision = self.admin.read(decisions["decisions"].get(0)?).ok()?;
        let status: Status = self.admin.read(&self.admin.status().await.ok()?).ok()?;
        Some(crate::explain::page(&decision, &status, self.screen.paint()))
    }

    /// Ends every process.
    ///
    /// # Errors
    /// When the system does not let us.
    pub async fn end(self) -> Result<(), Failure> {
        for child in self.rails.into_iter().chain([self.sidecar]) {
            child.end().await?;
        }
        self.dir.close()?;
        Ok(())
    }

    /// Has the rail that turns slow answer in `typical` from now on.
    async fn pace(&self, typical: Duration) -> Result<(), Failure> {
        let order = format!("millis={}", typical.as_millis());
        let address = self.plan.rails[self.slow_rail()].endpoint.to_string();
        backstage::<Value>(&address, Some(&order)).await?;
        Ok(())
    }

    async fn start_payments(&self) -> Result<(Child, String), Failure> {
        let mut args = vec!["demo-payments".into(), "--pool".into(), POOL.to_string().into()];
        for rail in &self.plan.rails {
            args.extend(["--rail".into(), OsString::from(rail.listen.to_string())]);
        }
        let (child, ready) = Child::start("payments", &self.myself, args, self.dir.path()).await?;
        let address = ready["listen"].as_str().unwrap_or_default().to_owned();
        Ok((child, address))
    }

    async fn show_until(&mut self, end: Duration, scene: &Scene<'_>) -> Result<(), Failure> {
        let mut ticks = tokio::time::interval(TICK);
        // A look that took long is not made up for by looking twice.
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while scene.ledger.now() < end {
            ticks.tick().await;
            let board = self.board(scene).await?;
            self.screen.show(&board)?;
            self.sidecar.check().await?;
            for rail in &mut self.rails {
                rail.check().await?;
            }
        }
        Ok(())
    }

    async fn board(&self, scene: &Scene<'_>) -> Result<Board, Failure> {
        // A busy sidecar that does not answer once leaves its columns empty; that is no reason to stop.
        let sidecar: Status = match self.admin.status().await {
            Ok(json) => self.admin.read(&json)?,
            Err(_) => Status::default(),
        };
        let row = |(i, rail): (usize, &super::plan::Rail)| Row {
            rail: rail.name.clone(),
            slow: scene.slow && i == self.slow_rail(),
            recent: scene.ledger.recent(scene.since, i),
            sidecar: sidecar.dependencies.iter().find(|d| d.policy == rail.policy).cloned(),
        };
        let so_far = Stretch { from: scene.since, to: Duration::MAX };
        let figures = scene.ledger.figures(&[so_far], |_| true);
        Ok(Board {
            title: scene.title.clone(),
            elapsed: self.began.elapsed(),
            total: SET_UP + 2 * (WARM_UP + BEFORE + SLOW + SETTLE),
            rows: self.plan.rails.iter().enumerate().map(row).collect(),
            payments: backstage(scene.payments, None).await?,
            pool: POOL,
            customers: CustomerCounts { calls: figures.calls, retries: figures.retries, failed: figures.failed },
        })
    }

    async fn measure(&self, slow: Stretch, scene: &Scene<'_>) -> Result<Run, Failure> {
        let ill = self.slow_rail();
        let payments: PaymentsNumbers = backstage(scene.payments, None).await?;
        let rail = self.plan.rails[ill].endpoint.to_string();
        Ok(Run {
            healthy: scene.ledger.figures(&[slow], |rail| rail != ill),
            slow: scene.ledger.figures(&[slow], |rail| rail == ill),
            slow_rail: backstage(&rail, None).await?,
            payments,
        })
    }
}

/// Up to a thousand calls wait at once in the first run, and the usual soft limit is 1024 descriptors. Children
/// inherit what is set here.
fn allow_many_connections() -> std::io::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(hard.min(8192)), hard)?;
    Ok(())
}

async fn start_sidecar(proxy: &Path, plan: &Plan, dir: &Path) -> Result<(Child, Admin), Failure> {
    let policy = dir.join("targets.yaml");
    std::fs::write(&policy, &plan.targets_only)?;
    let mut args: Vec<OsString> = Vec::new();
    for listener in ["--inbound", "--outbound", "--admin", "--health"] {
        args.extend([listener.into(), "127.0.0.1:0".into()]);
    }
    let files: [(&str, &Path); 2] = [("--policy", &policy), ("--state-dir", dir)];
    args.extend(files.iter().flat_map(|(flag, file)| [flag.into(), file.into()]));
    let names = [("--workload", &plan.workload), ("--namespace", &plan.namespace)];
    args.extend(names.iter().flat_map(|(flag, name)| [flag.into(), name.into()]));
    let (child, ready) = Child::start("plimsoll-proxy", proxy, args, dir).await?;
    let admin: SocketAddr = ready["admin"]
        .as_str()
        .and_then(|text| text.parse().ok())
        .ok_or("plimsoll-proxy did not say where its admin address is")?;
    Ok((child, Admin::of_state_dir(ProxyAddress::from(admin), dir)))
}
