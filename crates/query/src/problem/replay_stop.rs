//! The errors that end a replay.

/// The reason why a replay stops.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplayStop {
    /// The recorded run ended here.
    #[error("the recorded run ended here")]
    RecordedEnd,
    /// The program diverged from the recording.
    #[error("host call {number}: the program calls {asked}, where the recording has {recorded}")]
    Call { number: usize, asked: String, recorded: String },
    /// The program waits, but no call finishes.
    #[error("host call {number}: the program waits for a call that did not end in the recording")]
    Wait { number: usize },
    /// A host function returned another result: the recording was made by another version of `orfa`, or was
    /// edited.
    #[error("host call {number}: {call} gives {gives}, where the recording has {recorded}")]
    Result { number: usize, call: String, gives: String, recorded: String },
}
