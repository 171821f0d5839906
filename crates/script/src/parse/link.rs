//! Which statement of the tree stands for which construct: scopes, symbols and literals that only the tree knows.

use oxc_ast::ast::{
    ArrayExpressionElement, Expression, ForStatementLeft, Function, Program, Statement, UnaryOperator,
    VariableDeclaration,
};
use oxc_ast_visit::{Visit, walk};
use oxc_span::GetSpan;
use oxc_syntax::scope::ScopeId;

use crate::diagnostic::Diagnostic;
use crate::prepass::OffsetMap;
use crate::syntax::{ConstructId, ConstructKind, Name, Syntax};

/// Links, and checks what needs the links.
pub(super) fn link(
    program: &Program<'_>,
    map: &OffsetMap,
    syntax: &mut Syntax,
    _diagnostics: &mut Vec<Diagnostic>,
) {
    let mut linker = Linker { map, syntax };
    linker.visit_program(program);
}

struct Linker<'s> {
    map: &'s OffsetMap,
    syntax: &'s mut Syntax,
}

impl<'a> Visit<'a> for Linker<'_> {
    fn visit_statement(&mut self, statement: &Statement<'a>) {
        if let Some((id, _)) = self.syntax.at(statement.span().start) {
            self.link(id, statement);
        }
        walk::walk_statement(self, statement);
    }
}

impl Linker<'_> {
    fn link(&mut self, id: ConstructId, statement: &Statement<'_>) {
        let scope = match statement {
            Statement::ExpressionStatement(statement) => self.function(id, &statement.expression),
            Statement::BlockStatement(block) => block.scope_id.get(),
            Statement::ForInStatement(statement) => {
                if let ForStatementLeft::VariableDeclaration(declaration) = &statement.left {
                    self.names(id, declaration);
                }
                statement.scope_id.get()
            }
            Statement::VariableDeclaration(declaration) => {
                self.names(id, declaration);
                None
            }
            _ => None,
        };
        self.syntax.constructs[id].scope = scope;
    }

    /// The scope of the function in `void function() {}` or `void [path, function() {}]`.
    fn function(&mut self, id: ConstructId, expression: &Expression<'_>) -> Option<ScopeId> {
        let scope = |function: &Function<'_>| function.scope_id.get();
        let Expression::UnaryExpression(unary) = expression else { return None };
        if unary.operator != UnaryOperator::Void {
            return None;
        }
        match &unary.argument {
            Expression::FunctionExpression(function) => scope(function),
            Expression::ArrayExpression(pair) => {
                let path = pair.elements.first().and_then(ArrayExpressionElement::as_expression);
                self.literal(id, path);
                let Some(ArrayExpressionElement::FunctionExpression(function)) = pair.elements.get(1) else {
                    return None;
                };
                scope(function)
            }
            _ => None,
        }
    }

    fn literal(&mut self, id: ConstructId, path: Option<&Expression<'_>>) {
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

    fn names(&mut self, id: ConstructId, declaration: &VariableDeclaration<'_>) {
        let names: &mut [Name] = match &mut self.syntax.constructs[id].kind {
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
