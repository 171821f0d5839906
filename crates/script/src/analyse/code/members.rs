//! The methods that a text defines itself. A method call is assumed to call a JavaScript built-in only if the
//! text defines no method of that name, because the type of the receiver is unknown.

use std::collections::HashSet;

use oxc_ast::AstKind;
use oxc_ast::ast::{
    AssignmentTarget, Expression, MethodDefinitionKind, ObjectExpression, ObjectPropertyKind, PropertyKey,
    PropertyKind,
};
use oxc_span::GetSpan;
use oxc_syntax::symbol::SymbolId;

use super::{CodeText, identifier_symbol};

/// The members of a text's objects and classes that run code of the text.
#[derive(Debug, Default)]
pub(crate) struct CodeMembers {
    names: HashSet<String>,
    /// Whether a member has a computed name.
    has_computed: bool,
    /// Whether assigning a member may run code.
    pub(crate) has_setter: bool,
}

impl CodeMembers {
    pub(super) fn from_code(code: &CodeText<'_, '_>) -> Self {
        let mut members = Self::default();
        for node in code.semantic.nodes().iter() {
            members.visit_node(code, node.kind());
        }
        members
    }

    /// Whether an object or class of the text has a method of this name.
    pub(crate) fn defines_method(&self, name: &str) -> bool {
        self.has_computed || self.names.contains(name)
    }

    fn visit_node(&mut self, code: &CodeText<'_, '_>, kind: AstKind<'_>) {
        match kind {
            AstKind::ObjectProperty(it) => {
                self.has_setter |= it.kind == PropertyKind::Set;
                if it.kind != PropertyKind::Init || is_function(code, &it.value) {
                    self.add_member(code, &it.key);
                }
            }
            AstKind::MethodDefinition(it) => {
                self.has_setter |= it.kind == MethodDefinitionKind::Set;
                if it.kind != MethodDefinitionKind::Constructor {
                    self.add_member(code, &it.key);
                }
            }
            AstKind::PropertyDefinition(it)
                if it.value.as_ref().is_some_and(|value| is_function(code, value)) =>
            {
                self.add_member(code, &it.key);
            }
            AstKind::AssignmentExpression(it) if is_function(code, &it.right) => match &it.left {
                AssignmentTarget::StaticMemberExpression(member) => {
                    self.names.insert(member.property.name.to_string());
                }
                AssignmentTarget::ComputedMemberExpression(member) => match &member.expression {
                    Expression::StringLiteral(name) => {
                        self.names.insert(name.value.to_string());
                    }
                    _ => self.has_computed = true,
                },
                _ => {}
            },
            _ => {}
        }
    }

    fn add_member(&mut self, code: &CodeText<'_, '_>, key: &PropertyKey<'_>) {
        if let Some(name) = key.static_name() {
            self.names.insert(name.into_owned());
            return;
        }
        // `[Symbol.iterator]` is not called by name, and `#name` is not reached by `object.name`.
        let is_symbol = code.source_text(code.source_range(key.span())).starts_with("Symbol.");
        self.has_computed |= !is_symbol && !key.is_private_identifier();
    }
}

/// Whether an object has no code of its own, so that only the values of its members can run code.
pub(crate) fn is_data(code: &CodeText<'_, '_>, object: &ObjectExpression<'_>) -> bool {
    object.properties.iter().all(|property| match property {
        ObjectPropertyKind::ObjectProperty(it) => {
            let is_arrow = matches!(it.value.get_inner_expression(), Expression::ArrowFunctionExpression(_));
            it.kind == PropertyKind::Init && (is_arrow || !is_function(code, &it.value))
        }
        ObjectPropertyKind::SpreadProperty(_) => true,
    })
}

/// Whether an expression is definitely a function, or the name of one.
pub(crate) fn is_function(code: &CodeText<'_, '_>, value: &Expression<'_>) -> bool {
    let is_declared = |symbol: SymbolId| {
        code.functions_by_symbol.contains_key(&symbol)
            || matches!(code.kind(code.declaration(symbol)), AstKind::Function(_))
    };
    value.get_inner_expression().is_function() || identifier_symbol(code, value).is_some_and(is_declared)
}
