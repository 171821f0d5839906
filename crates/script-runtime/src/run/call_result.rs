//! The results of resource calls, and their delivery to the handler.

use services::{RequestCall, ToProblem, process_text};

use super::RunSetup;
use super::outbound_call::error_reply;
use crate::frame::{CallReply, FramePayload};
use crate::http_message::handler_reply::HandlerReply;
use crate::problem::ScriptError;
use crate::state::StateError;
use crate::workers::WorkerSlot;

/// The result of a call.
pub(super) enum CallResult {
    /// For the handler.
    Done { call: u32, outcome: CallReply, body: FramePayload },
    /// For the client, bypassing the handler.
    PassedThrough { call: u32, reply: HandlerReply },
    /// The result of a declaration.
    Declared { call: u32, site: u32, refused: Option<StateError> },
}

impl CallResult {
    /// The length of its body.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Done { body, .. } => body.bytes.len(),
            Self::PassedThrough { .. } | Self::Declared { .. } => 0,
        }
    }
}

/// Returns the result of a call for its handler. A body that no code reads is copied into a response
/// unchanged, so it is validated here, a long one in the pool; otherwise the worker validates it.
pub(super) async fn validate_result(
    setup: &RunSetup,
    call: &RequestCall,
    outcome: CallReply,
    body: FramePayload,
    is_unread: bool,
) -> (CallReply, FramePayload) {
    if !is_unread || outcome != CallReply::Ok {
        return (outcome, body);
    }
    let (text, pool) = (body.clone(), &setup.scripts.offload);
    match process_text(pool, "script-check", call, body.bytes.len(), move || text.validate()).await {
        Ok(Ok(())) => (outcome, body),
        Ok(Err(error)) => {
            let message = format!("the answer is not the JSON that its type claims: {error}");
            (CallReply::Failed(502, message), body)
        }
        Err(error) => error_reply(&error),
    }
}

/// Sends the result of a call to the handler.
pub(super) fn send_call_result(slot: &WorkerSlot, call: u32, outcome: &CallReply, body: FramePayload) {
    slot.end_wait();
    slot.worker.send_frames(|out| out.put_call_result(slot.run, call, outcome, body));
}

/// Converts an error for the calling handler, in full, since both belong to the same script.
pub(super) fn refused_reply(error: &ScriptError) -> CallReply {
    CallReply::Refused(error.status().as_u16(), format!("{error} ({})", error.code()))
}
