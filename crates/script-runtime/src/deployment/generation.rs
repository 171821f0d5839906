//! An active program and the data that its runs need. A changed script becomes a new generation beside the
//! old one; each run keeps its own, and the workers unload a program when its last run is over.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use script::{ConcurrencyClass, InlinePlan, ResourceHandler, ScriptProgram, ScriptService, TextPosition};
use serde_json::json;

use super::path_table::PathTable;
use crate::state::StateView;
use crate::workers::{HandlerStrikes, WorkerPool, WorkerProgram, WorkerSlot};

/// A service of an active program.
pub(crate) struct ProgramGeneration {
    /// The program's number in frames.
    pub(crate) number: u32,
    pub(crate) program: Arc<ScriptProgram>,
    /// The index of the service in the program.
    pub(crate) service: usize,
    pub(crate) edition: StateView,
    pub(crate) table: PathTable,
    pub(crate) pool: Arc<WorkerPool>,
    /// The recipe of each handler, if it has one.
    recipes: Vec<Option<Arc<InlinePlan>>>,
    /// The position of each handler, and the number of workers that it ended.
    strikes: Arc<[HandlerStrikes]>,
}

impl ProgramGeneration {
    pub(crate) fn new(
        number: u32,
        program: Arc<ScriptProgram>,
        service: usize,
        edition: StateView,
        pool: Arc<WorkerPool>,
        strikes: Arc<[HandlerStrikes]>,
    ) -> Self {
        let of = &program.services[service];
        let recipes = of.handlers.iter().map(|handler| handler.recipe.clone().map(Arc::new)).collect();
        let table = PathTable::new(of);
        Self { number, program, service, edition, table, pool, recipes, strikes }
    }

    pub(crate) fn service(&self) -> &ScriptService {
        &self.program.services[self.service]
    }

    /// Returns the position of a handler: `shop.sjs:12:3`.
    pub(crate) fn handler_position(&self, handler: usize) -> &str {
        self.strikes.get(handler).map_or("", |strikes| &*strikes.position)
    }

    /// Returns the recipe of a handler.
    pub(crate) fn recipe(&self, handler: usize) -> Option<Arc<InlinePlan>> {
        self.recipes.get(handler).cloned().flatten()
    }

    /// Returns the origin of an error: the first position of the script in its stack, else the call site,
    /// else the handler.
    pub(crate) fn error_origin(&self, handler: usize, site: u32, stack: &str) -> String {
        let program = &*self.program;
        if let Some(position) = original_position(program, stack) {
            return format!("{}:{position}", program.name);
        }
        let site = (site as usize).checked_sub(1).and_then(|index| program.sites.get(index));
        match site {
            Some(site) => format!("{}:{}", program.name, site.position),
            None => self.handler_position(handler).to_owned(),
        }
    }

    /// Records that a handler ended its worker.
    pub(crate) fn record_strike(&self, handler: usize, times: u32) {
        if let Some(strikes) = self.strikes.get(handler) {
            strikes.record(times);
        }
    }

    /// Whether a handler must run alone, since it has ended several workers.
    pub(crate) fn is_isolated(&self, handler: usize) -> bool {
        self.strikes.get(handler).is_some_and(HandlerStrikes::is_isolated)
    }

    /// Returns a slot in a worker for a run of a handler; in a dedicated one, if either must run alone.
    pub(crate) async fn acquire_slot(&self, handler: usize, path: &str, alone: bool) -> WorkerSlot {
        if alone || self.is_isolated(handler) {
            return self.pool.acquire_dedicated_slot(self.number).await;
        }
        let key = self.writer_key(&self.service().handlers[handler], path);
        self.pool.acquire_slot(self.number, key).await
    }

    /// Returns the key by which a writer is assigned to a worker: writers of the same group get the same
    /// worker.
    fn writer_key(&self, handler: &ResourceHandler, path: &str) -> Option<u64> {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let group = handler.group.filter(|_| handler.class == ConcurrencyClass::Writer)?;
        let is_shared = self.service().groups.get(group).is_none_or(|group| group.shared);
        let mut hasher = DefaultHasher::new();
        (group, if is_shared { "" } else { path }).hash(&mut hasher);
        Some(hasher.finish())
    }
}

impl Drop for ProgramGeneration {
    fn drop(&mut self) {
        self.pool.unload(self.number);
    }
}

/// Converts a program to the form that workers load, to serve one of its services.
pub(crate) fn worker_program(
    number: u32,
    program: &ScriptProgram,
    service: usize,
    folder: &str,
) -> WorkerProgram {
    let place =
        |handler: &ResourceHandler| HandlerStrikes::new(format!("{}:{}", program.name, handler.position));
    let strikes = program.services[service].handlers.iter().map(place).collect();
    let services: Vec<_> = program
        .services
        .iter()
        .map(|service| {
            let name = |cell: &usize| service.cells.get(*cell).map_or("", |cell| &cell.view);
            let handlers = service.handlers.iter();
            let handlers: Vec<_> = handlers
                .map(|handler| json!({ "cells": handler.cells.iter().map(name).collect::<Vec<_>>() }))
                .collect();
            let resources: Vec<_> = service
                .resources
                .iter()
                .map(|resource| {
                    let cell = |cell: &usize| json!({ "index": cell, "name": name(cell) });
                    json!({ "cells": resource.cells.iter().map(cell).collect::<Vec<_>>() })
                })
                .collect();
            json!({ "name": service.name, "handlers": handlers, "resources": resources })
        })
        .collect();
    let descriptor =
        json!({ "services": services, "sites": program.sites.len(), "settings": { "pfor": 64 } });
    WorkerProgram {
        number,
        name: program.name.clone(),
        folder: folder.to_owned(),
        descriptor: descriptor.to_string(),
        code: program.code.clone(),
        strikes,
        damaged_workers: AtomicU32::new(0),
    }
}

/// Returns the position at which a program failed to load: `shop.sjs:3:7`, or just the file.
pub(crate) fn load_failure_position(program: &ScriptProgram, stack: &str) -> String {
    match original_position(program, stack) {
        Some(position) => format!("{}:{position}", program.name),
        None => program.name.clone(),
    }
}

fn original_position(program: &ScriptProgram, stack: &str) -> Option<TextPosition> {
    let (line, column) = stack_position(stack, &program.name)?;
    program.map.original_position(line, column)
}

/// Returns the first position in a stack that is in the script: `at f (shop.sjs:3:7)`.
fn stack_position(stack: &str, name: &str) -> Option<(u32, u32)> {
    let name: String = name.chars().map(|letter| if letter.is_whitespace() { '_' } else { letter }).collect();
    stack.match_indices(&name).find_map(|(at, _)| {
        let rest = stack.get(at + name.len()..)?.strip_prefix(':')?;
        let mut numbers = rest.splitn(3, |letter: char| !letter.is_ascii_digit());
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_position_of_an_error_is_the_first_of_the_script_in_its_stack() {
        let stack =
            "ReferenceError: oops\n    at f (node:internal:1:2)\n    at Object.GET (my_shop.sjs:6:23)\n";
        assert_eq!(stack_position(stack, "my shop.sjs"), Some((6, 23)));
        assert_eq!(stack_position(stack, "other.sjs"), None);
        assert_eq!(stack_position("shop.sjs:7:x shop.sjs:8:9", "shop.sjs"), Some((8, 9)));
    }
}
