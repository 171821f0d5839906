//! The Node.js or Bun process that runs compiled programs.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use script::{CompileOptions, ScriptProgram, compile};
use serde_json::{Value, json};

/// A process that runs handlers sequentially.
pub(crate) struct NodeProcess {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl NodeProcess {
    pub(crate) fn start() -> Self {
        Self::spawn(Path::new("node"))
    }

    /// Starts Bun, if `scripts/setup script` has installed it.
    pub(crate) fn bun() -> Option<Self> {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?;
        let bun = target.join("tools/engines/node_modules/.bin/bun");
        bun.exists().then(|| Self::spawn(&bun))
    }

    fn spawn(engine: &Path) -> Self {
        let worker = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/meaning/worker.mjs");
        let process = Command::new(engine).arg(worker).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = process.unwrap_or_else(|error| panic!("{} is required: {error}", engine.display()));
        let input = process.stdin.take().expect("a pipe");
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        Self { process, input, output }
    }

    /// Returns the result of a run of a handler.
    pub(crate) fn run(&mut self, program: &ScriptProgram, handler: usize, seed: u32, query: &Value) -> Value {
        self.run_nested(program, handler, seed, query, &json!({}))
    }

    /// Like `run`, for a resource that was declared with these captured values.
    pub(crate) fn run_nested(
        &mut self,
        program: &ScriptProgram,
        handler: usize,
        seed: u32,
        query: &Value,
        captured: &Value,
    ) -> Value {
        let service = &program.services[0];
        let names: Vec<&String> = service.cells.iter().map(|cell| &cell.view).collect();
        let value = json!({
            "code": program.code, "handler": handler, "seed": seed, "query": query, "cells": {}, "names": names,
            "captured": captured,
        });
        writeln!(self.input, "{value}").expect("node reads");
        let mut line = String::new();
        self.output.read_line(&mut line).expect("node answers");
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        assert!(answer.get("broken").is_none(), "{}\n{}", answer["broken"], program.code);
        answer
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Compiles a valid text.
pub(crate) fn compile_valid(source: &str) -> ScriptProgram {
    compile(source, "test.sjs", &CompileOptions::default()).unwrap_or_else(|diagnostics| {
        let said: Vec<String> = diagnostics.iter().map(|it| it.render("test.sjs", source)).collect();
        panic!("{}\n{source}", said.join("\n"))
    })
}
