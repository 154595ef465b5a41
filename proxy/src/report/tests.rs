//! Workers and collector together: nothing lost, nothing twice, everything bounded.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use plimsoll_resilience::{Outcome, Random, Reason, RetryDenied, Summary};
use tokio::task::{LocalSet, spawn_local};

use super::testing::{facts, report};
use super::window::MIN_SAMPLES;
use super::*;

/// The tests keep the number alone: below the cap no series is taken from anybody.
fn id(process: &Report, dependency: &str, route: Option<&str>) -> StatsId {
    process.series(Direction::Outbound, dependency, route).id()
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

/// A worker whose collection runs.
fn worker(report: &Report) -> Rc<WorkerReport> {
    let (worker, collection) = report.worker();
    spawn_local(collection.drive());
    worker
}

fn refused(stats: StatsId, refusal: &Refusal<'_>, worker: &WorkerReport) {
    worker.started(stats);
    worker.call(&CallReport { stats, status: 503, refusal: Some(refusal), ..report() });
}

#[test]
fn what_workers_count_adds_up_whenever_they_are_asked() {
    run(async {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let (process, mut collector) = Report::new(None).unwrap();
            let workers = [worker(&process), worker(&process), worker(&process)];
            let ids = [0, 1, 2, 3].map(|n| id(&process, &format!("shop/{n}"), None));
            let mut naive = BTreeMap::<_, u64>::new();
            for _ in 0..500 {
                let (at, stats) = (random.below(3) as usize, ids[random.below(4) as usize]);
                let status = [200, 404, 503, 0][random.below(4) as usize];
                workers[at].started(stats);
                workers[at].call(&CallReport { stats, status, ..report() });
                *naive.entry((stats, status)).or_default() += 1;
                if random.below(50) == 0 {
                    collector.collect().await;
                }
            }
            collector.collect().await;
            let reading = collector.reading();
            let series: BTreeMap<_, _> =
                reading.series().map(|(name, slot)| (name.dependency.as_str(), slot)).collect();
            for (n, &stats) in ids.iter().enumerate() {
                let slot = series[format!("shop/{n}").as_str()];
                let of = |status| naive.get(&(stats, status)).copied().unwrap_or(0);
                assert_eq!(slot.ended, [0, of(200), 0, of(404), of(503), of(0)], "seed {seed}");
                assert_eq!(slot.duration.count(), slot.ended.iter().sum::<u64>(), "seed {seed}");
                assert_eq!(slot.in_flight(), 0, "seed {seed}");
            }
        }
    });
}

#[test]
fn a_flights_summary_is_counted_by_kind_outcome_and_cause() {
    run(async {
        let (process, mut collector) = Report::new(None).unwrap();
        let worker = worker(&process);
        let stats = id(&process, "shop/fraud-api", None);
        let summary = Summary {
            first: Some(Outcome::Failure),
            retries: [1, 0, 2, 0, 0],
            retry_denied: Some(RetryDenied::Budget),
            queued: Duration::from_millis(3),
            ..Summary::default()
        };
        worker.call(&CallReport { stats, summary, ..report() });
        collector.collect().await;
        let (_, slot) = collector.reading().series().next().unwrap();
        assert_eq!(slot.attempts, [[0, 1, 0, 0, 0], [1, 0, 2, 0, 0]]);
        for (cause, count) in super::stats::RETRY_DENIED_CAUSES.iter().zip(slot.retries_denied) {
            assert_eq!(count, u64::from(*cause == RetryDenied::Budget), "{cause:?}");
        }
        assert_eq!((slot.queue_wait.count(), slot.queue_wait.sum_us), (1, 3_000));
    });
}

#[test]
fn the_list_of_causes_is_in_the_order_of_the_enum() {
    for (index, cause) in super::stats::RETRY_DENIED_CAUSES.iter().enumerate() {
        assert_eq!(*cause as usize, index);
    }
}

#[test]
fn a_call_in_progress_is_in_flight_over_any_number_of_collections() {
    run(async {
        let (process, mut collector) = Report::new(None).unwrap();
        let (first, second) = (worker(&process), worker(&process));
        let stats = StatsId::INBOUND;
        first.started(stats);
        second.started(stats);
        collector.collect().await;
        collector.collect().await;
        assert_eq!(collector.reading().counted(Direction::Inbound, None).in_flight, 2);
        first.call(&CallReport { stats, ..report() });
        collector.collect().await;
        assert_eq!(collector.reading().counted(Direction::Inbound, None).in_flight, 1);
    });
}

#[test]
fn percentiles_need_fifty_samples_and_forget_after_thirty_seconds() {
    run(async {
        let (process, mut collector) = Report::new(None).unwrap();
        let worker = worker(&process);
        let stats = id(&process, "shop/fraud-api", None);
        let route = id(&process, "shop/fraud-api", Some("charge"));
        let sample = |stats, millis| {
            let latency = Some(Duration::from_millis(millis));
            worker.call(&CallReport { stats, summary: Summary { latency, ..Summary::default() }, ..report() });
        };
        (1..MIN_SAMPLES).for_each(|millis| sample(stats, millis));
        assert_eq!(collector.tick().await.of(stats), None);
        sample(route, MIN_SAMPLES);
        let published = collector.tick().await;
        let percentiles = published.of(stats).unwrap();
        assert_eq!((published.of(route), worker.percentiles(route)), (Some(percentiles), Some(percentiles)));
        assert_eq!(percentiles.samples, MIN_SAMPLES);
        for (got, want) in [(percentiles.p50, 25), (percentiles.p90, 45), (percentiles.p99, 50)] {
            let off = got.abs_diff(Duration::from_millis(want));
            assert!(off <= Duration::from_millis(want) / 100, "{got:?} is not {want} ms to two digits");
        }
        for _ in 0..29 {
            collector.tick().await;
        }
        assert_eq!(worker.percentiles(stats), None, "the 49 of the first second are gone");
        assert_eq!(collector.reading().counted(Direction::Outbound, None).requests_total, MIN_SAMPLES);
    });
}

#[test]
fn a_worker_that_answers_late_loses_nothing() {
    run(async {
        let (process, mut collector) = Report::new(None).unwrap();
        let (worker, collection) = process.worker();
        worker.call(&report());
        collector.collect().await;
        assert_eq!(collector.reading().counted(Direction::Outbound, None).requests_total, 0);
        // The first question is answered with the first batch, the second one with what came after it.
        spawn_local(collection.drive());
        worker.call(&report());
        collector.collect().await;
        assert_eq!(collector.reading().counted(Direction::Outbound, None).requests_total, 2);
    });
}

#[test]
fn a_worker_that_ends_leaves_what_it_counted() {
    run(async {
        let (process, mut collector) = Report::new(None).unwrap();
        let (worker, collection) = process.worker();
        worker.call(&report());
        drop((worker, collection));
        collector.collect().await;
        assert_eq!(collector.reading().counted(Direction::Outbound, None).requests_total, 1);
    });
}

#[test]
fn a_storm_of_refusals_does_not_push_others_out_of_the_log() {
    run(async {
        let (process, mut collector) = Report::new(None).unwrap();
        let worker = worker(&process);
        let loud = id(&process, "shop/loud", None);
        let quiet = id(&process, "shop/quiet", None);
        let full = Refusal { policy: Some("shop/loud"), ..Refusal::new(Reason::BulkheadFull) };
        refused(quiet, &Refusal { policy: Some("shop/quiet"), ..Refusal::new(Reason::CircuitOpen) }, &worker);
        for _ in 0..5_000 {
            refused(loud, &full, &worker);
        }
        refused(loud, &Refusal::new(Reason::RequestTimeout), &worker);
        collector.collect().await;
        let reasons: Vec<_> = process.decisions().newest(usize::MAX, None).iter().map(Decision::reason).collect();
        let kept = usize::from(decisions::KEPT_PER_HAND_OVER);
        assert_eq!(reasons.iter().filter(|reason| **reason == "BulkheadFull").count(), kept);
        assert_eq!((reasons[0], reasons[kept + 1]), ("RequestTimeout", "CircuitOpen"));
        let reading = collector.reading();
        assert_eq!(reading.dropped().decisions, 5_000 - kept as u64);
        assert_eq!(reading.counted(Direction::Outbound, Some("shop/loud")).rejections["BulkheadFull"], 5_000);
        // After the hand-over there is room again.
        refused(loud, &full, &worker);
        assert_eq!(process.decisions().newest(1, None)[0].reason(), "BulkheadFull");
    });
}

#[test]
fn a_caller_that_went_away_was_refused_nothing() {
    run(async {
        let (process, mut collector) = Report::new(None).unwrap();
        let worker = worker(&process);
        let gone = Refusal::new(Reason::ClientGone);
        let report = CallReport { status: 0, refusal: Some(&gone), ..report() };
        assert_eq!(report.reason(), Some(Reason::ClientGone), "it is logged");
        worker.started(report.stats);
        worker.call(&report);
        collector.collect().await;
        let counted = collector.reading().counted(Direction::Outbound, Some("unlisted"));
        assert_eq!((counted.requests_total, counted.in_flight), (1, 0));
        assert!(counted.rejections.is_empty());
        assert!(process.decisions().newest(1, None).is_empty());
    });
}

#[test]
fn the_log_keeps_the_newest() {
    let (process, _collector) = Report::new(None).unwrap();
    let (worker, _collection) = process.worker();
    // Each under a series of its own, so that none is left out.
    for n in 0..=decisions::CAPACITY {
        let stats = id(&process, &format!("shop/{}", n % 900), None);
        let reason = Reason::ALL[n / 900];
        worker.would_refuse(stats, &Refusal::new(reason), &facts());
    }
    let all = process.decisions().newest(usize::MAX, None);
    assert_eq!(all.len(), decisions::CAPACITY);
    let ids: std::collections::BTreeSet<_> = all.iter().map(|decision| decision.id.clone()).collect();
    assert_eq!(ids.len(), all.len(), "every id is its own");
    assert_eq!(process.decisions().newest(5, Some("no such id")).len(), 0);
}

#[test]
fn callers_cannot_grow_the_list_of_unlisted_destinations() {
    run(async {
        let (process, mut collector) = Report::new(None).unwrap();
        let worker = worker(&process);
        for n in 0..10_000 {
            let host = format!("{n}.{}.example:443", "x".repeat(1_000));
            let facts = CallFacts { host: host.as_bytes(), ..facts() };
            worker.call(&CallReport { facts, ..report() });
        }
        collector.collect().await;
        let top: Vec<_> = collector.reading().unlisted(usize::MAX).collect();
        assert!(top.len() <= 128 && top.iter().all(|(name, _)| name.len() <= 300), "{}", top.len());
        assert_eq!(collector.reading().counted(Direction::Outbound, Some("unlisted")).requests_total, 10_000);
    });
}

#[test]
fn each_call_has_one_line_in_the_access_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("access.log");
    let (process, collector) = Report::new(Some((Target::File(path.clone()), LogFormat::Json))).unwrap();
    let (worker, collection) = process.worker();
    let other = process.worker();
    for status in [200, 404] {
        worker.call(&CallReport { status, ..report() });
        other.0.call(&CallReport { status, ..report() });
    }
    drop((worker, collection, other, collector, process));
    let text = std::fs::read_to_string(path).unwrap();
    let mut statuses: Vec<_> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["status"].as_u64().unwrap())
        .collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 404, 404]);
}

/// A thousand series less `room`, held by somebody.
fn all_but(room: usize, process: &Report) -> Vec<Series> {
    let fill = |n| process.series(Direction::Outbound, &format!("fill/{n}"), None);
    (0..MAX_SERIES - 3 - room).map(fill).collect()
}

#[test]
fn an_id_gets_another_name_only_when_every_worker_has_handed_over() {
    run(async {
        let (process, mut collector) = Report::new(None).unwrap();
        let quick = worker(&process);
        let (slow, collection) = process.worker();
        let (ending, its_collection) = process.worker();
        let old = process.series(Direction::Outbound, "shop/old", None);
        let (id, mut held) = (old.id(), all_but(1, &process));
        let call = |worker: &WorkerReport, stats| {
            worker.started(stats);
            worker.call(&CallReport { stats, ..report() });
        };
        (0..MIN_SAMPLES).for_each(|_| call(&quick, id));
        collector.tick().await;
        assert!(quick.percentiles(id).is_some());
        [&quick, &slow, &ending].into_iter().for_each(|worker| call(worker, id));
        drop(old);
        let mut names = (0..).map(|n| format!("shop/{n}"));
        let mut next = || {
            let series = process.series(Direction::Outbound, &names.next().unwrap(), None);
            held.push(series.clone());
            // The place for the next one.
            drop(held.swap_remove(0));
            series.id()
        };
        assert!(next() != id, "it has just begun to leave");
        drop((ending, its_collection));
        collector.tick().await;
        assert!(next() != id && next() != id, "a worker has not answered");
        spawn_local(collection.drive());
        collector.tick().await;
        assert_eq!(quick.percentiles(id), None, "what was published is withdrawn");
        let new = (3..10).find(|_| next() == id).expect("it is free");
        call(&slow, id);
        collector.collect().await;
        let seen: Vec<_> = collector.reading().series().map(|(name, slot)| (&*name.dependency, slot.started)).collect();
        assert_eq!(seen, [(&*format!("shop/{new}"), 1)]);
        assert_eq!(process.shared.catalog.dropped(), 0);
    });
}

/// A generation: the names it has, and what it holds.
type Generation = Vec<(usize, Series)>;

#[test]
fn no_call_is_counted_under_another_name_however_names_come_and_go() {
    const NAMES: usize = 12;
    let name = |n: usize| format!("shop/{n}");
    run(async {
        for seed in 0..5 {
            let mut random = Random::new(seed);
            let (process, mut collector) = Report::new(None).unwrap();
            let workers = [worker(&process), worker(&process)];
            let mut _held = all_but(6, &process);
            let mut naive = [(0, 0); NAMES];
            let mut in_force = Rc::new(Generation::new());
            let mut calls: Vec<(Rc<Generation>, usize)> = Vec::new();
            for _ in 0..400 {
                let worker = &workers[random.below(2) as usize];
                match random.below(8) {
                    0 => {
                        let generation = (0..2).map(|_| {
                            let n = random.below(NAMES as u64) as usize;
                            let known = process.shared.catalog.names();
                            if !known.iter().flatten().any(|known| known.dependency == name(n)) {
                                naive[n] = (0, 0);
                            }
                            (n, process.series(Direction::Outbound, &name(n), None))
                        });
                        in_force = Rc::new(generation.collect());
                        // Asked for again: what is in use is not spared for being new.
                        _held = all_but(6, &process);
                    }
                    1 => drop(collector.tick().await),
                    2..5 if calls.len() < 3 && !in_force.is_empty() => {
                        let at = random.below(2) as usize;
                        let (n, series) = &in_force[at];
                        worker.started(series.id());
                        naive[*n].0 += u64::from(series.id() != StatsId::OTHER);
                        calls.push((Rc::clone(&in_force), at));
                    }
                    _ => {
                        let Some((generation, at)) = calls.pop() else { continue };
                        let (n, series) = &generation[at];
                        worker.call(&CallReport { stats: series.id(), ..report() });
                        naive[*n].1 += u64::from(series.id() != StatsId::OTHER);
                    }
                }
            }
            collector.tick().await;
            let known = process.shared.catalog.names();
            let reading = collector.reading();
            for (n, &(started, ended)) in naive.iter().enumerate() {
                let slot = reading.series().find(|(series, _)| series.dependency == name(n)).map(|(_, slot)| slot);
                let seen = slot.map_or((0, 0), |slot| (slot.started, slot.ended.iter().sum()));
                let is_known = known.iter().flatten().any(|known| known.dependency == name(n));
                assert_eq!(seen, if is_known { (started, ended) } else { (0, 0) }, "seed {seed}: {n}");
            }
            assert!(known.len() > MAX_SERIES, "seed {seed}: names were replaced");
        }
    });
}
