//! Describes how the handlers of a script will run: their state, their concurrency and the commit of their
//! writes.

use script::{CommitPoint, ConcurrencyClass, ResourceHandler, ResourcePath, ScriptProgram, ScriptService};
use serde_json::{Value, json};

use crate::output::terminal::{self, paint};
use crate::output::units;

/// Formats a row for each handler.
pub(super) fn format_plan(program: &ScriptProgram) -> String {
    let handlers = program.services.iter().map(|service| service.handlers.len()).sum();
    let services = units::format_count(program.services.len(), "service");
    let mut text = format!("ok: {services}, {}\n", units::format_count(handlers, "handler"));
    for service in &program.services {
        text.push_str(&format!("{}\n", paint(terminal::BOLD, &service.name)));
        let rows: Vec<[String; 4]> =
            service.handlers.iter().map(|handler| handler_row(service, handler)).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let [first, second, third] = [0, 1, 2].map(width);
        for [name, class, cells, commit] in &rows {
            let line = format!("  {name:first$}  {class:second$}  {cells:third$}  {commit}");
            text.push_str(&format!("{}\n", line.trim_end()));
        }
    }
    text
}

fn handler_row(service: &ScriptService, handler: &ResourceHandler) -> [String; 4] {
    let name = format!("{} {}", handler.method.as_str(), resource_path(service, handler));
    let class = match handler.class {
        ConcurrencyClass::Stateless if handler.recipe.is_some() => "stateless: composed without a worker",
        ConcurrencyClass::Stateless => "stateless: replicated",
        ConcurrencyClass::Reader => "reader: replicated, sees the last committed version",
        ConcurrencyClass::Writer => "writer: one at a time",
    };
    let cells = match cell_names(service, handler) {
        cells if cells.is_empty() => String::new(),
        cells => {
            format!("{} (group {}{})", cells.join(", "), group_number(handler), group_scope(service, handler))
        }
    };
    let commit = match (handler.class, handler.commit) {
        (ConcurrencyClass::Writer, CommitPoint::End) => "commits at its end".to_owned(),
        (ConcurrencyClass::Writer, CommitPoint::Early(at)) => format!("commits early, at {at}"),
        _ => String::new(),
    };
    [name, class.to_owned(), cells, commit]
}

/// Returns the same description as JSON.
pub(super) fn plan_json(program: &ScriptProgram) -> Value {
    let services = program.services.iter().map(|service| {
        let handlers = service.handlers.iter().map(|handler| {
            json!({
                "method": handler.method.as_str(),
                "path": resource_path(service, handler),
                "class": class_name(handler.class),
                "replicated": handler.class != ConcurrencyClass::Writer,
                "composed": handler.recipe.is_some(),
                "cells": cell_names(service, handler),
                "group": handler.group,
                "commit": match handler.commit {
                    _ if handler.class != ConcurrencyClass::Writer => Value::Null,
                    CommitPoint::End => json!("end"),
                    CommitPoint::Early(at) => json!({ "line": at.line, "column": at.column }),
                },
                "calls": handler.calls,
                "line": handler.position.line,
                "column": handler.position.column,
            })
        });
        json!({ "name": service.name, "handlers": handlers.collect::<Vec<_>>() })
    });
    services.collect()
}

fn class_name(class: ConcurrencyClass) -> &'static str {
    match class {
        ConcurrencyClass::Stateless => "stateless",
        ConcurrencyClass::Reader => "reader",
        ConcurrencyClass::Writer => "writer",
    }
}

/// Returns the path, or the key of a resource with a computed path.
fn resource_path<'s>(service: &'s ScriptService, handler: &ResourceHandler) -> &'s str {
    let resource = service.resources.get(handler.resource);
    resource.map_or("", |resource| match &resource.path {
        ResourcePath::Literal(path) => path,
        ResourcePath::Computed => &resource.key,
    })
}

fn cell_names<'s>(service: &'s ScriptService, handler: &ResourceHandler) -> Vec<&'s str> {
    handler.cells.iter().filter_map(|cell| Some(&*service.cells.get(*cell)?.name)).collect()
}

/// The number of the handler's group, from 1.
fn group_number(handler: &ResourceHandler) -> usize {
    handler.group.map_or(0, |group| group + 1)
}

fn group_scope(service: &ScriptService, handler: &ResourceHandler) -> &'static str {
    let group = handler.group.and_then(|group| service.groups.get(group));
    if group.is_some_and(|group| group.shared) { "" } else { ", one for each path" }
}
