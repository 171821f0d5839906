//! Lanes: the engines that run programs and their pools, once for each thread.
//!
//! Threads that share an engine fetch its counts and its locks from each other, a dozen times for every instance: a fresh
//! query took up to one and a half times as much on two threads (docs/performance.md). So a program is run in the lane of
//! the thread that its request came by. A guest stays in its lane, whichever thread goes on with it; and there
//! are places in each lane for as many guests as may run at all, so that none waits while there is room.
//! What is compiled is in one lane at first. In others it is from when it has been used there a few times.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use sandbox::{Class, Engine, Linker, Pool, Sandbox};

use crate::environment::{CEnvironment, JavascriptEnvironment};
use crate::guest::Guest;
use crate::host;
use crate::program::Program;
use crate::start::StartError;

/// Places where nothing else is written and memory is no matter.
const INSTANCES: u32 = 256;
/// Lanes at most: more threads share them.
const MOST: usize = 8;
/// How often a program is used out of its lane before it is taken into another.
const USES: u32 = 16;

/// An engine and a pool for each kind of program.
pub(crate) struct Lane {
    pub(crate) c: CEnvironment,
    pub(crate) javascript: JavascriptEnvironment,
    pub(crate) plain: (Sandbox, Linker<Guest>),
}

/// All of them, and how many places each has of each kind.
pub(crate) struct Lanes {
    lanes: Vec<Lane>,
    pub(crate) instances: u32,
}

impl Lanes {
    /// Reserves so many lanes and places, or as many as there is address space for: one lane, then half of the places,
    /// and half of those.
    ///
    /// # Errors
    /// When there is not even room for one place, or an environment does not load.
    pub(crate) fn reserve(lanes: usize, instances: u32, memory: usize) -> Result<Self, StartError> {
        let (mut lanes, mut instances) = (lanes.max(1), instances.max(1));
        loop {
            let made: Result<Vec<Lane>, _> =
                (0..lanes).map(|_| Lane::reserve(Pool { instances, memory })).collect();
            let is_least = (lanes, instances) == (1, 1);
            match made {
                Ok(lanes) if is_least || sandbox::has_address_space() => {
                    return Ok(Self { lanes, instances });
                }
                Err(StartError::Sandbox(error)) if !is_least && error.is_refusal() => {}
                Ok(_) => {}
                Err(error) => return Err(error),
            }
            (lanes, instances) = if lanes > 1 { (1, instances) } else { (1, instances / 2) };
        }
    }

    /// The lane of this thread.
    pub(crate) fn own(&self) -> usize {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static THREAD: Cell<Option<usize>> = const { Cell::new(None) });
        let thread = THREAD.get().unwrap_or_else(|| {
            let thread = THREADS.fetch_add(1, Relaxed);
            THREAD.set(Some(thread));
            thread
        });
        thread % self.lanes.len()
    }

    /// A lane that there is.
    pub(crate) fn at(&self, lane: usize) -> &Lane {
        &self.lanes[lane]
    }

    /// All engines.
    pub(crate) fn engines(&self) -> Vec<&Engine> {
        self.lanes.iter().flat_map(Lane::engines).collect()
    }

    /// What was compiled for a lane.
    pub(crate) fn compiled<T>(&self, home: usize, made: T) -> Arc<Compiled<T>> {
        Arc::new(Compiled::new(made, home, self.lanes.len()))
    }
}

impl Lane {
    /// The engine that a program runs in.
    pub(crate) fn engine(&self, program: &Program) -> &Engine {
        match program {
            Program::C(_) => self.c.sandbox.engine(),
            Program::Javascript(_) => self.javascript.base.sandbox.engine(),
            Program::Plain(_) => self.plain.0.engine(),
        }
    }

    fn engines(&self) -> [&Engine; 3] {
        [self.c.sandbox.engine(), self.javascript.base.sandbox.engine(), self.plain.0.engine()]
    }

    fn reserve(pool: Pool) -> Result<Self, StartError> {
        let plain = Sandbox::new(Class::Plain, pool)?;
        let mut linker = Linker::new(plain.engine());
        host::add(&mut linker).map_err(StartError::link("of plain modules"))?;
        Ok(Self {
            c: CEnvironment::load(pool)?,
            javascript: JavascriptEnvironment::load(pool)?,
            plain: (plain, linker),
        })
    }
}

/// What was compiled, lane by lane.
pub(crate) struct Compiled<T> {
    home: usize,
    lanes: Box<[OnceLock<T>]>,
    /// By threads of other lanes than those that it is in.
    uses: AtomicU32,
}

impl<T> Compiled<T> {
    /// For one lane of so many.
    fn new(made: T, home: usize, count: usize) -> Self {
        let lanes: Box<[OnceLock<T>]> = (0..count).map(|_| OnceLock::new()).collect();
        let _ = lanes[home].set(made);
        Self { home, lanes, uses: AtomicU32::new(0) }
    }

    /// The lane where it is to run, and whether it is time to take it into the thread's own.
    pub(crate) fn lane(&self, own: usize) -> (usize, bool) {
        if self.lanes[own].get().is_some() {
            return (own, false);
        }
        (self.home, self.uses.fetch_add(1, Relaxed) % USES == USES - 1)
    }

    /// It in a lane, if it is there.
    pub(crate) fn at(&self, lane: usize) -> Option<&T> {
        self.lanes[lane].get()
    }

    /// It where it was compiled.
    pub(crate) fn home(&self) -> Option<&T> {
        self.at(self.home)
    }

    /// Takes it into another lane, once.
    pub(crate) fn take_into(&self, lane: usize, made: T) -> bool {
        self.lanes[lane].set(made).is_ok()
    }
}

/// How many places there are where the config does not say it: what they keep between programs fits into
/// half of the memory that the process may have.
pub(crate) fn usual_instances(memory: Option<u64>) -> u32 {
    let fitting = memory.map_or(u64::MAX, |memory| memory / 2 / kept());
    u32::try_from(fitting).unwrap_or(INSTANCES).clamp(1, INSTANCES)
}

/// How many lanes there are for so many threads and places: what the places of all lanes keep fits into that
/// half, too.
pub(crate) fn usual_lanes(threads: usize, instances: u32, memory: Option<u64>) -> usize {
    let lane = kept().saturating_mul(instances.max(1).into());
    let fitting = memory.map_or(u64::MAX, |memory| memory / 2 / lane);
    let most = threads.min(MOST).min(instances as usize);
    usize::try_from(fitting).unwrap_or(MOST).min(most).max(1)
}

/// Bytes that a place of each kind keeps.
fn kept() -> u64 {
    [Class::C, Class::Javascript, Class::Plain].map(Class::kept).iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_places_keep_fits_into_half_of_the_memory() {
        assert_eq!(usual_instances(None), 256);
        assert_eq!(usual_instances(Some(64 << 30)), 256);
        let few = usual_instances(Some(512 << 20));
        assert!((32..100).contains(&few), "{few}");
        assert_eq!(usual_instances(Some(1 << 20)), 1);
    }

    #[test]
    fn each_thread_has_a_lane_where_memory_is_no_matter() {
        assert_eq!(usual_lanes(2, 256, None), 2);
        assert_eq!(usual_lanes(64, 256, None), MOST);
        assert_eq!(usual_lanes(4, 256, Some(64 << 30)), 4);
        assert_eq!(usual_lanes(4, 256, Some(5 << 30)), 2);
        assert_eq!(usual_lanes(4, 256, Some(512 << 20)), 1);
        assert_eq!(usual_lanes(4, 1, None), 1, "who runs one program at a time needs one");
    }

    #[test]
    fn what_is_used_out_of_its_lane_a_few_times_is_wanted_in_another() {
        let compiled = Compiled::new('a', 1, 2);
        assert_eq!(compiled.lane(1), (1, false));
        let wanted: Vec<u32> = (1..=3 * USES).filter(|_| compiled.lane(0).1).collect();
        assert_eq!(wanted.len(), 3, "and again where nothing came of it");
        assert_eq!((compiled.lane(0).0, compiled.at(0)), (1, None));
        assert!(compiled.take_into(0, 'b'));
        assert!(!compiled.take_into(0, 'c'));
        assert_eq!((compiled.lane(0), compiled.at(0)), ((0, false), Some(&'b')));
    }
}
