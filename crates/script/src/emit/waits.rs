//! Emission of calls, `await`, asynchronous functions, responses and early commits.

use std::ops::Range;

use oxc_ast::AstKind;
use oxc_ast::ast::{CallExpression, Expression, ObjectExpression, ObjectPropertyKind, PropertyKind};
use oxc_semantic::NodeId;
use oxc_span::GetSpan;

use super::CodeEmitter;
use super::edits::ReplacementPiece;
use crate::analyse::calls::{WaitOperation, call_by_name};
use crate::analyse::code::{CodeText, FunctionId, find_node_by_span};
use crate::analyse::template::UrlPatternPart;
use crate::method::HandlerMethod;
use crate::syntax::ConstructKind;
use crate::syntax::status::StatusResponse;

impl<'a> CodeEmitter<'_, '_, 'a> {
    pub(super) fn emit_waits(&mut self) {
        let it = self.analysis;
        for (node, wait) in &it.calls.waits {
            if matches!(wait, WaitOperation::Declare(_) | WaitOperation::Await) {
                continue;
            }
            let pieces = match self.hoisted_numbers.get(node) {
                Some(_) => vec![ReplacementPiece::from_text(self.result_variable(*node))],
                None => self.awaited_call(*node),
            };
            self.edits.replace(it.code.node_range(*node), pieces);
        }
        for function in &it.calls.async_functions {
            let place = it.code.node_range(it.code.functions[*function].node);
            self.edits.wrap(place, "async ", "");
        }
        for function in &it.calls.run_receivers {
            self.emit_run_parameter(*function);
        }
    }

    /// Returns a call with `await`, in parentheses unless those would continue the previous line.
    fn awaited_call(&self, node: NodeId) -> Vec<ReplacementPiece> {
        let code = &self.analysis.code;
        let is_statement = matches!(code.kind(code.parent(node)), AstKind::ExpressionStatement(_));
        let (before, after) = if is_statement { ("await ", "") } else { ("(await ", ")") };
        let mut pieces = vec![ReplacementPiece::from_text(before)];
        pieces.extend(self.call_pieces(node));
        pieces.push(ReplacementPiece::from_text(after));
        let starts = self.starts_statement(node);
        if !is_statement && starts {
            // `a = b` newline `g.get().c` must not become `a = b(await ..)`.
            pieces.insert(0, ReplacementPiece::from_text("void 0, "));
        }
        pieces
    }

    /// Whether an expression statement begins with this call.
    fn starts_statement(&self, node: NodeId) -> bool {
        let code = &self.analysis.code;
        let start = code.span(node).start;
        let mut around = code.ancestors(node).take_while(|it| code.span(*it).start == start);
        around.any(|it| matches!(code.kind(it), AstKind::ExpressionStatement(_)))
    }

    /// Returns a resource call without `await`: `$r.call(1, g, 0, [a])` or `$r.unread(..)`. A function call
    /// is returned unchanged.
    pub(super) fn call_pieces(&self, node: NodeId) -> Vec<ReplacementPiece> {
        match self.analysis.calls.waits.get(&node) {
            Some(WaitOperation::Resource { method, .. }) => {
                let word = if self.is_unread(node) { "unread" } else { "call" };
                self.resource_call(node, word, *method)
            }
            _ => vec![ReplacementPiece::SourceInside(self.analysis.code.node_range(node))],
        }
    }

    fn resource_call(&self, node: NodeId, word: &str, method: HandlerMethod) -> Vec<ReplacementPiece> {
        let code = &self.analysis.code;
        let AstKind::CallExpression(call) = code.kind(node) else { return Vec::new() };
        let site = self.sites.get(&node).copied().unwrap_or(0);
        let name = member_object(call).map(|object| code.source_range(object.span())).unwrap_or_default();
        let mut pieces = vec![
            ReplacementPiece::from_text(format!("$r.{word}({site}, ")),
            ReplacementPiece::Source(name),
            ReplacementPiece::from_text(format!(", {}, [", method as u8)),
        ];
        pieces.extend(arguments_range(code, call).map(ReplacementPiece::Source));
        pieces.push(ReplacementPiece::from_text("])"));
        pieces
    }

    /// Whether the response of a call goes into the handler's response unchanged and unread by the author's
    /// code: it is a value in the object or list of a `respond`.
    fn is_unread(&self, call: NodeId) -> bool {
        let code = &self.analysis.code;
        let mut at = code.skip_parentheses(call);
        loop {
            let parent = code.parent(at);
            match code.kind(parent) {
                AstKind::ObjectProperty(property) if property.value.span() == code.span(at) => at = parent,
                AstKind::ObjectExpression(object) if self.has_only_plain_values(object) => {
                    at = code.skip_parentheses(parent)
                }
                AstKind::ArrayExpression(_) => at = code.skip_parentheses(parent),
                AstKind::ThrowStatement(statement) => {
                    let is_status = StatusResponse::from_expression(&statement.argument).is_some();
                    let construct = code.construct_at(parent).map(|id| &code.construct(id).kind);
                    let is_respond = matches!(construct, Some(ConstructKind::Respond { .. }));
                    return is_respond && !is_status && at != code.skip_parentheses(call);
                }
                _ => return false,
            }
        }
    }

    /// Whether an object has only plain values, so that no code of it can read the others, now or in
    /// `JSON.stringify`.
    fn has_only_plain_values(&self, object: &ObjectExpression<'_>) -> bool {
        object.properties.iter().all(|property| match property {
            ObjectPropertyKind::ObjectProperty(it) => {
                let name = it.key.static_name().filter(|_| it.kind == PropertyKind::Init && !it.method);
                name.is_some_and(|name| name != "toJSON" && name != "__proto__")
            }
            ObjectPropertyKind::SpreadProperty(spread) => {
                let argument = spread.argument.without_parentheses().span();
                let node = find_node_by_span(&self.analysis.code, spread.node_id.get(), argument);
                node.is_some_and(|node| {
                    matches!(self.analysis.calls.waits.get(&node), Some(WaitOperation::Resource { .. }))
                })
            }
        })
    }

    /// Adds the run as the first parameter of a function and as the first argument of each of its calls.
    fn emit_run_parameter(&mut self, function: FunctionId) {
        let code = &self.analysis.code;
        let parameters = match code.kind(code.functions[function].node) {
            AstKind::Function(function) => code.source_range(function.params.span),
            AstKind::ArrowFunctionExpression(arrow) => code.source_range(arrow.params.span),
            _ => return,
        };
        let text = code.source_text(parameters.clone());
        if !text.starts_with('(') {
            self.edits.wrap(parameters, "($r, ", ")");
        } else {
            let is_empty = text[1..].trim_start().starts_with(')');
            self.edits
                .replace_text(parameters.start..parameters.start + 1, if is_empty { "($r" } else { "($r, " });
        }
        for node_id in code.arguments_references(function) {
            self.edits.replace_text(code.node_range(node_id), "[...arguments].slice(1)");
        }
        for name in code.name_references(function) {
            self.emit_run_argument(name);
        }
    }

    fn emit_run_argument(&mut self, name: NodeId) {
        let code = &self.analysis.code;
        if let Some(AstKind::CallExpression(call)) = call_by_name(code, name).map(|call| code.kind(call)) {
            // The first argument may have an edit of its own, so the parenthesis before it is replaced.
            let words = if call.arguments.is_empty() { "($r" } else { "($r, " };
            if let Some(open) = code.find_sign(call.callee.span().end..call.span.end, b'(') {
                self.edits.replace_text(open..open + 1, words);
            }
            return;
        }
        let text = code.node_text(name);
        let bound = format!("{text}.bind(null, $r)");
        let words = match code.kind(code.parent(name)) {
            _ if self.is_shorthand(name) => format!("{text}: {bound}"),
            AstKind::NewExpression(new) if new.callee.span() == code.span(name) => format!("({bound})"),
            _ => bound,
        };
        self.edits.replace_text(code.node_range(name), words);
    }

    pub(super) fn template_pieces(&self, external: usize) -> Vec<ReplacementPiece> {
        let mut pieces = vec![ReplacementPiece::from_text("$s.resource([")];
        for (index, part) in self.analysis.names.externals[external].template.parts.iter().enumerate() {
            pieces.push(ReplacementPiece::from_text(if index == 0 { "" } else { ", " }));
            match part {
                UrlPatternPart::Text(text) => pieces
                    .push(ReplacementPiece::from_text(serde_json::Value::from(text.as_str()).to_string())),
                UrlPatternPart::Value(range) => pieces.extend([
                    ReplacementPiece::from_text("{v: "),
                    ReplacementPiece::Source(range.clone()),
                    ReplacementPiece::from_text("}"),
                ]),
            }
        }
        pieces.push(ReplacementPiece::from_text("])"));
        pieces
    }

    pub(super) fn emit_responds(&mut self) {
        let it = self.analysis;
        for (id, construct) in it.code.parsed.syntax.constructs.iter().enumerate() {
            let ConstructKind::Respond { value } = &construct.kind else { continue };
            let node = it.code.statements[id];
            let range = construct.span.start..it.code.node_range(node).end.max(construct.span.end);
            let pieces = self.respond_pieces(node, value.clone());
            self.edits.replace(range, pieces);
        }
    }

    fn respond_pieces(&self, node: NodeId, value: Range<usize>) -> Vec<ReplacementPiece> {
        let code = &self.analysis.code;
        let AstKind::ThrowStatement(statement) = code.kind(node) else { return Vec::new() };
        let bare = find_node_by_span(code, node, statement.argument.without_parentheses().span());
        if let Some((call, WaitOperation::Resource { method, .. })) =
            bare.and_then(|call| Some((call, self.analysis.calls.waits.get(&call)?)))
        {
            let word = if self.ends_handler(node) { "return " } else { "await " };
            let mut pieces = vec![ReplacementPiece::from_text(word)];
            pieces.extend(self.resource_call(call, "pass", *method));
            pieces.push(ReplacementPiece::from_text(";"));
            return pieces;
        }
        if let Some(response) = StatusResponse::from_expression(&statement.argument) {
            return status_response_pieces(code, &response);
        }
        vec![
            ReplacementPiece::from_text("$r.respond("),
            ReplacementPiece::Source(value),
            ReplacementPiece::from_text(");"),
        ]
    }

    /// Whether this statement ends the handler on its path.
    fn ends_handler(&self, node: NodeId) -> bool {
        let code = &self.analysis.code;
        let parent = code.parent(node);
        match code.kind(parent) {
            AstKind::FunctionBody(_) => {
                let function = code.enclosing_function(node);
                self.is_handler(function) && self.is_last_in_list(parent, node)
            }
            AstKind::BlockStatement(_) if code.construct_at(parent).is_none() => {
                self.is_last_in_list(parent, node) && self.ends_handler(parent)
            }
            AstKind::IfStatement(_) => self.ends_handler(parent),
            _ => false,
        }
    }

    fn is_last_in_list(&self, list: NodeId, node: NodeId) -> bool {
        self.analysis.code.subtree_nodes(list).next_back()
            == self.analysis.code.subtree_nodes(node).next_back()
    }

    /// Emits `$r.commit();` after the last statement that accesses state.
    pub(super) fn emit_commits(&mut self) {
        let code = &self.analysis.code;
        for statement in self.analysis.handlers.iter().filter_map(|handling| handling.early_commit) {
            let place = match code.construct_at(statement) {
                Some(id) => code.construct(id).span.start..code.node_range(statement).end,
                None => code.node_range(statement),
            };
            self.edits.wrap(place, "", "; $r.commit();");
        }
    }
}

fn member_object<'b, 'a>(call: &'b CallExpression<'a>) -> Option<&'b Expression<'a>> {
    match call.callee.get_inner_expression() {
        Expression::StaticMemberExpression(member) => Some(&member.object),
        _ => None,
    }
}

/// Returns the range from a call's first argument to its last.
pub(super) fn arguments_range(code: &CodeText<'_, '_>, call: &CallExpression<'_>) -> Option<Range<usize>> {
    let (first, last) = (call.arguments.first()?, call.arguments.last()?);
    Some(code.source_range(first.span()).start..code.source_range(last.span()).end)
}

/// Returns `$r.answer(302, {Location: u}, body)` for `respond {302: {Location: u, body: ..}}`.
fn status_response_pieces(
    code: &CodeText<'_, '_>,
    response: &StatusResponse<'_, '_>,
) -> Vec<ReplacementPiece> {
    let mut pieces = vec![ReplacementPiece::from_text(format!("$r.answer({}, {{", response.status))];
    for (index, header) in response.header_members().enumerate() {
        pieces.push(ReplacementPiece::from_text(if index == 0 { "" } else { ", " }));
        pieces.push(ReplacementPiece::Source(code.source_range(header.span())));
    }
    pieces.push(ReplacementPiece::from_text("}"));
    match response.body_members().last() {
        // The name may have an edit that expands a shorthand property: `body: $c.body`.
        Some(body) if body.shorthand => pieces.extend([
            ReplacementPiece::from_text(", ({"),
            ReplacementPiece::Source(code.source_range(body.span)),
            ReplacementPiece::from_text("}).body"),
        ]),
        Some(body) => pieces.extend([
            ReplacementPiece::from_text(", "),
            ReplacementPiece::Source(code.source_range(body.value.span())),
        ]),
        None => {}
    }
    pieces.push(ReplacementPiece::from_text(");"));
    pieces
}
