//! The phases of a request.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A phase of a request, in the order in which requests pass through them. "The life of a request" in
/// ARCHITECTURE.md explains each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum RequestPhase {
    /// The head of the request has been read.
    Accept = 1,
    /// The path selects the route.
    Route,
    /// The request is refused at once if the gateway can't handle it in good time.
    Admit,
    /// The head of the request is checked against the route's rules.
    Validate,
    /// The caller is identified.
    Identify,
    /// The rights and limits of the caller are applied.
    Authorise,
    /// The route's filters see the request and, on its way back, the response.
    Filter,
    /// The route's handler answers.
    Handle,
    /// The cross-origin headers are set.
    Cors,
    /// The response is deduplicated and compressed.
    Encode,
    /// The response begins; the request is logged at its end.
    Log,
}

impl RequestPhase {
    /// All phases, in order.
    pub const ALL: [Self; 11] = [
        Self::Accept,
        Self::Route,
        Self::Admit,
        Self::Validate,
        Self::Identify,
        Self::Authorise,
        Self::Filter,
        Self::Handle,
        Self::Cors,
        Self::Encode,
        Self::Log,
    ];

    /// The name, as in ARCHITECTURE.md.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Route => "route",
            Self::Admit => "admit",
            Self::Validate => "validate",
            Self::Identify => "identify",
            Self::Authorise => "authorise",
            Self::Filter => "filter",
            Self::Handle => "handle",
            Self::Cors => "cors",
            Self::Encode => "encode",
            Self::Log => "log",
        }
    }
}

/// The phases that a request has entered, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseSequence(u64);

/// The number of bits of a phase in a sequence.
const PHASE_BITS: u32 = 4;

impl PhaseSequence {
    /// The last phase.
    fn last_number(self) -> u64 {
        self.0 & ((1 << PHASE_BITS) - 1)
    }

    fn with(self, phase: RequestPhase) -> Self {
        Self(self.0 << PHASE_BITS | phase as u64)
    }

    /// Iterates over the phases, in the order in which they were entered.
    pub fn iter(self) -> impl Iterator<Item = RequestPhase> {
        let numbers =
            (0..u64::BITS / PHASE_BITS).rev().map(move |place| Self(self.0 >> (place * PHASE_BITS)));
        numbers.filter_map(|sequence| {
            RequestPhase::ALL.into_iter().find(|phase| *phase as u64 == sequence.last_number())
        })
    }
}

/// The recorder of a request's phases. Its only writer at a time is the request's task.
#[derive(Debug, Default)]
pub(crate) struct PhaseRecorder(AtomicU64);

impl PhaseRecorder {
    /// Records that a phase begins.
    pub(crate) fn enter(&self, phase: RequestPhase) {
        let entered = self.sequence();
        debug_assert!(entered.last_number() < phase as u64, "{phase:?} follows {entered:x?}");
        self.0.store(entered.with(phase).0, Relaxed);
    }

    /// Returns the phases so far.
    pub(crate) fn sequence(&self) -> PhaseSequence {
        PhaseSequence(self.0.load(Relaxed))
    }
}
