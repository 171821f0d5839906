//! Threads that work while nobody else has anything to do: compiling takes milliseconds, and those who
//! compile must not keep waiting those who run.
//!
//! Their priority is the system's lowest but one step, so that a thread that answers requests gets the core
//! as soon as it asks for it, on one core, too.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tokio::sync::oneshot;

/// By how much such a thread is nicer than others.
const NICE: i32 = 18;

/// So many jobs wait at most.
const MOST: usize = 256;

type Job = Box<dyn FnOnce() + Send>;

/// A few threads in the background. They end when the last handle is gone.
#[derive(Clone, Debug)]
pub struct Background {
    jobs: Sender<Job>,
    waiting: Arc<AtomicUsize>,
}

/// Why a job was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotDone {
    /// Too many wait already.
    Full,
    /// It panicked.
    Panicked,
}

impl Background {
    /// Starts so many threads.
    ///
    /// # Errors
    /// When the system refuses them.
    pub fn start(threads: usize) -> std::io::Result<Self> {
        let (sender, receiver) = channel::<Job>();
        let receiver = Arc::new(Mutex::new(receiver));
        for number in 0..threads.max(1) {
            let receiver = Arc::clone(&receiver);
            thread::Builder::new().name(format!("compile-{number}")).spawn(move || work(&receiver))?;
        }
        Ok(Self { jobs: sender, waiting: Arc::default() })
    }

    /// Does something there.
    ///
    /// # Errors
    /// When too many jobs wait, or this one panics.
    pub async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NotDone> {
        if self.waiting.fetch_add(1, Relaxed) >= MOST {
            self.waiting.fetch_sub(1, Relaxed);
            return Err(NotDone::Full);
        }
        let (done, result) = oneshot::channel();
        let waiting = Arc::clone(&self.waiting);
        let job = move || {
            waiting.fetch_sub(1, Relaxed);
            // Who asked may have gone away.
            let _ = done.send(job());
        };
        // The threads live as long as this sender does.
        let _ = self.jobs.send(Box::new(job));
        result.await.map_err(|_| NotDone::Panicked)
    }
}

fn work(jobs: &Mutex<Receiver<Job>>) {
    // Where the system doesn't let a thread be nice, it works as others do.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        // One job's panic is not the next one's: its asker hears that there is no result.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_job_that_panics_ends_no_other() {
        let background = Background::start(1).unwrap();
        assert_eq!(background.run(|| -> u8 { panic!("on purpose") }).await, Err(NotDone::Panicked));
        assert_eq!(background.run(|| 7).await, Ok(7));
    }

    #[tokio::test]
    async fn who_comes_when_too_many_wait_is_told_at_once() {
        let background = Background::start(1).unwrap();
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let (begins, begun) = oneshot::channel();
        let blocked = tokio::spawn({
            let background = background.clone();
            async move { background.run(move || begins.send(()).is_ok() && gone.recv().is_err()).await }
        });
        begun.await.unwrap();
        let many: Vec<_> = (0..2 * MOST).map(|_| Box::pin(background.run(|| ()))).collect();
        let full = futures_util::future::select_all(many).await.0;
        assert_eq!(full, Err(NotDone::Full));
        drop(go);
        assert_eq!(blocked.await.unwrap(), Ok(true));
    }

    #[tokio::test]
    async fn it_is_nicer_than_whoever_asks() {
        let background = Background::start(1).unwrap();
        let nice = || rustix::process::getpriority_process(Some(rustix::thread::gettid())).unwrap();
        assert_eq!(background.run(nice).await, Ok(NICE));
        assert_ne!(nice(), NICE);
    }
}
