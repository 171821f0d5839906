//! Links constructs to the statements of the tree, and sets their scopes, symbols and literals from the tree.

use std::collections::HashSet;

use diagnostics::Diagnostic;
use oxc_ast::ast::{
    ArrayExpressionElement, Expression, ForStatementLeft, Function, ObjectProperty, Program, PropertyKind,
    ReturnStatement, Statement, UnaryOperator, VariableDeclaration,
};
use oxc_ast_visit::{Visit, walk};
use oxc_span::GetSpan;
use oxc_syntax::scope::{ScopeFlags, ScopeId};

use super::prepass::OffsetMap;
use crate::diagnostic::DiagnosticCode;
use crate::syntax::status::StatusResponse;
use crate::syntax::{ConstructId, ConstructKind, ConstructName, SyntaxConstructs};

/// Links the constructs, and runs the checks that need the tree.
pub(super) fn link(
    program: &Program<'_>,
    map: &OffsetMap,
    syntax: &mut SyntaxConstructs,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let mut linker =
        SyntaxLinker { map, syntax, diagnostics, declarative_scopes: HashSet::new(), functions: Vec::new() };
    linker.visit_program(program);
}

struct SyntaxLinker<'s> {
    map: &'s OffsetMap,
    syntax: &'s mut SyntaxConstructs,
    diagnostics: &'s mut Vec<Diagnostic>,
    /// The scopes of the functions that represent services and resources.
    declarative_scopes: HashSet<ScopeId>,
    /// Whether each enclosing function is in `declarative`, outermost first.
    functions: Vec<bool>,
}

impl<'a> Visit<'a> for SyntaxLinker<'_> {
    fn visit_statement(&mut self, statement: &Statement<'a>) {
        if let Some((id, _)) = self.syntax.construct_at(statement.span().start) {
            self.link_construct(id, statement);
        }
        walk::walk_statement(self, statement);
    }

    fn visit_function(&mut self, function: &Function<'a>, flags: ScopeFlags) {
        let declarative =
            function.scope_id.get().is_some_and(|scope| self.declarative_scopes.contains(&scope));
        self.functions.push(declarative);
        walk::walk_function(self, function, flags);
        self.functions.pop();
    }

    fn visit_return_statement(&mut self, statement: &ReturnStatement<'a>) {
        if self.functions.last() == Some(&true) {
            let span = self.map.span_to_source(statement.span);
            let message = "`return` is only allowed in a handler or a function";
            let help = "services and resources only declare; put code that runs for a request into a handler";
            self.diagnostics.push(Diagnostic::in_text(
                DiagnosticCode::ReturnPlace,
                span,
                message,
                "not allowed here",
                help,
            ));
        }
        walk::walk_return_statement(self, statement);
    }
}

impl SyntaxLinker<'_> {
    fn link_construct(&mut self, id: ConstructId, statement: &Statement<'_>) {
        let scope = match statement {
            Statement::ExpressionStatement(statement) => self.function_scope(id, &statement.expression),
            Statement::BlockStatement(block) => block.scope_id.get(),
            Statement::ForInStatement(statement) => {
                if let ForStatementLeft::VariableDeclaration(declaration) = &statement.left {
                    self.set_name_symbols(id, declaration);
                }
                statement.scope_id.get()
            }
            Statement::VariableDeclaration(declaration) => {
                self.set_name_symbols(id, declaration);
                None
            }
            Statement::ThrowStatement(statement) => {
                match StatusResponse::from_expression(&statement.argument) {
                    Some(response) => response.body_members().for_each(|body| self.check_body(body)),
                    None => self.check_value(&statement.argument),
                }
                None
            }
            _ => None,
        };
        let construct = &mut self.syntax.constructs[id];
        construct.scope = scope;
        if matches!(construct.kind, ConstructKind::Service { .. } | ConstructKind::Res { .. }) {
            self.declarative_scopes.extend(scope);
        }
    }

    /// Returns the scope of the function in `void function() {}` or `void [path, function() {}]`.
    fn function_scope(&mut self, id: ConstructId, expression: &Expression<'_>) -> Option<ScopeId> {
        let scope = |function: &Function<'_>| function.scope_id.get();
        let Expression::UnaryExpression(unary) = expression else { return None };
        if unary.operator != UnaryOperator::Void {
            return None;
        }
        match &unary.argument {
            Expression::FunctionExpression(function) => scope(function),
            Expression::ArrayExpression(pair) => {
                let path = pair.elements.first().and_then(ArrayExpressionElement::as_expression);
                self.set_literal(id, path);
                if let Some(path) = path {
                    self.check_path(path);
                }
                let Some(ArrayExpressionElement::FunctionExpression(function)) = pair.elements.get(1) else {
                    return None;
                };
                scope(function)
            }
            _ => None,
        }
    }

    /// Reports a body of a status response that is not a plain value. The emitter moves the body out of its
    /// object, so it cannot be a method or accessor.
    fn check_body(&mut self, body: &ObjectProperty<'_>) {
        let label = match body.kind {
            PropertyKind::Get => "this is a getter",
            PropertyKind::Set => "this is a setter",
            PropertyKind::Init if body.method => "this is a method",
            PropertyKind::Init => return self.check_value(&body.value),
        };
        let message = "the body of a status response is a value";
        let help = "write the value after its name: `body: value`";
        let span = self.map.span_to_source(body.span);
        self.diagnostics.push(Diagnostic::in_text(DiagnosticCode::RespondValue, span, message, label, help));
    }

    /// Reports a function as the value of `respond`. The author probably forgot to call it.
    fn check_value(&mut self, value: &Expression<'_>) {
        let value = value.get_inner_expression();
        let what = match value {
            Expression::FunctionExpression(_) | Expression::ArrowFunctionExpression(_) => "function",
            Expression::ClassExpression(_) => "class",
            _ => return,
        };
        let message = format!("a {what} can't be sent as a response");
        let help = "respond with what it returns: give it a name before, and write `respond name(..)`";
        let span = self.map.span_to_source(value.span());
        let label = format!("this is a {what}");
        self.diagnostics.push(Diagnostic::in_text(DiagnosticCode::RespondValue, span, message, label, help));
    }

    /// Reports a path that does not begin with `/` or that contains a query.
    fn check_path(&mut self, path: &Expression<'_>) {
        let mut first = path;
        while let Expression::BinaryExpression(sum) = first {
            first = &sum.left;
        }
        let text = match first {
            Expression::StringLiteral(text) => text.value.as_str(),
            Expression::TemplateLiteral(template) => {
                template.quasis.first().map_or("", |text| text.value.raw.as_str())
            }
            _ => return,
        };
        let is_literal = matches!(first, Expression::StringLiteral(_)) || !text.is_empty();
        let (message, label, help) = if is_literal && !text.starts_with('/') {
            ("a path begins with `/`", "this one does not", "write it from the service's root: `'/data'`")
        } else if text.contains(['?', '#']) {
            (
                "a path has no query",
                "a path can't contain `?` or `#`",
                "leave it out: a handler finds the parameters in `query`",
            )
        } else {
            return;
        };
        let span = self.map.span_to_source(first.span());
        self.diagnostics.push(Diagnostic::in_text(DiagnosticCode::ResPath, span, message, label, help));
    }

    fn set_literal(&mut self, id: ConstructId, path: Option<&Expression<'_>>) {
        let text = match path {
            Some(Expression::StringLiteral(text)) => Some(text.value.to_string()),
            Some(Expression::TemplateLiteral(template)) => {
                template.single_quasi().map(|text| text.to_string())
            }
            _ => None,
        };
        if let ConstructKind::Res { literal, .. } = &mut self.syntax.constructs[id].kind {
            *literal = text;
        }
    }

    fn set_name_symbols(&mut self, id: ConstructId, declaration: &VariableDeclaration<'_>) {
        let names: &mut [ConstructName] = match &mut self.syntax.constructs[id].kind {
            ConstructKind::State { names } | ConstructKind::External { names } => names,
            ConstructKind::Pfor { name } => std::slice::from_mut(name),
            _ => return,
        };
        for declarator in &declaration.declarations {
            let Some(binding) = declarator.id.get_binding_identifier() else { continue };
            let start = self.map.to_source(binding.span.start as usize);
            if let Some(name) = names.iter_mut().find(|name| name.span.start == start) {
                name.symbol = binding.symbol_id.get();
            }
        }
    }
}
