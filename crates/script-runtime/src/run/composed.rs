//! A handler that only calls resources and puts their answers together is done here, by its recipe: no worker is entered.
//!
//! Whatever is unusual is a worker's all the same: a call that fails, a text where data is wanted, a name with escapes.
//! The run is sent there like any other, and what was fetched so far waits for it: nothing is called twice.

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

/// What came of a call.
enum Came {
    /// An answer that is the client's.
    Passed(Reply),
    Done(Outcome, Payload),
}

impl Run {
    /// The answer by the handler's recipe; none if it has none, or a worker has to do it.
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
