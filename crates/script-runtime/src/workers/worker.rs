//! One worker, as the gateway sees it: what is to be said to it, which runs it has, and how busy it is.
//!
//! Whoever has something to say writes it into [`Out`] under a lock and wakes the worker's connection, which writes
//! all of it at once. What a worker says of a run goes into that run's mailbox.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use tokio::sync::watch;

use super::watch::Changes;
use crate::frame::{From, Out};

/// A worker.
#[derive(Debug)]
pub(crate) struct Worker {
    /// Its number; no other worker of this gateway has or had it.
    pub(crate) id: u32,
    /// The script that it runs, for the log.
    pub(crate) script: Arc<str>,
    /// Who is told when it is free again; only of one that is for one run at a time.
    freed: Option<Changes>,
    /// Of its process; 0 before there is one.
    pid: AtomicU32,
    /// Whether somebody finds out if it is stuck.
    pub(super) is_checked: AtomicBool,
    out: Mutex<Out>,
    /// Of its connection.
    pub(super) waker: AtomicWaker,
    /// `None` once it is gone.
    runs: Mutex<Option<BTreeMap<u32, Arc<Mailbox>>>>,
    last: AtomicU32,
    /// Runs that wait for nothing, so that they want its processor.
    busy: AtomicUsize,
    total: AtomicUsize,
    /// Grows with everything that it says.
    pub(super) activity: AtomicU64,
    is_retired: AtomicBool,
    programs: Mutex<HashMap<u32, Loaded>>,
    /// Why it is gone, once it is.
    gone: watch::Sender<Option<Arc<Loss>>>,
}

/// What became of a program in a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Loaded {
    Not,
    Ready,
    Broken { message: String, stack: String },
}

/// Why a worker is gone.
#[derive(Debug)]
pub(crate) struct Loss {
    /// Which of its runs is to blame, where it is known.
    pub(crate) culprit: Option<u32>,
    /// What happened.
    pub(crate) text: String,
    /// The limit of its heap, in MiB, if that is what ended it.
    pub(crate) full: Option<u64>,
}

impl Loss {
    /// That of a worker which no run is known to have ended.
    pub(super) fn of(text: impl Into<String>) -> Self {
        Self { culprit: None, text: text.into(), full: None }
    }
}

/// What is said of a run, until somebody looks.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    events: Mutex<VecDeque<Event>>,
    waker: AtomicWaker,
    /// Calls that it waits for.
    waiting: AtomicU32,
}

/// What is said of a run.
#[derive(Debug)]
pub(crate) enum Event {
    /// By its worker.
    From(From),
    /// Its worker is gone; whether it had the processor, or may have had it.
    Lost { loss: Arc<Loss>, was_busy: bool },
}

/// A run's place in a worker; it is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) worker: Arc<Worker>,
    pub(crate) run: u32,
    mailbox: Arc<Mailbox>,
}

impl Worker {
    pub(super) fn new(id: u32, script: &Arc<str>, freed: Option<Changes>) -> Arc<Self> {
        Arc::new(Self {
            id,
            script: Arc::clone(script),
            freed,
            pid: AtomicU32::new(0),
            is_checked: AtomicBool::new(false),
            out: Mutex::default(),
            waker: AtomicWaker::new(),
            runs: Mutex::new(Some(BTreeMap::new())),
            last: AtomicU32::new(0),
            busy: AtomicUsize::new(0),
            total: AtomicUsize::new(0),
            activity: AtomicU64::new(0),
            is_retired: AtomicBool::new(false),
            programs: Mutex::default(),
            gone: watch::Sender::new(None),
        })
    }

    /// Says something: everything that one `say` writes comes in order, and nothing else in between.
    pub(crate) fn say<T>(&self, write: impl FnOnce(&mut Out) -> T) -> T {
        let result = write(&mut self.out());
        self.waker.wake();
        result
    }

    /// A place for a run; `None` if the worker is gone.
    pub(crate) fn place(self: &Arc<Self>) -> Option<Place> {
        let mut runs = lock(&self.runs);
        let runs = runs.as_mut()?;
        let run = loop {
            let run = self.last.fetch_add(1, Relaxed).wrapping_add(1);
            if run != 0 && !runs.contains_key(&run) {
                break run;
            }
        };
        let mailbox = Arc::<Mailbox>::default();
        runs.insert(run, Arc::clone(&mailbox));
        self.busy.fetch_add(1, Relaxed);
        self.total.fetch_add(1, Relaxed);
        Some(Place { worker: Arc::clone(self), run, mailbox })
    }

    /// How much it has to do: runs that want its processor, then all that it has.
    pub(crate) fn load(&self) -> (usize, usize) {
        (self.busy.load(Relaxed), self.total.load(Relaxed))
    }

    /// Whether it is for one run at a time.
    pub(crate) fn is_alone(&self) -> bool {
        self.freed.is_some()
    }

    pub(super) fn pid(&self) -> Option<u32> {
        Some(self.pid.load(Relaxed)).filter(|pid| *pid != 0)
    }

    pub(super) fn set_pid(&self, pid: Option<u32>) {
        self.pid.store(pid.unwrap_or(0), Relaxed);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.borrow().is_some()
    }

    /// Waits until it is gone, and says why.
    pub(crate) async fn gone(&self) -> Arc<Loss> {
        let mut gone = self.gone.subscribe();
        match gone.wait_for(Option::is_some).await.map(|loss| loss.clone()) {
            Ok(Some(loss)) => loss,
            // The sender is ours, and what was waited for is there.
            _ => Arc::new(Loss::of("it is gone")),
        }
    }

    /// It is gone: all of its runs are told, once.
    pub(crate) fn lose(&self, loss: Loss) {
        let Some(runs) = lock(&self.runs).take() else { return };
        let loss = Arc::new(loss);
        self.gone.send_replace(Some(Arc::clone(&loss)));
        for mailbox in runs.into_values() {
            let was_busy = mailbox.waiting.load(Relaxed) == 0;
            mailbox.put(Event::Lost { loss: Arc::clone(&loss), was_busy });
        }
        self.waker.wake();
    }

    /// From now on it gets no further runs.
    pub(crate) fn retire(&self) {
        self.is_retired.store(true, Relaxed);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.is_retired.load(Relaxed)
    }

    /// What became of a program in it.
    pub(crate) fn loaded(&self, program: u32) -> Loaded {
        lock(&self.programs).get(&program).cloned().unwrap_or(Loaded::Not)
    }

    pub(crate) fn is_ready(&self, program: u32) -> bool {
        !self.is_retired() && !self.is_gone() && lock(&self.programs).get(&program) == Some(&Loaded::Ready)
    }

    pub(super) fn note_loaded(&self, program: u32, loaded: Loaded) {
        lock(&self.programs).insert(program, loaded);
    }

    pub(super) fn out(&self) -> MutexGuard<'_, Out> {
        lock(&self.out)
    }

    /// Puts into a run's mailbox what the worker says of it; what is said of one that is over is lost.
    pub(super) fn deliver(&self, run: u32, from: From) {
        let mailbox = lock(&self.runs).as_ref().and_then(|runs| runs.get(&run).cloned());
        if let Some(mailbox) = mailbox {
            mailbox.put(Event::From(from));
        }
    }
}

impl Mailbox {
    fn put(&self, event: Event) {
        lock(&self.events).push_back(event);
        self.waker.wake();
    }

    fn take(&self) -> Option<Event> {
        lock(&self.events).pop_front()
    }
}

impl Place {
    /// What is said of the run next.
    pub(crate) fn poll_event(&self, context: &mut Context<'_>) -> Poll<Event> {
        if let Some(event) = self.mailbox.take() {
            return Poll::Ready(event);
        }
        self.mailbox.waker.register(context.waker());
        self.mailbox.take().map_or(Poll::Pending, Poll::Ready)
    }

    /// It waits for one call more.
    pub(crate) fn waits(&self) {
        if self.mailbox.waiting.fetch_add(1, AcqRel) == 0 {
            self.worker.busy.fetch_sub(1, Relaxed);
        }
    }

    /// It waits for one call less.
    pub(crate) fn goes_on(&self) {
        if self.mailbox.waiting.fetch_sub(1, AcqRel) == 1 {
            self.worker.busy.fetch_add(1, Relaxed);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(runs) = lock(&self.worker.runs).as_mut() {
            runs.remove(&self.run);
        }
        if self.mailbox.waiting.load(Acquire) == 0 {
            self.worker.busy.fetch_sub(1, Relaxed);
        }
        self.worker.total.fetch_sub(1, Relaxed);
        self.worker.freed.iter().for_each(Changes::tell);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
