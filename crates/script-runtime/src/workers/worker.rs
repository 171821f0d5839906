//! The gateway's handle of a worker: its output queue, its runs, and its load.
//!
//! A sender writes frames into [`OutgoingBytes`] under a lock and wakes the worker's connection, which writes
//! all of them at once. The worker's messages about a run go into that run's mailbox.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use tokio::sync::watch;

use super::availability::AvailabilityNotifier;
use crate::frame::{HandlerFailure, OutgoingBytes, WorkerMessage};

/// The bytes of long frames in mailboxes above which a worker's connection is not read: runs parse them one
/// by one, and a worker may send them faster.
pub(super) const MAX_BACKLOG: usize = 16 << 20;

/// A worker.
#[derive(Debug)]
pub(crate) struct ScriptWorker {
    /// The worker's number, unique within this gateway.
    pub(crate) id: u32,
    /// The name of its script, for the log.
    pub(crate) script: Arc<str>,
    /// Notified when a run ends; only for a worker that is reserved for one run at a time.
    slot_freed: Option<AvailabilityNotifier>,
    /// The id of its process; 0 before the process is started.
    pid: AtomicU32,
    /// Whether a task is currently checking if it is stuck.
    pub(super) is_being_checked: AtomicBool,
    outgoing: Mutex<OutgoingBytes>,
    /// The waker of its connection.
    pub(super) waker: AtomicWaker,
    /// The bytes of long frames in mailboxes.
    pub(super) backlog: AtomicUsize,
    /// `None` once the worker is lost.
    runs: Mutex<Option<BTreeMap<u32, Arc<RunMailbox>>>>,
    last_run: AtomicU32,
    /// Runs that wait for no call, so that they want the processor.
    busy: AtomicUsize,
    total: AtomicUsize,
    /// Incremented with every message from the worker.
    pub(super) activity: AtomicU64,
    is_retired: AtomicBool,
    programs: Mutex<HashMap<u32, ProgramLoadStatus>>,
    /// The reason for its loss, once it is lost.
    loss: watch::Sender<Option<Arc<WorkerLoss>>>,
}

/// The status of a program in a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProgramLoadStatus {
    NotLoaded,
    Ready,
    Broken { message: String, stack: String },
}

/// The loss of a worker.
#[derive(Debug)]
pub(crate) struct WorkerLoss {
    /// The run that caused it, if known.
    pub(crate) culprit: Option<u32>,
    /// A description of the event.
    pub(crate) text: String,
    /// The limit of its heap in MiB, if the worker exceeded it.
    pub(crate) heap_limit: Option<u64>,
    /// The failure of the run that caused it, if the worker reported one.
    pub(crate) failure: Option<HandlerFailure>,
}

impl WorkerLoss {
    /// Returns a loss without a known culprit.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { culprit: None, text: text.into(), heap_limit: None, failure: None }
    }

    /// Returns the loss of a worker that a run damaged, with its failure. Run 0, which never exists, stands
    /// for one that has ended: the current runs are then not suspects.
    pub(crate) fn from_damage(run: u32, failure: Option<HandlerFailure>) -> Self {
        let loss = Self::new("a run damaged objects that all runs share");
        Self { culprit: Some(run), failure, ..loss }
    }
}

/// The queue of a run's events.
#[derive(Debug, Default)]
pub(crate) struct RunMailbox {
    events: Mutex<VecDeque<(RunEvent, Option<BacklogShare>)>>,
    waker: AtomicWaker,
    /// The number of calls that the run waits for.
    waiting_calls: AtomicU32,
}

/// A long frame's share of its worker's backlog.
#[derive(Debug)]
struct BacklogShare {
    worker: Arc<ScriptWorker>,
    bytes: usize,
}

/// An event of a run.
#[derive(Debug)]
pub(crate) enum RunEvent {
    /// A message of its worker.
    Message(WorkerMessage),
    /// The loss of its worker; `was_busy` if the run was or may have been executing.
    Lost { loss: Arc<WorkerLoss>, was_busy: bool },
}

/// A run's slot in a worker, released on drop.
#[derive(Debug)]
pub(crate) struct WorkerSlot {
    pub(crate) worker: Arc<ScriptWorker>,
    pub(crate) run: u32,
    mailbox: Arc<RunMailbox>,
}

impl ScriptWorker {
    pub(super) fn new(id: u32, script: &Arc<str>, freed: Option<AvailabilityNotifier>) -> Arc<Self> {
        Arc::new(Self {
            id,
            script: Arc::clone(script),
            slot_freed: freed,
            pid: AtomicU32::new(0),
            is_being_checked: AtomicBool::new(false),
            outgoing: Mutex::default(),
            waker: AtomicWaker::new(),
            backlog: AtomicUsize::new(0),
            runs: Mutex::new(Some(BTreeMap::new())),
            last_run: AtomicU32::new(0),
            busy: AtomicUsize::new(0),
            total: AtomicUsize::new(0),
            activity: AtomicU64::new(0),
            is_retired: AtomicBool::new(false),
            programs: Mutex::default(),
            loss: watch::Sender::new(None),
        })
    }

    /// Queues frames: the frames of one call are sent in order, without others in between.
    pub(crate) fn send_frames<T>(&self, write: impl FnOnce(&mut OutgoingBytes) -> T) -> T {
        let result = write(&mut self.lock_outgoing());
        self.waker.wake();
        result
    }

    /// Returns a slot for a run; `None` if the worker is lost.
    pub(crate) fn acquire_slot(self: &Arc<Self>) -> Option<WorkerSlot> {
        let mut runs = lock_mutex(&self.runs);
        let runs = runs.as_mut()?;
        let run = loop {
            let run = self.last_run.fetch_add(1, Relaxed).wrapping_add(1);
            if run != 0 && !runs.contains_key(&run) {
                break run;
            }
        };
        let mailbox = Arc::<RunMailbox>::default();
        runs.insert(run, Arc::clone(&mailbox));
        self.busy.fetch_add(1, Relaxed);
        self.total.fetch_add(1, Relaxed);
        Some(WorkerSlot { worker: Arc::clone(self), run, mailbox })
    }

    /// Returns the load: the number of runs that want the processor, and the number of all runs.
    pub(crate) fn load(&self) -> (usize, usize) {
        (self.busy.load(Relaxed), self.total.load(Relaxed))
    }

    /// Whether the worker is reserved for one run at a time.
    pub(crate) fn is_dedicated(&self) -> bool {
        self.slot_freed.is_some()
    }

    /// Whether the worker has been given a run.
    pub(super) fn has_had_runs(&self) -> bool {
        self.last_run.load(Relaxed) > 0
    }

    pub(super) fn pid(&self) -> Option<u32> {
        Some(self.pid.load(Relaxed)).filter(|pid| *pid != 0)
    }

    pub(super) fn set_pid(&self, pid: Option<u32>) {
        self.pid.store(pid.unwrap_or(0), Relaxed);
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.loss.borrow().is_some()
    }

    /// Waits until the worker is lost, and returns the reason.
    pub(crate) async fn wait_lost(&self) -> Arc<WorkerLoss> {
        let mut gone = self.loss.subscribe();
        match gone.wait_for(Option::is_some).await.map(|loss| loss.clone()) {
            Ok(Some(loss)) => loss,
            // Unreachable: the sender lives as long as `self`, and the value is set.
            _ => Arc::new(WorkerLoss::new("it is lost")),
        }
    }

    /// Marks the worker as lost, and notifies all of its runs. Only the first call has an effect.
    pub(crate) fn mark_lost(&self, loss: WorkerLoss) {
        let Some(runs) = lock_mutex(&self.runs).take() else { return };
        let loss = Arc::new(loss);
        self.loss.send_replace(Some(Arc::clone(&loss)));
        for mailbox in runs.into_values() {
            let was_busy = mailbox.waiting_calls.load(Relaxed) == 0;
            mailbox.push_event(RunEvent::Lost { loss: Arc::clone(&loss), was_busy }, None);
        }
        self.waker.wake();
    }

    /// Stops the assignment of further runs to the worker.
    pub(crate) fn retire(&self) {
        self.is_retired.store(true, Relaxed);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired.load(Relaxed)
    }

    /// Returns the status of a program in the worker.
    pub(crate) fn load_status(&self, program: u32) -> ProgramLoadStatus {
        lock_mutex(&self.programs).get(&program).cloned().unwrap_or(ProgramLoadStatus::NotLoaded)
    }

    pub(crate) fn is_ready(&self, program: u32) -> bool {
        !self.is_retired()
            && !self.is_lost()
            && lock_mutex(&self.programs).get(&program) == Some(&ProgramLoadStatus::Ready)
    }

    pub(super) fn set_load_status(&self, program: u32, loaded: ProgramLoadStatus) {
        lock_mutex(&self.programs).insert(program, loaded);
    }

    pub(super) fn lock_outgoing(&self) -> MutexGuard<'_, OutgoingBytes> {
        lock_mutex(&self.outgoing)
    }

    /// Puts a message into the mailbox of its run. Messages for runs that are over are dropped.
    pub(super) fn deliver(self: &Arc<Self>, run: u32, from: WorkerMessage) {
        let mailbox = lock_mutex(&self.runs).as_ref().and_then(|runs| runs.get(&run).cloned());
        if let Some(mailbox) = mailbox {
            let share = match &from {
                WorkerMessage::Long(frame) => Some(BacklogShare::new(self, frame.length())),
                _ => None,
            };
            mailbox.push_event(RunEvent::Message(from), share);
        }
    }

    /// Whether its connection has to wait until runs have taken long frames.
    pub(super) fn has_backlog(&self) -> bool {
        self.backlog.load(Acquire) > MAX_BACKLOG
    }
}

impl BacklogShare {
    fn new(worker: &Arc<ScriptWorker>, bytes: usize) -> Self {
        worker.backlog.fetch_add(bytes, AcqRel);
        Self { worker: Arc::clone(worker), bytes }
    }
}

impl Drop for BacklogShare {
    fn drop(&mut self) {
        self.worker.backlog.fetch_sub(self.bytes, AcqRel);
        self.worker.waker.wake();
    }
}

impl RunMailbox {
    fn push_event(&self, event: RunEvent, share: Option<BacklogShare>) {
        lock_mutex(&self.events).push_back((event, share));
        self.waker.wake();
    }

    fn take_event(&self) -> Option<RunEvent> {
        let (event, _share) = lock_mutex(&self.events).pop_front()?;
        Some(event)
    }
}

impl WorkerSlot {
    /// Polls the next event of the run.
    pub(crate) fn poll_event(&self, context: &mut Context<'_>) -> Poll<RunEvent> {
        if let Some(event) = self.mailbox.take_event() {
            return Poll::Ready(event);
        }
        self.mailbox.waker.register(context.waker());
        self.mailbox.take_event().map_or(Poll::Pending, Poll::Ready)
    }

    /// Records that the run waits for one more call.
    pub(crate) fn begin_wait(&self) {
        if self.mailbox.waiting_calls.fetch_add(1, AcqRel) == 0 {
            self.worker.busy.fetch_sub(1, Relaxed);
        }
    }

    /// Records that one of the run's calls has completed.
    pub(crate) fn end_wait(&self) {
        if self.mailbox.waiting_calls.fetch_sub(1, AcqRel) == 1 {
            self.worker.busy.fetch_add(1, Relaxed);
        }
    }
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        if let Some(runs) = lock_mutex(&self.worker.runs).as_mut() {
            runs.remove(&self.run);
        }
        if self.mailbox.waiting_calls.load(Acquire) == 0 {
            self.worker.busy.fetch_sub(1, Relaxed);
        }
        self.worker.total.fetch_sub(1, Relaxed);
        self.worker.slot_freed.iter().for_each(AvailabilityNotifier::notify);
    }
}

fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
