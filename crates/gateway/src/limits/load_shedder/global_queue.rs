//! The wait in the runtime's global queue, measured with tasks that pass through it.
//!
//! Ready tasks wait there if another thread woke them or if a worker's own queue is full. A worker with tasks
//! of its own takes only one task from it in tokio's `global_queue_interval`, so the wait does not follow
//! from the queue's length and the gateway's throughput.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;

use admission::{ClockReading, ProcessTimes};
use tokio::runtime::Handle;

/// The maximum number of markers in the queue.
const MAX_MARKERS: usize = 64;

/// The global queue of a runtime, and the markers in it.
#[derive(Debug)]
pub(super) struct GlobalQueue {
    runtime: Handle,
    /// The thread that spawns markers. A task that a worker spawns goes to the worker's own queue. tokio's
    /// blocking threads can all be busy, such as with slow lookups of names.
    spawner: mpsc::Sender<Arc<QueueMarker>>,
    /// The markers that have not passed, the oldest first.
    markers: VecDeque<Arc<QueueMarker>>,
    /// The wait of the marker that passed last; zero since the queue was empty.
    last_wait: ProcessTimes,
}

/// A task that records its way through the global queue.
#[derive(Debug, Default)]
struct QueueMarker {
    queued_at: OnceLock<ClockReading>,
    passed_at: OnceLock<ClockReading>,
}

impl GlobalQueue {
    pub(super) fn new(runtime: Handle) -> Self {
        let (spawner, markers) = mpsc::channel::<Arc<QueueMarker>>();
        let handle = runtime.clone();
        let run = move || {
            for marker in markers {
                marker.spawn(&handle);
            }
        };
        // The thread ends when the sender is dropped.
        if let Err(error) = thread::Builder::new().name("shed-markers".to_owned()).spawn(run) {
            tracing::error!(%error, "load shedding cannot measure the runtime's global queue");
        }
        Self { runtime, spawner, markers: VecDeque::new(), last_wait: ProcessTimes::default() }
    }

    /// Returns the wait of the marker that passed last and that of the oldest one that has not, and sends
    /// another marker if the queue is not empty.
    pub(super) fn measure_waits(&mut self, now: ClockReading) -> [ProcessTimes; 2] {
        while let Some(wait) = self.markers.front().and_then(|marker| marker.time_in_queue()) {
            self.last_wait = wait;
            self.markers.pop_front();
        }
        let waiting = self.markers.front().and_then(|marker| marker.queued_at.get());
        let waiting = waiting.map(|queued| now.since(*queued)).unwrap_or_default();
        if self.runtime.metrics().global_queue_depth() == 0 {
            self.last_wait = ProcessTimes::default();
        } else if self.markers.len() < MAX_MARKERS {
            let marker = Arc::<QueueMarker>::default();
            if self.spawner.send(Arc::clone(&marker)).is_ok() {
                self.markers.push_back(marker);
            }
        }
        [self.last_wait, waiting]
    }
}

impl QueueMarker {
    /// Appends the marker to the global queue. The calling thread must not be a worker.
    fn spawn(self: Arc<Self>, runtime: &Handle) {
        let _ = self.queued_at.set(ClockReading::now());
        runtime.spawn(async move {
            let _ = self.passed_at.set(ClockReading::now());
        });
    }

    /// Returns the time in the queue of a marker that has passed.
    fn time_in_queue(&self) -> Option<ProcessTimes> {
        Some(self.passed_at.get()?.since(*self.queued_at.get()?))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::time::{Duration, Instant};

    use super::super::{LoadShedder, ShedConfig};
    use super::*;

    /// A reading this number of milliseconds after `start`, by the wall clock and by CPU time.
    fn reading_at(start: Instant, wall: u64, cpu: u64) -> ClockReading {
        ClockReading { wall: start + Duration::from_millis(wall), cpu: Duration::from_millis(cpu) }
    }

    fn marker(queued: ClockReading, passed: Option<ClockReading>) -> Arc<QueueMarker> {
        let marker = QueueMarker { queued_at: queued.into(), passed_at: OnceLock::new() };
        if let Some(passed) = passed {
            marker.passed_at.set(passed).unwrap();
        }
        Arc::new(marker)
    }

    /// Appends tasks to the global queue, and returns the number of those that have run.
    fn fill_queue(tasks: usize) -> Arc<AtomicUsize> {
        let (runtime, ran) = (Handle::current(), Arc::new(AtomicUsize::new(0)));
        let counter = Arc::clone(&ran);
        let spawn = move || {
            for _ in 0..tasks {
                let counter = Arc::clone(&counter);
                runtime.spawn(async move { counter.fetch_add(1, Relaxed) });
            }
        };
        thread::spawn(spawn).join().unwrap();
        ran
    }

    /// Creates a queue with a task, a marker that has passed and one that still waits. The times are those
    /// when the first one was queued and passed, and when the second one was queued.
    fn queue_with_markers(start: Instant, times: [(u64, u64); 3]) -> GlobalQueue {
        let mut queue = GlobalQueue::new(Handle::current());
        fill_queue(1);
        let [queued, passed, waiting] = times.map(|(wall, cpu)| reading_at(start, wall, cpu));
        queue.markers.extend([marker(queued, Some(passed)), marker(waiting, None)]);
        queue
    }

    #[tokio::test]
    async fn returns_the_time_that_a_marker_waited_whatever_the_length_of_the_queue() {
        let mut queue = GlobalQueue::new(Handle::current());
        let start = Instant::now();
        fill_queue(1_000);
        queue.markers.push_back(marker(reading_at(start, 0, 0), Some(reading_at(start, 6, 6))));
        let [wait, _] = queue.measure_waits(reading_at(start, 8, 8));
        assert_eq!(wait.own_time(1), Duration::from_millis(6));
        queue.markers.clear();
        queue.markers.push_back(marker(reading_at(start, 8, 8), Some(reading_at(start, 68, 10))));
        let [wait, _] = queue.measure_waits(reading_at(start, 70, 10));
        assert_eq!(wait.wall, Duration::from_millis(60));
        assert_eq!(wait.own_time(1), Duration::from_millis(2), "other processes had the processor");
    }

    #[tokio::test]
    async fn counts_the_time_of_a_marker_that_still_waits() {
        let start = Instant::now();
        let mut queue = queue_with_markers(start, [(0, 0), (100, 100), (20, 20)]);
        let mut waits =
            |at| queue.measure_waits(reading_at(start, at, at)).map(|wait| wait.own_time(1).as_millis());
        assert_eq!(waits(102), [100, 82]);
        assert_eq!(waits(420), [100, 400]);
        assert_eq!(waits(422), [100, 402]);
    }

    #[tokio::test]
    async fn a_marker_that_waited_for_other_processes_does_not_hide_the_next_one() {
        let start = Instant::now();
        let mut queue = queue_with_markers(start, [(0, 0), (1_000, 0), (1_000, 0)]);
        let timeses = queue.measure_waits(reading_at(start, 1_500, 500));
        assert_eq!(timeses.map(|wait| wait.own_time(1).as_millis()), [0, 500]);
    }

    #[tokio::test]
    async fn an_empty_queue_is_no_wait() {
        let mut queue = GlobalQueue::new(Handle::current());
        let start = Instant::now();
        queue.markers.push_back(marker(reading_at(start, 0, 0), Some(reading_at(start, 60, 60))));
        assert_eq!(queue.measure_waits(reading_at(start, 60, 60)), [ProcessTimes::default(); 2]);
        assert!(queue.markers.is_empty(), "and needs no marker");
        queue.markers.push_back(marker(reading_at(start, 60, 60), None));
        let [_, wait] = queue.measure_waits(reading_at(start, 90, 90));
        assert_eq!(wait.wall, Duration::from_millis(30), "a worker has taken the marker, but not run it");
    }

    #[tokio::test]
    async fn markers_pass_through_the_whole_queue() {
        let mut queue = GlobalQueue::new(Handle::current());
        let ran = fill_queue(100);
        queue.measure_waits(ClockReading::now());
        let marker = Arc::clone(queue.markers.front().unwrap());
        // The runtime has only this thread, so nothing leaves the queue meanwhile.
        while queue.runtime.metrics().global_queue_depth() < 101 {
            thread::yield_now();
        }
        while marker.time_in_queue().is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(ran.load(Relaxed), 100);
    }

    #[tokio::test]
    async fn limits_the_markers_in_the_queue() {
        let mut queue = GlobalQueue::new(Handle::current());
        fill_queue(1);
        for _ in 0..2 * MAX_MARKERS {
            queue.measure_waits(ClockReading::now());
        }
        assert_eq!(queue.markers.len(), MAX_MARKERS);
    }

    /// Thousands of pings a second were mistaken for an overload, because they are not requests.
    #[tokio::test]
    async fn tasks_without_requests_wait_no_longer_than_they_are_there() {
        let begun = Instant::now();
        let shed = LoadShedder::new(&ShedConfig::default(), None);
        tokio::spawn(shed.run_probe());
        while shed.load.last_wait.load(Relaxed) == u64::MAX {
            fill_queue(100);
            tokio::task::yield_now().await;
        }
        let waited = Duration::from_nanos(shed.load.last_wait.load(Relaxed));
        assert!(waited <= begun.elapsed(), "{waited:?}");
    }
}
