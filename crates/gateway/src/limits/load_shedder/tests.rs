//! Tests of the control law of load shedding on a simulated machine: requests queue for one thread, each has
//! a certain cost, and a refusal a small one.

use super::admission_controller::{AdmissionController, ProbeMeasurement};
use super::*;

const TARGET: Duration = Duration::from_millis(50);

/// The results of a simulated minute.
#[derive(Debug, Default)]
struct SimulatedMinute {
    admitted: usize,
    refused: usize,
    /// The waits of the admitted requests, in milliseconds.
    admitted_waits: Vec<f64>,
    /// The waits of the refused requests.
    refusal_waits: Vec<f64>,
}

impl SimulatedMinute {
    fn refusal_percentile(&mut self, part: f64) -> f64 {
        std::mem::swap(&mut self.admitted_waits, &mut self.refusal_waits);
        let refusal = self.percentile(part);
        std::mem::swap(&mut self.admitted_waits, &mut self.refusal_waits);
        refusal
    }

    fn percentile(&mut self, part: f64) -> f64 {
        self.admitted_waits.sort_by(f64::total_cmp);
        let last = self.admitted_waits.len().saturating_sub(1);
        self.admitted_waits
            .get((self.admitted_waits.len() as f64 * part) as usize)
            .or(self.admitted_waits.get(last))
            .copied()
            .unwrap_or(0.0)
    }
}

/// Simulates requests at this rate, evenly and in small bursts. Each takes `cost` seconds of the thread.
fn simulate_minute(per_second: f64, cost: f64, refusal: f64) -> SimulatedMinute {
    let start = Instant::now();
    // A dedicated machine: the CPU time of its thread is the wall time.
    let mut load = MeasuredLoad::new(start);
    load.cpu_time = || Duration::from_secs(1 << 20);
    load.target_delay.store(nanos(TARGET), Relaxed);
    let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
    let (mut law, mut minute) = (AdmissionController::default(), SimulatedMinute::default());
    // The time at which the thread is free, the time of the next probe, and the counts at the last one.
    let (mut free, mut probe, mut last, mut counted) = (0.0_f64, 0.0, 0.0, (0, 0));
    let mut index = 0_u64;
    loop {
        let heap = 4.0;
        let arrival = (index / 4) as f64 * heap / per_second;
        if arrival > 60.0 {
            return minute;
        }
        while probe <= arrival {
            let now = free.max(probe);
            let measurement = ProbeMeasurement {
                delay: Duration::from_secs_f64(now - probe),
                elapsed: Duration::from_secs_f64(now - last),
                admitted: minute.admitted as u64 - counted.0,
                refused: minute.refused as u64 - counted.1,
            };
            (last, counted) = (now, (minute.admitted as u64, minute.refused as u64));
            load.set_rate(law.update(measurement, TARGET));
            probe = now + 0.002;
        }
        let begins = free.max(arrival);
        let waits = if probe < begins { nanos(at(probe) - start) } else { 0 };
        load.probe_wait_start.store(waits, Relaxed);
        if load.try_take_slot(at(begins)) {
            minute.admitted += 1;
            free = begins + cost;
            minute.admitted_waits.push((begins - arrival) * 1e3);
        } else {
            minute.refused += 1;
            free = begins + refusal;
            minute.refusal_waits.push((free - arrival) * 1e3);
        }
        index += 1;
    }
}

#[test]
fn admitted_requests_wait_briefly_at_four_times_the_capacity() {
    for cost in [0.0001, 0.0005, 0.002] {
        let capacity = 1.0 / cost;
        let mut minute = simulate_minute(4.0 * capacity, cost, cost / 10.0);
        let (p99, taken) = (minute.percentile(0.99), minute.admitted as f64 * cost / 60.0);
        assert!(p99 < 3.0, "of {cost} s: {p99} ms");
        // Refusals take more than a third of the time.
        assert!(taken > 0.4, "of {cost} s: {taken} of the time was used");
        assert!(
            minute.refusal_percentile(0.99) < 10.0,
            "of {cost} s: a refusal took {} ms",
            minute.refusal_percentile(0.99)
        );
    }
}

#[test]
fn refuses_nothing_below_capacity() {
    for part in [0.1, 0.5, 0.9] {
        let mut minute = simulate_minute(part * 5000.0, 0.0002, 0.00002);
        assert_eq!(minute.refused, 0, "at {part}");
        assert!(minute.percentile(1.0) < 5.0);
    }
}

/// A machine on which a thread alternately gets `turn` seconds, and waits `pause` seconds for other
/// processes.
#[derive(Clone, Copy)]
struct SharedProcessor {
    run_seconds: f64,
    pause_seconds: f64,
}

impl SharedProcessor {
    /// Returns the time at which this much CPU time has been used from `now` on.
    fn finish_time(self, now: f64, cpu: f64) -> f64 {
        let cycle = self.run_seconds + self.pause_seconds;
        // The complete turns, and the rest of the current one.
        let (turns, at) = ((now / cycle).floor(), now - (now / cycle).floor() * cycle);
        let used = at.min(self.run_seconds) + cpu;
        let more = (used / self.run_seconds).floor();
        (turns + more) * cycle + (used - more * self.run_seconds)
    }

    /// Simulates a minute of requests that each take `cost`, where the next one starts `gap` after the
    /// response. Returns whether anything is shed, counting either only the gateway's own part of waits, or
    /// all of them.
    fn is_shedding(self, cost: f64, gap: f64, counts_own: bool) -> bool {
        let (mut law, mut now, mut next, mut last, mut last_cpu) =
            (AdmissionController::default(), 0.0, 0.0, 0.0, 0.0);
        let (mut cpu, mut taken) = (0.0, 0);
        while now < 60.0 {
            // The probe is ready after the request that is there, if any.
            let begun: f64 = now;
            let (ready_at, before) = (begun, cpu);
            let mut free = begun;
            if next <= begun {
                free = self.finish_time(begun, cost);
                (cpu, taken, next) = (cpu + cost, taken + 1, free + gap);
            }
            let ran = self.finish_time(free, 1e-6);
            cpu += 1e-6;
            let elapsed = |from: f64, cpu_then: f64| ProcessTimes {
                wall: Duration::from_secs_f64(ran - from),
                cpu: Duration::from_secs_f64(cpu - cpu_then),
            };
            let (waited, times) = (elapsed(ready_at, before), elapsed(last, last_cpu));
            let delay = if counts_own { waited.own_time(1) } else { waited.wall };
            let measurement = ProbeMeasurement { delay, elapsed: times.wall, admitted: taken, refused: 0 };
            if law.update(measurement, TARGET).is_some() {
                return true;
            }
            (last, last_cpu, taken) = (ran, cpu, 0);
            now = self.finish_time(ran + 0.002, 1e-6);
        }
        false
    }
}

#[test]
fn does_not_shed_a_sequential_client_because_of_other_processes() {
    // Two other processes on the core, and enough for each to wait a tenth of a second.
    for (turn, pause) in [(0.003, 0.006), (0.003, 0.06), (0.002, 0.15)] {
        let machine = SharedProcessor { run_seconds: turn, pause_seconds: pause };
        for (cost, gap) in [(0.0002, 0.0), (0.001, 0.001), (0.003, 0.0)] {
            assert!(!machine.is_shedding(cost, gap, true), "{turn} {pause} {cost} {gap}");
        }
    }
    // By the wall clock this would be an overload.
    assert!(SharedProcessor { run_seconds: 0.002, pause_seconds: 0.15 }.is_shedding(0.003, 0.0, false));
}

#[test]
fn admits_a_single_request_at_any_rate() {
    let now = Instant::now();
    let mut load = MeasuredLoad::new(now);
    load.cpu_time = || Duration::from_secs(1);
    load.target_delay.store(nanos(TARGET), Relaxed);
    let shed = LoadShedder { max_in_flight: 2, load: Arc::new(load) };
    shed.load.set_rate(Some(0.0));
    assert!(shed.try_acquire(now, || true).is_err(), "the queue has not been measured");
    shed.load.last_own_wait.store(0, Relaxed);
    let alone = shed.try_acquire(now, || true).unwrap();
    assert!(shed.try_acquire(now, || true).is_err(), "two are not alone");
    drop(alone);
    let later = now + 2 * admission_controller::acceptable_delay(TARGET);
    shed.load.begin_wait(now + Duration::from_nanos(1), Duration::ZERO);
    assert!(shed.try_acquire(later, || true).is_err(), "the probe waits for other tasks");
    shed.load.begin_wait(now + Duration::from_nanos(1), Duration::from_secs(1));
    drop(shed.try_acquire(later, || true).expect("the probe waits for a processor that another process has"));
    drop(shed.try_acquire(now, || true).expect("the probe has only begun to wait"));
    shed.load.probe_wait_start.store(0, Relaxed);
    shed.load.last_own_wait.store(nanos(TARGET), Relaxed);
    assert!(shed.try_acquire(now, || true).is_err(), "the last probe waited for other tasks");
}

#[test]
fn admits_a_burst() {
    let mut law = AdmissionController::default();
    let seen = |delay| ProbeMeasurement {
        delay: Duration::from_millis(delay),
        elapsed: Duration::from_millis(2),
        admitted: 10,
        refused: 0,
    };
    for _ in 0..100 {
        for _ in 0..40 {
            assert_eq!(law.update(seen(80), TARGET), None);
        }
        assert_eq!(law.update(seen(0), TARGET), None);
    }
}

#[test]
fn stops_shedding_after_a_second_without_refusals() {
    let mut law = AdmissionController::default();
    let seen = |delay, refused| ProbeMeasurement {
        delay: Duration::from_millis(delay),
        elapsed: Duration::from_millis(10),
        admitted: 10,
        refused,
    };
    let begun = (0..20).find_map(|_| law.update(seen(80, 0), TARGET));
    assert_eq!(begun, Some(0.0), "nothing is admitted while the queue is long");
    let next = law.update(seen(0, 5), TARGET).unwrap();
    assert!((700.0..900.0).contains(&next), "{next}");
    assert!(law.update(seen(3, 5), TARGET).unwrap() < next);
    let steps = (0..200).take_while(|_| law.update(seen(0, 0), TARGET).is_some()).count();
    assert_eq!(steps, 99);
}

#[test]
fn refusals_by_other_limits_do_not_prolong_shedding() {
    let shed = LoadShedder::new(&ShedConfig { max_in_flight: 1, ..ShedConfig::default() }, None);
    let now = Instant::now();
    let mut law = AdmissionController::default();
    assert!((0..20).any(|_| {
        law.update(
            RequestCounts { admitted: 1, ..RequestCounts::default() }.measurement(2 * TARGET, INTERVAL),
            TARGET,
        )
        .is_some()
    }));
    let mut counted = shed.load.counts();
    let steps = (0..200).take_while(|_| {
        shed.try_acquire(now, || false).expect_err("the client or the handler has no room");
        let guard = shed.try_acquire(now, || true).unwrap();
        shed.try_acquire(now, || true).expect_err("too many requests are in flight");
        drop(guard);
        shed.note_refused(Duration::ZERO);
        let count = shed.load.counts();
        let measurement = count.since(counted).measurement(Duration::ZERO, Duration::from_millis(10));
        counted = count;
        law.update(measurement, TARGET).is_some()
    });
    assert_eq!(steps.count(), 99);
    assert_eq!(shed.refused(), 300);
    shed.load.set_rate(Some(0.0));
    shed.try_acquire(now, || true).expect_err("the rate is zero");
    assert_eq!(shed.load.counts().since(counted).refused_by_rate, 1);
}

#[test]
fn late_refusals_are_not_subtracted_from_the_requests_admitted_since() {
    let shed = LoadShedder::new(&ShedConfig::default(), None);
    let admit = || shed.try_acquire(Instant::now(), || true).unwrap();
    let queued = [(); 3].map(|()| admit());
    let before = shed.load.counts();
    let since = [(); 2].map(|()| admit());
    for _ in &queued {
        shed.note_refused(INTERVAL);
    }
    let count = shed.load.counts().since(before);
    assert_eq!((count.admitted, count.refused), (2, 3));
    drop((queued, since));
}

#[test]
fn a_small_load_recovers_within_a_second_after_busy_threads() {
    let mut law = AdmissionController::default();
    let seen = |delay, taken, refused| ProbeMeasurement {
        delay: Duration::from_millis(delay),
        elapsed: Duration::from_millis(2),
        admitted: taken,
        refused,
    };
    // Thousands of handshakes, for example.
    assert_eq!((0..100).find_map(|_| law.update(seen(80, 0, 0), TARGET)), None, "without a request");
    let begun = (0..100).filter_map(|probe| law.update(seen(80, u64::from(probe == 0), 0), TARGET)).count();
    assert!(begun > 0, "hardly a request");
    let enough = 500.0;
    let until = (0..).position(|_| law.update(seen(0, 1, 1), TARGET).is_none_or(|rate| rate > enough));
    assert!(until.unwrap() * 2 < 1_000, "{until:?} probes of 2 ms");
}

#[test]
fn limits_requests_in_flight_and_releases_permits() {
    let shed = LoadShedder::new(&ShedConfig { max_in_flight: 2, ..ShedConfig::default() }, None);
    let now = Instant::now();
    let (first, _second) = (shed.try_acquire(now, || true).unwrap(), shed.try_acquire(now, || true).unwrap());
    assert_eq!(shed.try_acquire(now, || true).unwrap_err(), GatewayOverloaded);
    drop(first);
    let shedder = LoadShedder::new(&ShedConfig { max_in_flight: 2, ..ShedConfig::default() }, Some(&shed));
    let _third = shedder.try_acquire(now, || true).unwrap();
    assert!(shedder.try_acquire(now, || true).is_err(), "another config keeps the count of the previous one");
    assert_eq!(shed.load.in_flight.load(Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn an_idle_gateway_does_not_probe() {
    let shed = LoadShedder::new(&ShedConfig::default(), None);
    let watch = tokio::spawn(shed.run_probe());
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(shed.load.is_probe_asleep.load(Relaxed));
    drop(shed.try_acquire(Instant::now(), || true).unwrap());
    tokio::time::sleep(Duration::from_millis(3)).await;
    assert!(!shed.load.is_probe_asleep.load(Relaxed));
    drop(shed);
    watch.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn does_not_probe_while_shedding_is_off() {
    let config = |automatic| ShedConfig { automatic, ..ShedConfig::default() };
    let shed = LoadShedder::new(&config(false), None);
    let watch = tokio::spawn(shed.run_probe());
    for _ in 0..100 {
        drop(shed.try_acquire(Instant::now(), || true).unwrap());
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    assert!(shed.load.is_probe_asleep.load(Relaxed));
    let shedder = LoadShedder::new(&config(true), Some(&shed));
    drop(shedder.try_acquire(Instant::now(), || true).unwrap());
    tokio::time::sleep(Duration::from_millis(3)).await;
    assert!(!shed.load.is_probe_asleep.load(Relaxed), "another config starts the probe again");
    drop((shed, shedder));
    watch.await.unwrap();
}

#[test]
fn keeps_a_minimum_rate_while_clients_retry_at_once() {
    let mut law = AdmissionController::default();
    let seen = |refused| ProbeMeasurement {
        delay: Duration::from_millis(200),
        elapsed: Duration::from_millis(10),
        admitted: 10,
        refused,
    };
    let rates: Vec<f64> = (0..1000).filter_map(|_| law.update(seen(50), TARGET)).collect();
    assert!(rates.iter().skip(20).all(|rate| *rate > 100.0), "{rates:?}");
}

#[tokio::test(start_paused = true)]
async fn is_not_prompt_before_the_first_measurement() {
    let shed = LoadShedder::new(&ShedConfig::default(), None);
    assert!(!shed.is_prompt());
    tokio::spawn(shed.run_probe());
    while !shed.is_prompt() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let load = &shed.load;
    load.last_wait.store(nanos(2 * MAX_PROMPT_WAIT), Relaxed);
    assert!(!shed.is_prompt());
    load.last_wait.store(0, Relaxed);
    load.target_delay.store(0, Relaxed);
    assert!(!shed.is_prompt(), "there is no current measurement");
}
