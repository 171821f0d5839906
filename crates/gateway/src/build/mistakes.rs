//! Mistakes in a config that show only when its objects are built.

use offload::OffloadPool;
use services::config::ConfigProblem;

use super::BuildError;
use crate::config::{ConfigMistake, FieldPositions, GatewayConfig};

/// Starts an offload pool for objects that are built without a gateway.
///
/// # Errors
/// If the system refuses the threads.
pub(super) fn start_offload_pool(config: &GatewayConfig) -> Result<OffloadPool, Vec<ConfigMistake>> {
    OffloadPool::start(config.runtime.offload_config())
        .map_err(|error| vec![config.source.mistake("", BuildError::Offload(error).to_string(), None)])
}

/// Converts problems below a field to mistakes.
pub(super) fn config_mistakes(
    source: &FieldPositions,
    base: &str,
    problems: Vec<ConfigProblem>,
) -> Vec<ConfigMistake> {
    let mistake = |problem: ConfigProblem| {
        let hint = Some(problem.hint).filter(|hint| !hint.is_empty());
        source.mistake(&format!("{base}{}", problem.pointer), problem.message, hint)
    };
    problems.into_iter().map(mistake).collect()
}

/// Adds mistakes. Those of a file that several routes name are added once.
pub(super) fn add_mistakes(mistakes: &mut Vec<ConfigMistake>, more: Vec<ConfigMistake>) {
    for mistake in more {
        if !mistakes.contains(&mistake) {
            mistakes.push(mistake);
        }
    }
}
