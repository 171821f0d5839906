//! Playing cases and checking their endings.

use std::sync::Arc;

use anyhow::Result;
use futures_util::stream::{self, StreamExt};

use crate::case::AttackCase;
use crate::counters::ReturningCounters;
use crate::ending::AttackEnding;
use crate::target::AttackTarget;

/// The number of cases played at once when nothing is measured; many of them wait for a limit.
const CONCURRENCY: usize = 8;

/// The result of a case; an error describes the problem.
pub type AttackVerdict = std::result::Result<AttackEnding, String>;

/// Plays one case and checks its ending.
pub async fn play_case(target: &Arc<AttackTarget>, case: &AttackCase) -> AttackVerdict {
    let ending = (case.attack)(Arc::clone(target)).await.map_err(|error| format!("{error:#}"))?;
    if case.endings.contains(&ending) {
        return Ok(ending);
    }
    let allowed: Vec<String> = case.endings.iter().map(AttackEnding::to_string).collect();
    Err(format!("ended with {ending} instead of {}", allowed.join(" or ")))
}

/// The results of a suite.
#[derive(Debug)]
pub struct SuiteReport {
    /// One verdict per case, in their order.
    pub verdicts: Vec<AttackVerdict>,
    /// Problems of the gateway after all cases: it no longer serves requests, work remains, or its log has
    /// internal errors. A debug build with `ORFA_POLL_LIMIT_MS` ends if a poll takes longer.
    pub aftermath: Vec<String>,
}

/// Plays cases, several at once, and then checks that the gateway still serves requests and has no work left.
///
/// # Errors
/// When the admin listener does not answer before the first case.
pub async fn play_all(target: &Arc<AttackTarget>, cases: &[AttackCase]) -> Result<SuiteReport> {
    ReturningCounters::wait_until_idle(&target.admin_url).await?;
    let played = stream::iter(cases).map(|case| play_case(target, case)).buffered(CONCURRENCY);
    let verdicts = played.collect().await;
    let mut aftermath = Vec::new();
    if let Err(error) = target.check_serving().await {
        aftermath.push(format!("{error:#}"));
    }
    if let Err(error) = ReturningCounters::wait_until_idle(&target.admin_url).await {
        aftermath.push(format!("{error:#}"));
    }
    let log = target.gateway.log_lines();
    let blames = |line: &&String| {
        ["gateway-failed", "panicked", "beyond ORFA_POLL_LIMIT_MS"].iter().any(|word| line.contains(word))
    };
    aftermath.extend(log.iter().filter(blames).cloned());
    Ok(SuiteReport { verdicts, aftermath })
}
