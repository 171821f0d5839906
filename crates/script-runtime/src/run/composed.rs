//! Handlers that only call resources and combine their responses run here, by their recipe, without entering
//! a worker.
//!
//! All unusual cases are left to a worker: a failed call, text in place of JSON data, an escaped member name.
//! The run then enters a worker as usual, with the results fetched so far, so that no call is repeated.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use script::Recipe;
use services::Call;

use super::Run;
use crate::answer::Reply;
use crate::compose::{Composition, Next};
use crate::frame::{self, Outcome, Payload};
use crate::setup::Setup;

/// The result of a call.
enum Came {
    /// A response that goes to the client.
    Passed(Reply),
    Done(Outcome, Payload),
}

impl Run {
    /// Executes the handler's recipe; `None` if it has none or a worker is needed.
    pub(super) async fn composed(&mut self) -> Option<Reply> {
        let generation = Arc::clone(&self.generation);
        let recipe = generation.service().handlers[self.handler].recipe.as_ref()?;
        if recipe.calls() > self.setup.limits.calls as usize {
            return None;
        }
        self.follow(recipe).await
    }

    async fn follow(&mut self, recipe: &Recipe) -> Option<Reply> {
        let mut composition = Composition::of(recipe, &self.ask)?;
        let mut under_way = FuturesUnordered::new();
        let mut is_usual = true;
        loop {
            while is_usual {
                match composition.next() {
                    Next::Call(call) => {
                        let (setup, origin) = (Arc::clone(&self.setup), Arc::clone(&self.origin.call));
                        under_way
                            .push(async move { (call.step, call.site, made(&setup, &origin, call).await) });
                    }
                    Next::Wait => break,
                    Next::Unusual => is_usual = false,
                }
            }
            match under_way.next().await {
                Some((_, _, Came::Passed(reply))) => return Some(reply),
                Some((step, site, Came::Done(outcome, body))) => {
                    if outcome != Outcome::Ok || !composition.put(step, body.clone()) {
                        is_usual = false;
                    }
                    self.calls.fetched.push((site, outcome, body));
                }
                None if is_usual => break,
                None => return None,
            }
        }
        let body = composition.answer()?;
        Reply::of(frame::Answer { status: 0, headers: Bytes::new(), body }).ok()
    }
}

async fn made(setup: &Setup, origin: &Call, call: crate::compose::Call) -> Came {
    if !call.passes {
        let (outcome, body) = setup.outside.send(origin, call.errand).await;
        return Came::Done(outcome, body);
    }
    match setup.outside.stream(origin, call.errand, setup.limits.received.0).await {
        Ok(reply) => Came::Passed(reply),
        Err((outcome, body)) => Came::Done(outcome, body),
    }
}
