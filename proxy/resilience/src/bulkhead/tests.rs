use proptest::prelude::*;

use super::*;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * 1_000_000)
}

fn config(permits: u32, queued: u32, wait_ms: u64) -> Config {
    Config::new(permits, queued, Duration::from_millis(wait_ms)).unwrap()
}

#[test]
fn no_permits_at_all_is_no_configuration() {
    assert_eq!(Config::new(0, 0, Duration::ZERO).unwrap_err().field, "maxConcurrentCalls");
    assert_eq!(Config::new(1, 2_000_000, Duration::ZERO).unwrap_err().field, "maxQueued");
    assert_eq!(config(1, 5, 0).max_queued(), 0, "a queue in which nobody may wait is none");
}

#[test]
fn a_refusal_names_what_is_out_and_what_may_be() {
    let mut bulkhead = Bulkhead::new(config(1, 0, 0));
    let permit = bulkhead.try_acquire().unwrap();
    let refused = bulkhead.try_acquire().unwrap_err();
    assert_eq!((refused.reason, refused.observed, refused.limit), (Reason::BulkheadFull, 1, 1));
    assert!(bulkhead.enqueue(WaiterId(1), Turn::First, Timestamp::MAX, at(0)).is_err());
    bulkhead.release(permit, at(0));
    let _again = bulkhead.try_acquire().unwrap();
}

#[test]
fn a_clock_that_steps_back_only_lengthens_a_wait() {
    let mut bulkhead = Bulkhead::new(config(1, 2, 10));
    let permit = bulkhead.try_acquire().unwrap();
    let place = bulkhead.enqueue(WaiterId(1), Turn::First, Timestamp::MAX, at(1000)).unwrap();
    let Claim::Waiting(place) = bulkhead.claim(place, at(0)) else { panic!("not granted yet") };
    bulkhead.release(permit, at(999));
    let Claim::Granted(permit) = bulkhead.claim(place, at(998)) else { panic!("granted") };
    bulkhead.release(permit, at(0));
    assert_eq!(bulkhead.in_flight(), 0);
}

#[test]
fn a_granted_waiter_that_leaves_passes_its_permit_on() {
    let mut bulkhead = Bulkhead::new(config(1, 2, 1000));
    let permit = bulkhead.try_acquire().unwrap();
    let first = bulkhead.enqueue(WaiterId(1), Turn::First, Timestamp::MAX, at(0)).unwrap();
    let second = bulkhead.enqueue(WaiterId(2), Turn::First, Timestamp::MAX, at(0)).unwrap();
    bulkhead.release(permit, at(1));
    assert_eq!(bulkhead.poll_granted(), Some(WaiterId(1)));
    assert!(bulkhead.try_acquire().is_err(), "nobody overtakes a grant that is on its way");
    assert_eq!(bulkhead.leave(first, at(2)), None);
    assert_eq!(bulkhead.poll_granted(), Some(WaiterId(2)));
    let Claim::Granted(_permit) = bulkhead.claim(second, at(2)) else { panic!("granted") };
    assert_eq!((bulkhead.in_flight(), bulkhead.queued()), (1, 0));
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Acquire,
    Enqueue { retry: bool, latest: u64 },
    Release(usize),
    Claim(usize),
    Leave(usize),
    Forward(u64),
    Resize { permits: u32, queued: u32 },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => Just(Op::Acquire),
        6 => (any::<bool>(), 0u64..200).prop_map(|(retry, latest)| Op::Enqueue { retry, latest }),
        5 => any::<usize>().prop_map(Op::Release),
        3 => any::<usize>().prop_map(Op::Claim),
        2 => any::<usize>().prop_map(Op::Leave),
        3 => (0u64..60).prop_map(Op::Forward),
        1 => (1u32..6, 0u32..8).prop_map(|(permits, queued)| Op::Resize { permits, queued }),
    ]
}

/// One list, searched from the front each time.
struct Naive {
    config: Config,
    out: u32,
    queue: Vec<(u64, bool, Timestamp)>,
    granted: Vec<u64>,
}

impl Naive {
    fn expire(&mut self, now: Timestamp) {
        self.queue.retain(|&(_, _, until)| until > now);
    }

    fn settle(&mut self, now: Timestamp) {
        while self.out < self.config.max_concurrent() {
            self.expire(now);
            let first = self.queue.iter().position(|&(_, retry, _)| !retry);
            let Some(position) = first.or(if self.queue.is_empty() { None } else { Some(0) }) else {
                return;
            };
            let (id, ..) = self.queue.remove(position);
            self.granted.push(id);
            self.out += 1;
        }
    }
}

fn pick<T>(list: &mut Vec<T>, n: usize) -> Option<T> {
    (!list.is_empty()).then(|| list.swap_remove(n % list.len()))
}

proptest! {
    #[test]
    fn it_grants_as_a_list_does(ops in prop::collection::vec(op(), 1..250), permits in 1u32..5, queued in 0u32..6) {
        let start = config(permits, queued, 100);
        let mut bulkhead = Bulkhead::new(start);
        let mut naive = Naive { config: start, out: 0, queue: Vec::new(), granted: Vec::new() };
        let (mut held, mut places) = (Vec::<Permit>::new(), Vec::<(u64, Place)>::new());
        let (mut now, mut next_id) = (at(0), 0);
        for op in ops {
            match op {
                Op::Forward(ms) => now = now + Duration::from_millis(ms),
                Op::Acquire => {
                    let granted = bulkhead.try_acquire();
                    prop_assert_eq!(granted.is_ok(), naive.out < naive.config.max_concurrent());
                    if let Ok(permit) = granted {
                        held.push(permit);
                        naive.out += 1;
                    }
                }
                Op::Enqueue { retry, latest } => {
                    // As a call does: the queue is for those who found no permit.
                    if naive.out < naive.config.max_concurrent() {
                        continue;
                    }
                    next_id += 1;
                    let latest = now + Duration::from_millis(latest);
                    let turn = if retry { Turn::Retry } else { Turn::First };
                    let place = bulkhead.enqueue(WaiterId(next_id), turn, latest, now);
                    if naive.queue.len() >= naive.config.max_queued() as usize {
                        naive.expire(now);
                    }
                    prop_assert_eq!(place.is_ok(), naive.queue.len() < naive.config.max_queued() as usize);
                    if let Ok(place) = place {
                        places.push((next_id, place));
                        naive.queue.push((next_id, retry, latest.min(now + Duration::from_millis(100))));
                    }
                }
                Op::Release(n) => if let Some(permit) = pick(&mut held, n) {
                    bulkhead.release(permit, now);
                    naive.out -= 1;
                    naive.settle(now);
                }
                Op::Claim(n) => if let Some((id, place)) = pick(&mut places, n) {
                    let position = naive.granted.iter().position(|&granted| granted == id);
                    let waits = naive.queue.iter().any(|&(queued, _, until)| queued == id && until > now);
                    match bulkhead.claim(place, now) {
                        Claim::Granted(permit) => {
                            prop_assert!(position.is_some());
                            naive.granted.remove(position.unwrap());
                            held.push(permit);
                        }
                        Claim::Waiting(place) => {
                            prop_assert!(waits);
                            places.push((id, place));
                        }
                        Claim::Expired(rejected) => {
                            prop_assert!(position.is_none() && !waits);
                            prop_assert_eq!(rejected.reason, Reason::BulkheadWaitTimeout);
                            naive.queue.retain(|&(queued, ..)| queued != id);
                        }
                    }
                }
                Op::Leave(n) => if let Some((id, place)) = pick(&mut places, n) {
                    bulkhead.leave(place, now);
                    naive.queue.retain(|&(queued, ..)| queued != id);
                    if let Some(position) = naive.granted.iter().position(|&granted| granted == id) {
                        naive.granted.remove(position);
                        naive.out -= 1;
                        naive.settle(now);
                    }
                }
                Op::Resize { permits, queued } => {
                    naive.config = config(permits, queued, 100);
                    bulkhead.resize(naive.config, now);
                    naive.settle(now);
                }
            }
            bulkhead.check_invariants();
            prop_assert_eq!(bulkhead.in_flight(), naive.out);
            let woken: Vec<_> = std::iter::from_fn(|| bulkhead.poll_granted()).map(|waiter| waiter.0).collect();
            prop_assert!(woken.iter().all(|id| naive.granted.contains(id)), "{woken:?} of {:?}", naive.granted);
        }
    }
}
