//! The interface between host functions and recordings: writes a recording, replays one, or does nothing.

use std::ops::DerefMut;

use bytes::Bytes;
use serde_json::Value;
use services::{CallError, ProgramResponse};
use tokio::sync::oneshot;

use super::replay_state::ReplayedCall;
use super::{HostCall, RecordedBytes, ReplayState, RunRecorder};
use crate::problem::QueryError;

/// The mode of a run's host calls.
#[derive(Default)]
pub(crate) enum HostCallMode {
    /// Neither recorded nor replayed.
    #[default]
    Off,
    /// Written to a recording.
    Recording(Box<RunRecorder>),
    /// Written to a recording by a job in the pool, which returns the recorder even if it does not run.
    RecordingInPool(oneshot::Receiver<Box<RunRecorder>>),
    /// Answered from a recording.
    Replaying(Box<ReplayState>),
}

impl HostCallMode {
    pub(crate) fn is_off(&self) -> bool {
        matches!(self, Self::Off)
    }

    /// Lends the recorder of a recorded run to a job. It returns when it is dropped.
    pub(crate) fn lend_recorder(
        &mut self,
    ) -> Option<impl DerefMut<Target = Box<RunRecorder>> + Send + 'static + use<>> {
        match std::mem::take(self) {
            Self::Recording(recorder) => {
                let (owner, returned) = oneshot::channel();
                *self = Self::RecordingInPool(returned);
                // If the run was cancelled, nothing needs the recording any more.
                Some(scopeguard::guard(recorder, |recorder| drop(owner.send(recorder))))
            }
            other => {
                *self = other;
                None
            }
        }
    }

    /// Returns the recorder of a recorded run. Waits for the job that it is lent to.
    pub(crate) async fn into_recorder(self) -> Option<Box<RunRecorder>> {
        match self {
            Self::Recording(recorder) => Some(recorder),
            Self::RecordingInPool(returned) => returned.await.ok(),
            Self::Off | Self::Replaying(_) => None,
        }
    }

    /// Reports a host call. In a replay, returns the upstream calls that finish at this point.
    pub(crate) fn record_call(
        &mut self,
        function: &'static str,
        with: Value,
    ) -> Result<Vec<ReplayedCall>, QueryError> {
        match self {
            Self::Off | Self::RecordingInPool(_) => Ok(Vec::new()),
            Self::Recording(recorder) => recorder.record_call(function, with).map(|()| Vec::new()),
            Self::Replaying(player) => player.replay_call(function, &with),
        }
    }

    /// Reports a finished upstream call.
    pub(crate) fn record_upstream_result(
        &mut self,
        handle: i32,
        result: &Result<ProgramResponse, CallError>,
    ) -> Result<(), QueryError> {
        match self {
            Self::Recording(recorder) => recorder.record_upstream_result(handle, result),
            Self::Off | Self::RecordingInPool(_) | Self::Replaying(_) => Ok(()),
        }
    }

    /// Reports the bytes that a host function returns. `body` is the response's body that they may be part
    /// of.
    pub(crate) fn record_data(&mut self, bytes: &[u8], body: &[u8]) -> Result<(), QueryError> {
        match self {
            Self::Recording(recorder) => recorder.record_data(bytes, body),
            Self::Off | Self::RecordingInPool(_) | Self::Replaying(_) => Ok(()),
        }
    }

    /// Reports the result of a host function.
    pub(crate) fn record_result(&mut self, result: Option<i64>) -> Result<(), QueryError> {
        match self {
            Self::Off | Self::RecordingInPool(_) => Ok(()),
            Self::Recording(recorder) => {
                recorder.record_result(result);
                Ok(())
            }
            Self::Replaying(player) => player.check_result(result),
        }
    }

    /// Returns the recorded host call in a replay.
    pub(crate) fn replayed_call(&self) -> Option<&HostCall> {
        match self {
            Self::Replaying(player) => player.current_call(),
            Self::Off | Self::Recording(_) | Self::RecordingInPool(_) => None,
        }
    }

    /// Whether upstream calls are answered from a recording.
    pub(crate) fn is_replaying(&self) -> bool {
        matches!(self, Self::Replaying(_))
    }

    /// Reports that the program waits. An error in a replay, where all calls that finish have finished by
    /// now.
    pub(crate) fn check_can_wait(&self) -> Result<(), QueryError> {
        match self {
            Self::Replaying(player) => Err(player.wait_error()),
            Self::Off | Self::Recording(_) | Self::RecordingInPool(_) => Ok(()),
        }
    }

    /// Counts bytes that will be copied for the next call of a recording.
    pub(crate) fn check_fits(&mut self, bytes: u32) -> Result<(), QueryError> {
        match self {
            Self::Recording(recorder) => recorder.check_fits(bytes as usize),
            Self::Off | Self::RecordingInPool(_) | Self::Replaying(_) => Ok(()),
        }
    }
}

/// Returns bytes in the form that recordings have: as text if they are UTF-8.
pub(crate) fn note_bytes(bytes: Bytes) -> Value {
    serde_json::to_value(RecordedBytes(bytes)).unwrap_or_default()
}
