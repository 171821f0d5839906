//! The supervisor of the workers: starts missing ones, ends those that are stuck or too large, and replaces
//! lost ones.
//!
//! A busy loop cannot be interrupted from inside, so its worker is ended. A worker's own watchdog reports the
//! run that keeps it busy; the system's CPU time shows whether the run really computes, since on a busy
//! machine a worker may just wait for the processor. An engine without a watchdog is detected because it
//! stops responding. The same holds for a worker that neither computes nor responds: it is ended after the
//! maximum duration of a run, since none of its runs can complete.

use std::collections::HashMap;
use std::io;
use std::process::ExitStatus;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::connection::{WorkerConnection, WorkerEvent, read_hello};
use super::host::ScriptHome;
use super::process::{self, WorkerFolders, WorkerSockets};
use super::scale::{CHECK_INTERVAL, ScalingDecision, ScalingRule};
use super::worker::{ScriptWorker, WorkerLoss};
use super::{WorkerPool, WorkerPoolSize};
use crate::frame::OutgoingBytes;
use crate::work::spawn;

/// The time within which a new worker must connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// The time to wait for the process after its connection has ended, and for its output after the process has
/// ended.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// A shorter lifetime without a run counts as a failed start, so that the next start is delayed.
const MIN_LIFETIME: Duration = Duration::from_secs(5);
const MAX_START_DELAY: Duration = Duration::from_secs(10);
/// The size of the send buffer of a worker's socket, if the system allows it: several bodies of 100 KB, so
/// that the worker is not woken for each.
const SEND_BUFFER: usize = 512 << 10;
/// The number of consecutive checks without a run after which a reserved worker is ended.
const IDLE_CHECKS: u32 = 60;

/// The observations of a worker at the last check.
#[derive(Default)]
struct WorkerObservation {
    cpu: Duration,
    activity: u64,
    /// Whether a PING was sent and nothing has been received since.
    is_ping_pending: bool,
    /// The CPU time used since the PING.
    silent_cpu: Duration,
    /// The number of checks since the PING. A clock would include time in which the gateway itself was
    /// suspended.
    unanswered_checks: u32,
    idle_checks: u32,
}

impl WorkerObservation {
    /// Records a check; returns the CPU time since the last one.
    fn record_check(&mut self, cpu: Duration, activity: u64) -> Duration {
        let used = cpu.saturating_sub(self.cpu);
        if self.is_ping_pending && activity == self.activity {
            self.silent_cpu += used;
            self.unanswered_checks += 1;
        } else {
            (self.is_ping_pending, self.silent_cpu, self.unanswered_checks) = (false, Duration::ZERO, 0);
        }
        (self.cpu, self.activity) = (cpu, activity);
        used
    }

    /// Returns the loss of the worker if it has not responded for too long.
    fn unresponsive_loss(&self, size: &WorkerPoolSize) -> Option<WorkerLoss> {
        if self.silent_cpu > size.cpu_limit + CHECK_INTERVAL * 2 {
            return Some(stuck_loss(None, size.cpu_limit));
        }
        let limit = size.run_timeout + CHECK_INTERVAL * 2;
        (CHECK_INTERVAL * self.unanswered_checks > limit).then(|| {
            WorkerLoss::new(format!(
                "it did not respond for longer than {}",
                services::DurationConfig(size.run_timeout)
            ))
        })
    }
}

/// Supervises a pool until it is dropped.
pub(super) async fn supervise(
    pool: Weak<WorkerPool>,
    mut news: mpsc::UnboundedReceiver<(Arc<ScriptWorker>, WorkerEvent)>,
) {
    let mut ticks = interval(CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut scale, mut seen) = (ScalingRule::default(), HashMap::new());
    let mut start = StartBackoff::default();
    loop {
        let told = tokio::select! {
            told = news.recv() => told,
            _ = ticks.tick() => None,
        };
        let Some(pool) = pool.upgrade() else { return };
        match told {
            Some((_, WorkerEvent::Loaded)) => pool.availability.notify(),
            Some((worker, WorkerEvent::Damaged { program, handler })) => {
                pool.record_damage(&worker, program, handler)
            }
            Some((worker, WorkerEvent::Stuck { run, millis })) => {
                spawn(confirm_stuck(worker, run, Duration::from_millis(millis.into()), pool.size.cpu_limit));
            }
            Some((_, WorkerEvent::Ended { is_failed_start })) => {
                start.record_end(is_failed_start);
                pool.availability.notify();
            }
            None => check_workers(&pool, &mut scale, &mut seen),
        }
        pool.replace_lost(&mut start);
    }
}

/// The backoff of worker starts.
#[derive(Default)]
struct StartBackoff {
    failures: u32,
    not_before: Option<Instant>,
}

impl StartBackoff {
    /// Records the end of a worker. Only failed starts delay the next one: what ends a worker in use is a
    /// run.
    fn record_end(&mut self, is_failed_start: bool) {
        self.failures = if is_failed_start { self.failures + 1 } else { 0 };
        // The first failure causes no delay.
        let wait = Duration::from_millis(50 << self.failures.min(8)).min(MAX_START_DELAY);
        self.not_before = (self.failures > 1).then(|| Instant::now() + wait);
    }

    fn can_start(&self) -> bool {
        self.not_before.is_none_or(|moment| moment <= Instant::now())
    }
}

impl WorkerPool {
    /// Removes lost workers and starts missing ones.
    fn replace_lost(self: &Arc<Self>, start: &mut StartBackoff) {
        let is_there = |worker: &Arc<ScriptWorker>| !worker.is_lost();
        if !self.shared.load().iter().all(is_there) {
            let _crowd = self.lock_state();
            let workers = self.shared.load().iter().filter(|worker| is_there(worker)).cloned().collect();
            self.shared.store(Arc::new(workers));
        }
        self.lock_state().dedicated.retain(is_there);
        let serving = || self.shared.load().iter().filter(|worker| !worker.is_retired()).count();
        while start.can_start() && serving() < self.target_workers.load(Relaxed) {
            // The first worker of each script needs no permit.
            let permit = match (serving(), self.host.try_acquire_permit()) {
                (0, permit) => permit,
                (_, Some(permit)) => Some(permit),
                (_, None) => return,
            };
            self.add_worker(permit);
        }
    }
}

/// Checks all workers, and adjusts their target number.
fn check_workers(
    pool: &Arc<WorkerPool>,
    scale: &mut ScalingRule,
    seen: &mut HashMap<u32, WorkerObservation>,
) {
    let shared = pool.shared.load();
    let mut used = Vec::new();
    for worker in shared.iter() {
        let part = check_worker(pool, worker, seen.entry(worker.id).or_default());
        if !worker.is_retired() {
            used.push(part);
        } else if worker.load().1 == 0 {
            worker.mark_lost(WorkerLoss::new("it is no longer needed"));
        }
    }
    let solos = pool.lock_state().dedicated.clone();
    for worker in &solos {
        let observation = seen.entry(worker.id).or_default();
        check_worker(pool, worker, observation);
        observation.idle_checks = if worker.load().1 == 0 { observation.idle_checks + 1 } else { 0 };
        if observation.idle_checks > IDLE_CHECKS {
            worker.mark_lost(WorkerLoss::new("it is no longer needed"));
        }
    }
    seen.retain(|id, _| shared.iter().chain(&solos).any(|worker| worker.id == *id));
    let count = used.len();
    match scale.decide(&used, pool.size.min, pool.size.max) {
        ScalingDecision::Stay => {}
        ScalingDecision::Grow => pool.target_workers.store(count + 1, Relaxed),
        ScalingDecision::Shrink => {
            let least_busy =
                shared.iter().filter(|worker| !worker.is_retired()).min_by_key(|worker| worker.load());
            least_busy.inspect(|worker| worker.retire());
            pool.target_workers.store(count.saturating_sub(1).max(pool.size.min), Relaxed);
        }
    }
}

/// Checks a worker and returns its CPU utilisation; ends it if it is too large or has not responded for too
/// long.
fn check_worker(pool: &WorkerPool, worker: &Arc<ScriptWorker>, observation: &mut WorkerObservation) -> f64 {
    let Some(pid) = worker.pid() else { return 0.0 };
    if process::resident_memory(pid).is_some_and(|memory| memory > pool.size.memory * 2 + (256 << 20)) {
        worker.mark_lost(WorkerLoss::new("its memory was far above the heap limit `scripts.memory`"));
    }
    // Without CPU times from the system, only responses count.
    let cpu = process::cpu_time(pid).unwrap_or(observation.cpu);
    let used = observation.record_check(cpu, worker.activity.load(Relaxed));
    if let Some(loss) = observation.unresponsive_loss(&pool.size) {
        worker.mark_lost(loss);
    } else if !observation.is_ping_pending && worker.load().0 > 0 {
        worker.send_frames(|out| out.put_ping(0));
        observation.is_ping_pending = true;
    }
    used.as_secs_f64() / CHECK_INTERVAL.as_secs_f64()
}

/// Checks whether a run really exceeds the limit of CPU time; if so, ends its worker.
async fn confirm_stuck(worker: Arc<ScriptWorker>, run: u32, known: Duration, limit: Duration) {
    let Some(pid) = worker.pid().filter(|_| !worker.is_being_checked.swap(true, Relaxed)) else { return };
    let (activity, began, before) = (worker.activity.load(Relaxed), Instant::now(), process::cpu_time(pid));
    loop {
        sleep((limit / 10).clamp(Duration::from_millis(5), Duration::from_millis(100))).await;
        if worker.is_lost() || worker.activity.load(Relaxed) != activity {
            break;
        }
        // Without CPU times from the system, all of the elapsed time counts.
        let used = process::cpu_time(pid).zip(before).map(|(now, before)| now.saturating_sub(before));
        let used = used.unwrap_or_else(|| began.elapsed());
        let is_over = known.min(limit) + used >= limit && used >= limit / 10;
        // A run that blocks its worker without computing is ended as well, after ten times the limit.
        if is_over || began.elapsed() >= limit * 10 {
            worker.mark_lost(stuck_loss(Some(run), limit));
            break;
        }
    }
    worker.is_being_checked.store(false, Relaxed);
}

fn stuck_loss(culprit: Option<u32>, limit: Duration) -> WorkerLoss {
    let text =
        format!("a run kept it busy for longer than {} without a pause", services::DurationConfig(limit));
    WorkerLoss { culprit, ..WorkerLoss::new(text) }
}

/// Starts a worker's process, and manages it until the process or the worker ends.
pub(super) async fn run_worker(
    pool: Weak<WorkerPool>,
    worker: Arc<ScriptWorker>,
    _permit: Option<OwnedSemaphorePermit>,
) {
    let began = Instant::now();
    let Some(starting) = pool.upgrade().map(|pool| {
        let worker = Arc::clone(&worker);
        // Off the serving threads: starting a process copies the page tables of the gateway.
        spawn_blocking(move || start_process(&pool, &worker))
    }) else {
        return;
    };
    let started = match starting.await.unwrap_or_else(|error| Err(io::Error::other(error))) {
        Ok(started) => Some(started),
        Err(error) => {
            worker.mark_lost(WorkerLoss::new(format!("it can't be started: {error}")));
            None
        }
    };
    if let Some(StartedWorker {
        mut child,
        heap_exhaustion: mut told,
        mut main,
        watchdog,
        heap,
        events: news,
        home: _home,
    }) = started
    {
        let heard = Arc::clone(&worker);
        let link = async {
            let Ok(Some((reader, engine))) = timeout(CONNECT_TIMEOUT, read_hello(&mut main)).await else {
                return "it did not connect".to_owned();
            };
            tracing::info!(target: "script", script = &*worker.script, worker = worker.id, "a worker runs on {engine}");
            let link = WorkerConnection {
                worker: Arc::clone(&worker),
                stream: main,
                reader,
                writing: OutgoingBytes::default(),
                has_yielded: false,
                events: news.clone(),
            };
            let served = spawn(link.serve());
            spawn(async move { super::connection::forward_reports(&heard, watchdog, &news).await });
            served.await.unwrap_or_else(|error| format!("its connection: {error}"))
        };
        let loss = tokio::select! {
            status = child.wait() => process_loss(status, &mut told, heap).await,
            text = link => match timeout(EXIT_TIMEOUT, child.wait()).await {
                Ok(status) => process_loss(status, &mut told, heap).await,
                Err(_) => WorkerLoss::new(text),
            },
            _ = worker.wait_lost() => WorkerLoss::new(""),
        };
        worker.mark_lost(loss);
        let _ = child.kill().await; // It may have ended already.
    }
    if let Some(pool) = pool.upgrade() {
        let loss = worker.wait_lost().await;
        if !worker.is_retired() {
            tracing::warn!(target: "script", script = &*worker.script, worker = worker.id, "a worker ended: {}", loss.text);
            pool.restarts.fetch_add(1, Relaxed);
        }
        (pool.on_worker_lost)(worker.id);
        let is_failed_start = began.elapsed() < MIN_LIFETIME && !worker.has_had_runs();
        let _ = pool.event_sender.send((worker, WorkerEvent::Ended { is_failed_start })); // The supervisor may have ended.
    }
}

/// A worker's process and its connections.
struct StartedWorker {
    child: tokio::process::Child,
    heap_exhaustion: process::HeapExhaustion,
    main: UnixStream,
    watchdog: UnixStream,
    heap: Option<u64>,
    events: super::connection::SupervisorSender,
    /// Keeps the folder alive as long as the process.
    home: Arc<ScriptHome>,
}

fn start_process(pool: &WorkerPool, worker: &Arc<ScriptWorker>) -> io::Result<StartedWorker> {
    let launch = &pool.host.launch;
    let home = pool.get_or_create_home()?;
    let ((main, its_main), (watchdog, its_watchdog)) = (UnixStream::pair()?, UnixStream::pair()?);
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(&main, SEND_BUFFER); // Optional.
    let sockets =
        WorkerSockets { main: its_main.into_std()?.into(), watchdog: its_watchdog.into_std()?.into() };
    let folders = WorkerFolders { code: &pool.host.code_folder(), home: home.path(), folder: &pool.folder };
    let mut child = launch.spawn(&folders, sockets, worker.id)?;
    worker.set_pid(child.id());
    let told = process::log_output(worker, &mut child);
    Ok(StartedWorker {
        child,
        heap_exhaustion: told,
        main,
        watchdog,
        heap: launch.heap,
        events: pool.event_sender.clone(),
        home,
    })
}

/// Returns the reason for the end of a process, including a full heap that it reported.
async fn process_loss(
    status: io::Result<ExitStatus>,
    told: &mut process::HeapExhaustion,
    heap: Option<u64>,
) -> WorkerLoss {
    let status = match status {
        Ok(status) => status,
        Err(error) => return WorkerLoss::new(format!("its process: {error}")),
    };
    // Child processes of the worker may keep its output open.
    let is_full = timeout(EXIT_TIMEOUT, told).await.is_ok_and(|told| told.is_ok_and(|is_full| is_full));
    match heap.filter(|_| is_full && !status.success()) {
        Some(limit) => {
            let text = format!("its heap was full, at {limit} MiB (`scripts.memory`): {status}");
            WorkerLoss { heap_limit: Some(limit), ..WorkerLoss::new(text) }
        }
        None => WorkerLoss::new(format!("its process ended: {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: WorkerPoolSize = WorkerPoolSize {
        min: 1,
        max: 1,
        cpu_limit: Duration::from_secs(1),
        run_timeout: Duration::from_secs(30),
        memory: 0,
    };

    /// Returns the number of checks until a worker is ended and its culprit: the worker was pinged at the
    /// first check, uses this CPU time in each, and has sent this number of messages.
    fn checks_until_end(used: Duration, says: impl Fn(u32) -> u64) -> Option<(u32, Option<u32>)> {
        let mut observation = WorkerObservation { is_ping_pending: true, ..WorkerObservation::default() };
        (1..1000).find_map(|look| {
            observation.record_check(used * look, says(look));
            let loss = observation.unresponsive_loss(&SIZE);
            observation.is_ping_pending = true;
            loss.map(|loss| (look, loss.culprit))
        })
    }

    #[test]
    fn an_unresponsive_worker_ends_after_the_maximum_duration_of_a_run() {
        assert_eq!(checks_until_end(Duration::ZERO, |_| 0), Some((63, None)), "31 s of half seconds");
        assert_eq!(checks_until_end(CHECK_INTERVAL, |_| 0), Some((5, None)), "2 s of computing");
        assert_eq!(checks_until_end(CHECK_INTERVAL, u64::from), None, "it responds each time");
        assert_eq!(
            checks_until_end(Duration::ZERO, |look| u64::from(look / 60)),
            None,
            "it responds in time"
        );
        assert_eq!(checks_until_end(Duration::ZERO, |look| u64::from(look.min(100))), Some((163, None)));
    }

    #[test]
    fn only_failed_starts_delay_the_next_start() {
        let mut start = StartBackoff::default();
        (0..9).for_each(|_| start.record_end(false));
        assert!(start.can_start(), "workers that ended in use are replaced at once");
        (0..9).for_each(|_| start.record_end(true));
        assert!(!start.can_start());
        start.record_end(false);
        assert!(start.can_start());
    }

    #[test]
    fn a_worker_counts_as_used_from_its_first_run_on() {
        let worker = ScriptWorker::new(1, &"a".into(), None);
        assert!(!worker.has_had_runs());
        drop(worker.acquire_slot());
        assert!(worker.has_had_runs());
    }

    #[test]
    fn a_worker_without_a_pending_ping_may_be_silent() {
        let mut observation = WorkerObservation::default();
        for look in 1..1000 {
            observation.record_check(CHECK_INTERVAL * look, 0);
            assert!(observation.unresponsive_loss(&SIZE).is_none(), "{look}");
        }
    }
}
