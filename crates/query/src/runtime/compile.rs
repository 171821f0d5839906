//! Checks and compiles programs, and estimates in advance how long that takes.

use std::time::Duration;

use query_abi::ENVIRONMENT_C;
use sandbox::Module;

use super::compiled_program::{CompiledProgram, link_imports, to_javascript};
use super::engine_shards::EngineShards;
use crate::problem::{ModuleRefusal, QueryError};
use crate::program::{ProgramLanguage, check};

/// Estimates the CPU time to compile a program.
pub(super) fn estimate_cost(language: ProgramLanguage, program: &[u8]) -> Result<Duration, ModuleRefusal> {
    match language {
        ProgramLanguage::Wasm => check::estimate_compile_cost(program),
        ProgramLanguage::Typescript => {
            let bytes = u32::try_from(program.len()).unwrap_or(u32::MAX);
            Ok(Duration::from_nanos(500).saturating_mul(bytes))
        }
        ProgramLanguage::Javascript => Ok(Duration::ZERO),
    }
}

/// Checks and compiles a program. Passes the CPU time of other threads to `elsewhere`.
pub(super) fn compile(
    shards: &EngineShards,
    home: usize,
    language: ProgramLanguage,
    bytes: &[u8],
    elsewhere: impl FnOnce(Duration),
) -> Result<(CompiledProgram, usize), QueryError> {
    if language != ProgramLanguage::Wasm {
        return Ok(with_weight(CompiledProgram::Javascript(to_javascript(language, bytes, elsewhere)?)));
    }
    let shard = shards.shard(home);
    let facts = check::check_module(bytes, &|name| shard.c.export(name).is_some())?;
    let sandbox = if facts.uses_environment { &shard.c.sandbox } else { &shard.plain.0 };
    let module = sandbox.compile_untrusted(bytes, facts.uses_environment.then_some(ENVIRONMENT_C));
    let module = module.map_err(|error| ModuleRefusal::Malformed(error.to_string()))?;
    if facts.uses_environment {
        let program = link_imports(&shard.c, module)?;
        return Ok(with_weight(CompiledProgram::C(shards.wrap_compiled(home, program))));
    }
    Ok(with_weight(CompiledProgram::Plain(shards.wrap_compiled(home, module))))
}

/// Returns a program with its weight in the cache: its code and a fixed overhead.
pub(super) fn with_weight(program: CompiledProgram) -> (CompiledProgram, usize) {
    const OVERHEAD: usize = 1024;
    let weight = match &program {
        CompiledProgram::Javascript(source) => source.len(),
        compiled => compiled.module().map_or(0, code_size),
    };
    (program, weight + OVERHEAD)
}

/// Returns the size of a module's code in bytes.
pub(super) fn code_size(module: &Module) -> usize {
    let image = module.image_range();
    image.end as usize - image.start as usize
}
