//! Emission of calls, `await`, asynchronous functions, responses and early commits.

use std::ops::Range;

use oxc_ast::AstKind;
use oxc_ast::ast::{CallExpression, Expression, ObjectExpression, ObjectPropertyKind, PropertyKind};
use oxc_semantic::NodeId;
use oxc_span::GetSpan;

use super::CodeEmitter;
use super::edits::ReplacementPiece;
use crate::analyse::calls::{WaitOperation, call_by};
use crate::analyse::code::{CodeText, FunctionId, node_of};
use crate::analyse::template::UrlPatternPart;
use crate::method::HandlerMethod;
use crate::status::StatusResponse;
use crate::syntax::ConstructKind;

impl<'a> CodeEmitter<'_, '_, 'a> {
    pub(super) fn waits(&mut self) {
        let it = self.it;
        for (node, wait) in &it.calls.waits {
            if matches!(wait, WaitOperation::Declare(_) | WaitOperation::Await) {
                continue;
            }
            let pieces = match self.hoisted.get(node) {
                Some(_) => vec![ReplacementPiece::words(self.result(*node))],
                None => self.waited(*node),
            };
            self.edits.replace(it.code.place(*node), pieces);
        }
        for function in &it.calls.asynchronous {
            let place = it.code.place(it.code.functions[*function].node);
            self.edits.wrap(place, "async ", "");
        }
        for function in &it.calls.given {
            self.gives(*function);
        }
    }

    /// Returns a call with `await`, in parentheses unless those would continue the previous line.
    fn waited(&self, node: NodeId) -> Vec<ReplacementPiece> {
        let code = &self.it.code;
        let is_statement = matches!(code.kind(code.parent(node)), AstKind::ExpressionStatement(_));
        let (before, after) = if is_statement { ("await ", "") } else { ("(await ", ")") };
        let mut pieces = vec![ReplacementPiece::words(before)];
        pieces.extend(self.call(node));
        pieces.push(ReplacementPiece::words(after));
        let starts = self.starts_statement(node);
        if !is_statement && starts {
            // `a = b` newline `g.get().c` must not become `a = b(await ..)`.
            pieces.insert(0, ReplacementPiece::words("void 0, "));
        }
        pieces
    }

    /// Whether an expression statement begins with this call.
    fn starts_statement(&self, node: NodeId) -> bool {
        let code = &self.it.code;
        let start = code.span(node).start;
        let mut around = code.ancestors(node).take_while(|it| code.span(*it).start == start);
        around.any(|it| matches!(code.kind(it), AstKind::ExpressionStatement(_)))
    }

    /// Returns a resource call without `await`: `$r.call(1, g, 0, [a])` or `$r.unread(..)`. A function call
    /// is returned unchanged.
    pub(super) fn call(&self, node: NodeId) -> Vec<ReplacementPiece> {
        match self.it.calls.waits.get(&node) {
            Some(WaitOperation::Resource { method, .. }) => {
                let word = if self.is_unread(node) { "unread" } else { "call" };
                self.resource_call(node, word, *method)
            }
            _ => vec![ReplacementPiece::Inside(self.it.code.place(node))],
        }
    }

    fn resource_call(&self, node: NodeId, word: &str, method: HandlerMethod) -> Vec<ReplacementPiece> {
        let code = &self.it.code;
        let AstKind::CallExpression(call) = code.kind(node) else { return Vec::new() };
        let site = self.sites.get(&node).copied().unwrap_or(0);
        let name = member_object(call).map(|object| code.source(object.span())).unwrap_or_default();
        let mut pieces = vec![
            ReplacementPiece::words(format!("$r.{word}({site}, ")),
            ReplacementPiece::Source(name),
            ReplacementPiece::words(format!(", {}, [", method as u8)),
        ];
        pieces.extend(arguments(code, call).map(ReplacementPiece::Source));
        pieces.push(ReplacementPiece::words("])"));
        pieces
    }

    /// Whether the response of a call goes into the handler's response unchanged and unread by the author's
    /// code: it is a value in the object or list of a `respond`.
    fn is_unread(&self, call: NodeId) -> bool {
        let code = &self.it.code;
        let mut at = code.past_parentheses(call);
        loop {
            let parent = code.parent(at);
            match code.kind(parent) {
                AstKind::ObjectProperty(property) if property.value.span() == code.span(at) => at = parent,
                AstKind::ObjectExpression(object) if self.is_plain(object) => {
                    at = code.past_parentheses(parent)
                }
                AstKind::ArrayExpression(_) => at = code.past_parentheses(parent),
                AstKind::ThrowStatement(statement) => {
                    let is_status = StatusResponse::of(&statement.argument).is_some();
                    let construct = code.construct_at(parent).map(|id| &code.construct(id).kind);
                    let is_respond = matches!(construct, Some(ConstructKind::Respond { .. }));
                    return is_respond && !is_status && at != code.past_parentheses(call);
                }
                _ => return false,
            }
        }
    }

    /// Whether an object has only plain values, so that no code of it can read the others, now or in
    /// `JSON.stringify`.
    fn is_plain(&self, object: &ObjectExpression<'_>) -> bool {
        object.properties.iter().all(|property| match property {
            ObjectPropertyKind::ObjectProperty(it) => {
                let name = it.key.static_name().filter(|_| it.kind == PropertyKind::Init && !it.method);
                name.is_some_and(|name| name != "toJSON" && name != "__proto__")
            }
            ObjectPropertyKind::SpreadProperty(spread) => {
                let argument = spread.argument.without_parentheses().span();
                let node = node_of(&self.it.code, spread.node_id.get(), argument);
                node.is_some_and(|node| {
                    matches!(self.it.calls.waits.get(&node), Some(WaitOperation::Resource { .. }))
                })
            }
        })
    }

    /// Adds the run as the first parameter of a function and as the first argument of each of its calls.
    fn gives(&mut self, function: FunctionId) {
        let code = &self.it.code;
        let parameters = match code.kind(code.functions[function].node) {
            AstKind::Function(function) => code.source(function.params.span),
            AstKind::ArrowFunctionExpression(arrow) => code.source(arrow.params.span),
            _ => return,
        };
        let text = code.text(parameters.clone());
        if !text.starts_with('(') {
            self.edits.wrap(parameters, "($r, ", ")");
        } else {
            let is_empty = text[1..].trim_start().starts_with(')');
            self.edits.words(parameters.start..parameters.start + 1, if is_empty { "($r" } else { "($r, " });
        }
        for own in code.arguments_of(function) {
            self.edits.words(code.place(own), "[...arguments].slice(1)");
        }
        for name in code.mentions(function) {
            self.given_at(name);
        }
    }

    fn given_at(&mut self, name: NodeId) {
        let code = &self.it.code;
        if let Some(AstKind::CallExpression(call)) = call_by(code, name).map(|call| code.kind(call)) {
            // The first argument may have an edit of its own, so the parenthesis before it is replaced.
            let words = if call.arguments.is_empty() { "($r" } else { "($r, " };
            if let Some(open) = code.sign(call.callee.span().end..call.span.end, b'(') {
                self.edits.words(open..open + 1, words);
            }
            return;
        }
        let text = code.text_of(name);
        let bound = format!("{text}.bind(null, $r)");
        let words = match code.kind(code.parent(name)) {
            _ if self.is_shorthand(name) => format!("{text}: {bound}"),
            AstKind::NewExpression(new) if new.callee.span() == code.span(name) => format!("({bound})"),
            _ => bound,
        };
        self.edits.words(code.place(name), words);
    }

    pub(super) fn template(&self, external: usize) -> Vec<ReplacementPiece> {
        let mut pieces = vec![ReplacementPiece::words("$s.resource([")];
        for (index, part) in self.it.names.externals[external].template.parts.iter().enumerate() {
            pieces.push(ReplacementPiece::words(if index == 0 { "" } else { ", " }));
            match part {
                UrlPatternPart::Text(text) => {
                    pieces.push(ReplacementPiece::words(serde_json::Value::from(text.as_str()).to_string()))
                }
                UrlPatternPart::Value(range) => pieces.extend([
                    ReplacementPiece::words("{v: "),
                    ReplacementPiece::Source(range.clone()),
                    ReplacementPiece::words("}"),
                ]),
            }
        }
        pieces.push(ReplacementPiece::words("])"));
        pieces
    }

    pub(super) fn responds(&mut self) {
        let it = self.it;
        for (id, construct) in it.code.parsed.syntax.constructs.iter().enumerate() {
            let ConstructKind::Respond { value } = &construct.kind else { continue };
            let node = it.code.statements[id];
            let range = construct.span.start..it.code.place(node).end.max(construct.span.end);
            let pieces = self.respond(node, value.clone());
            self.edits.replace(range, pieces);
        }
    }

    fn respond(&self, node: NodeId, value: Range<usize>) -> Vec<ReplacementPiece> {
        let code = &self.it.code;
        let AstKind::ThrowStatement(statement) = code.kind(node) else { return Vec::new() };
        let bare = node_of(code, node, statement.argument.without_parentheses().span());
        if let Some((call, WaitOperation::Resource { method, .. })) =
            bare.and_then(|call| Some((call, self.it.calls.waits.get(&call)?)))
        {
            let word = if self.is_last(node) { "return " } else { "await " };
            let mut pieces = vec![ReplacementPiece::words(word)];
            pieces.extend(self.resource_call(call, "pass", *method));
            pieces.push(ReplacementPiece::words(";"));
            return pieces;
        }
        if let Some(response) = StatusResponse::of(&statement.argument) {
            return status_answer(code, &response);
        }
        vec![
            ReplacementPiece::words("$r.respond("),
            ReplacementPiece::Source(value),
            ReplacementPiece::words(");"),
        ]
    }

    /// Whether this statement ends the handler on its path.
    fn is_last(&self, node: NodeId) -> bool {
        let code = &self.it.code;
        let parent = code.parent(node);
        match code.kind(parent) {
            AstKind::FunctionBody(_) => {
                let function = code.function_of(node);
                self.is_handler(function) && self.ends_list(parent, node)
            }
            AstKind::BlockStatement(_) if code.construct_at(parent).is_none() => {
                self.ends_list(parent, node) && self.is_last(parent)
            }
            AstKind::IfStatement(_) => self.is_last(parent),
            _ => false,
        }
    }

    fn ends_list(&self, list: NodeId, node: NodeId) -> bool {
        self.it.code.inside(list).next_back() == self.it.code.inside(node).next_back()
    }

    /// Emits `$r.commit();` after the last statement that accesses state.
    pub(super) fn commits(&mut self) {
        let code = &self.it.code;
        for statement in self.it.handlers.iter().filter_map(|handling| handling.early) {
            let place = match code.construct_at(statement) {
                Some(id) => code.construct(id).span.start..code.place(statement).end,
                None => code.place(statement),
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
pub(super) fn arguments(code: &CodeText<'_, '_>, call: &CallExpression<'_>) -> Option<Range<usize>> {
    let (first, last) = (call.arguments.first()?, call.arguments.last()?);
    Some(code.source(first.span()).start..code.source(last.span()).end)
}

/// Returns `$r.answer(302, {Location: u}, body)` for `respond {302: {Location: u, body: ..}}`.
fn status_answer(code: &CodeText<'_, '_>, response: &StatusResponse<'_, '_>) -> Vec<ReplacementPiece> {
    let mut pieces = vec![ReplacementPiece::words(format!("$r.answer({}, {{", response.status))];
    for (index, header) in response.headers().enumerate() {
        pieces.push(ReplacementPiece::words(if index == 0 { "" } else { ", " }));
        pieces.push(ReplacementPiece::Source(code.source(header.span())));
    }
    pieces.push(ReplacementPiece::words("}"));
    match response.bodies().last() {
        // The name may have an edit that expands a shorthand property: `body: $c.body`.
        Some(body) if body.shorthand => pieces.extend([
            ReplacementPiece::words(", ({"),
            ReplacementPiece::Source(code.source(body.span)),
            ReplacementPiece::words("}).body"),
        ]),
        Some(body) => pieces.extend([
            ReplacementPiece::words(", "),
            ReplacementPiece::Source(code.source(body.value.span())),
        ]),
        None => {}
    }
    pieces.push(ReplacementPiece::words(");"));
    pieces
}
