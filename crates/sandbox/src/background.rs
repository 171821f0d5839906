//! Threads that work while nobody else has anything to do: compiling takes milliseconds, and those who
//! compile must not keep waiting those who run.
//!
//! Their priority is the system's lowest but one step, so that a thread that answers requests gets the core
//! as soon as it asks for it, on one core, too.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tokio::sync::oneshot;

/// By how much such a thread is nicer than others.
const NICE: i32 = 18;

type Job = Box<dyn FnOnce() + Send>;

/// A few threads in the background. They end when the last handle is gone.
#[derive(Clone, Debug)]
pub struct Background(Sender<Job>);

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
        Ok(Self(sender))
    }

    /// Does something there. `None` if it panicked.
    pub async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (done, result) = oneshot::channel();
        self.begin(move || {
            // Who asked may have gone away.
            let _ = done.send(job());
        });
        result.await.ok()
    }

    /// Has something done there, whenever.
    pub fn begin(&self, job: impl FnOnce() + Send + 'static) {
        // The threads live as long as this sender does.
        let _ = self.0.send(Box::new(job));
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
        assert_eq!(background.run(|| -> u8 { panic!("on purpose") }).await, None);
        assert_eq!(background.run(|| 7).await, Some(7));
    }

    #[tokio::test]
    async fn it_is_nicer_than_whoever_asks() {
        let background = Background::start(1).unwrap();
        let nice = || rustix::process::getpriority_process(Some(rustix::thread::gettid())).unwrap();
        assert_eq!(background.run(nice).await, Some(NICE));
        assert_ne!(nice(), NICE);
    }
}
