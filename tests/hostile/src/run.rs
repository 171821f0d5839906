//! Plays cases and judges them.

use std::sync::Arc;

use anyhow::Result;
use futures_util::stream::{self, StreamExt};

use crate::case::{Case, Ending};
use crate::counters::Counters;
use crate::target::Target;

/// How many cases are under way at once, where nothing is measured: many of them wait for a limit.
const AT_ONCE: usize = 8;

/// What came of a case: `Err` says what was wrong.
pub type Verdict = std::result::Result<Ending, String>;

/// Plays one case; whether it ended as it has to.
pub async fn play(target: &Arc<Target>, case: &Case) -> Verdict {
    let ending = (case.attack)(Arc::clone(target)).await.map_err(|error| format!("{error:#}"))?;
    if case.endings.contains(&ending) {
        return Ok(ending);
    }
    let allowed: Vec<String> = case.endings.iter().map(Ending::to_string).collect();
    Err(format!("ended with {ending}, and not with {}", allowed.join(" or ")))
}

/// What came of a suite.
#[derive(Debug)]
pub struct Report {
    /// A verdict a case, in their order.
    pub verdicts: Vec<Verdict>,
    /// What is wrong with the gateway after all of them: it serves no more, holds something, or blames itself. A debug
    /// build that `ORFA_POLL_LIMIT_MS` is set for has ended if a poll took longer.
    pub aftermath: Vec<String>,
}

/// Plays cases, several at once, and then sees that the gateway serves as before and holds nothing.
///
/// # Errors
/// When the admin listener does not answer before the first case.
pub async fn play_all(target: &Arc<Target>, cases: &[Case]) -> Result<Report> {
    Counters::settled(&target.admin).await?;
    let played = stream::iter(cases).map(|case| play(target, case)).buffered(AT_ONCE);
    let verdicts = played.collect().await;
    let mut aftermath = Vec::new();
    if let Err(error) = target.still_serves().await {
        aftermath.push(format!("{error:#}"));
    }
    if let Err(error) = Counters::settled(&target.admin).await {
        aftermath.push(format!("{error:#}"));
    }
    let log = target.gateway.log();
    let blames = |line: &&String| {
        ["gateway-failed", "panicked", "beyond ORFA_POLL_LIMIT_MS"].iter().any(|word| line.contains(word))
    };
    aftermath.extend(log.iter().filter(blames).cloned());
    Ok(Report { verdicts, aftermath })
}
