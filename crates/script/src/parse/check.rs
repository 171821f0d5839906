//! Checks between constructs: names and paths are unique, and resources have handlers.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

use diagnostics::Diagnostic;

use crate::diagnostic::DiagnosticCode;
use crate::method::HandlerMethod;
use crate::syntax::{ConstructId, ConstructKind, SyntaxConstruct, SyntaxConstructs};

pub(super) fn check(syntax: &SyntaxConstructs, diagnostics: &mut Vec<Diagnostic>) {
    diagnostics.extend(check_services(syntax));
    // An invalid method does not conflict with others.
    let told: BTreeSet<usize> = diagnostics.iter().map(|it| it.location.span().start).collect();
    diagnostics
        .extend(check_handlers(syntax).into_iter().filter(|it| !told.contains(&it.location.span().start)));
    diagnostics.extend(check_resources(syntax, &told));
}

/// Reports services with the same name.
fn check_services(syntax: &SyntaxConstructs) -> Vec<Diagnostic> {
    let mut seen: HashMap<&str, Range<usize>> = HashMap::new();
    let mut diagnostics = Vec::new();
    for construct in &syntax.constructs {
        let ConstructKind::Service { name } = &construct.kind else { continue };
        let Some(first) = seen.get(name.text.as_str()).filter(|_| !name.text.is_empty()) else {
            seen.insert(&name.text, name.span.clone());
            continue;
        };
        let message = format!("there are two services called `{}`", name.text);
        let help = "give one of them another name, or put the resources of both into one";
        let error = Diagnostic::in_text(
            DiagnosticCode::ServiceTwice,
            name.span.clone(),
            message,
            "the second one",
            help,
        );
        diagnostics.push(error.with_label(first.clone(), "the first one"));
    }
    diagnostics
}

/// The scope in which a method may have only one handler: a resource, or all resources of a service with the
/// same literal path.
#[derive(PartialEq, Eq, Hash)]
enum HandlerScope<'s> {
    Path(Option<ConstructId>, &'s str),
    Resource(ConstructId),
}

fn check_handlers(syntax: &SyntaxConstructs) -> Vec<Diagnostic> {
    let mut seen: HashMap<(HandlerScope<'_>, HandlerMethod), &Range<usize>> = HashMap::new();
    let mut diagnostics = Vec::new();
    for (id, construct) in syntax.constructs.iter().enumerate() {
        let ConstructKind::On { method, method_span } = &construct.kind else { continue };
        let Some((resource, path)) = handler_resource(syntax, id) else { continue };
        let domain = match path {
            Some(path) => HandlerScope::Path(syntax.enclosing_service(resource), path),
            None => HandlerScope::Resource(resource),
        };
        let Some(first) = seen.get(&(domain, *method)) else {
            let domain = path.map_or(HandlerScope::Resource(resource), |path| {
                HandlerScope::Path(syntax.enclosing_service(resource), path)
            });
            seen.insert((domain, *method), method_span);
            continue;
        };
        let of = path.map_or_else(|| "this resource".to_owned(), |path| format!("`{path}`"));
        let message = format!("{of} has two handlers for {}", method.as_str());
        let help = "keep one of them; resources of the same path are one resource";
        let error = Diagnostic::in_text(
            DiagnosticCode::HandlerTwice,
            method_span.clone(),
            message,
            "the second one",
            help,
        );
        diagnostics.push(error.with_label((*first).clone(), "the first one"));
    }
    diagnostics
}

/// Returns the resource of a handler, and its path if that is a literal.
fn handler_resource(syntax: &SyntaxConstructs, handler: ConstructId) -> Option<(ConstructId, Option<&str>)> {
    let parent = syntax.constructs[handler].parent?;
    match &syntax.constructs[parent].kind {
        ConstructKind::Res { literal, .. } => Some((parent, literal.as_deref())),
        _ => None,
    }
}

/// Reports resources whose braces contain neither a handler nor an invalid one that has been reported.
fn check_resources(syntax: &SyntaxConstructs, told: &BTreeSet<usize>) -> Vec<Diagnostic> {
    let handlers =
        syntax.constructs.iter().filter(|construct| matches!(construct.kind, ConstructKind::On { .. }));
    let with_handler: HashSet<ConstructId> = handlers.filter_map(|handler| handler.parent).collect();
    let bare = |(id, construct): (ConstructId, &SyntaxConstruct)| {
        let ConstructKind::Res { path, inline: false, .. } = &construct.kind else { return None };
        let message = "a resource needs a handler";
        let help = "write one in its braces: `on GET { .. }`";
        let error =
            Diagnostic::in_text(DiagnosticCode::ResBody, path.clone(), message, "this one has none", help);
        let is_told = told.range(construct.span.clone()).next().is_some();
        (!with_handler.contains(&id) && !is_told).then_some(error)
    };
    syntax.constructs.iter().enumerate().filter_map(bare).collect()
}
