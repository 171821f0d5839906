//! Walks the tree, collects all text that is only a type, and rejects constructs that are more than types.
//! Erased and transparent nodes are not entered, so that the shape recorded on the way is that of the
//! JavaScript.

use oxc_ast::{AstKind, ast::*};
use oxc_ast_visit::{Visit, walk};
use oxc_parser::{Kind, Token};
use oxc_span::{GetSpan, Span};

use super::shape::TreeShape;
use super::text::{ErasedSpans, SeamKind, TokenPositions, is_line_break};
use super::{SyntaxError, erase::javascript_syntax::is_runtime_statement};

mod javascript_syntax;

pub(super) struct TypeEraser<'s> {
    source: &'s str,
    tokens: TokenPositions<'s>,
    erasures: ErasedSpans,
    shape: TreeShape,
    first_error: Option<SyntaxError>,
}

impl<'s> TypeEraser<'s> {
    pub(super) fn erase_types(
        source: &'s str,
        tokens: &'s [Token],
        program: &Program<'_>,
    ) -> Result<(ErasedSpans, TreeShape), SyntaxError> {
        let mut eraser = Self {
            source,
            tokens: TokenPositions(tokens),
            erasures: ErasedSpans::default(),
            shape: TreeShape::default(),
            first_error: None,
        };
        eraser.visit_program(program);
        match eraser.first_error {
            Some(error) => Err(error),
            None => Ok((eraser.erasures, eraser.shape)),
        }
    }

    fn erase(&mut self, span: Span) {
        self.erasures.erase(span.start, span.end);
    }

    fn erase_at_seam(&mut self, start: u32, end: u32, seam: SeamKind) {
        self.erasures.erase(start, end);
        self.erasures.add_seam(start, seam);
    }

    /// Records an error. The first one counts, since the walk goes from top to bottom.
    fn record_error(&mut self, span: Span, message: &str, hint: &str) {
        let source = self.source;
        self.first_error.get_or_insert_with(|| {
            SyntaxError::at_offset(source, span.start, message, Some(hint.to_owned()))
        });
    }

    /// Erases an entry of a list together with the comma after it.
    fn erase_entry(&mut self, span: Span) {
        self.erase(span);
        if let Some(comma) = self.tokens.first_from(span.end).filter(|t| t.kind() == Kind::Comma) {
            self.erase(comma.span());
        }
    }

    /// Erases the `?` or `!` after a name.
    fn erase_mark(&mut self, name_end: u32) {
        let mut next = self.tokens.first_from(name_end);
        if let Some(bracket) = next.filter(|token| token.kind() == Kind::RBrack) {
            next = self.tokens.first_from(bracket.end());
        }
        if let Some(mark) = next.filter(|t| matches!(t.kind(), Kind::Question | Kind::Bang)) {
            self.erase(mark.span());
        }
    }

    /// Erases modifiers such as `public` and `readonly` before a member's name.
    fn erase_modifiers(&mut self, member: Span, key: &PropertyKey<'_>) {
        for token in self.tokens.between(member.start, key.span().start) {
            if !is_type_modifier(token.kind()) {
                continue;
            }
            self.erase(token.span());
            if token.start() == member.start {
                self.erasures.add_seam(member.start, SeamKind::Member);
            }
        }
    }

    /// JavaScript forbids a line break between `)` and `=>`: if the return type spans lines, `)` moves to its
    /// end.
    fn keep_arrow_on_line(&mut self, params: Span, return_type: Span) {
        let Some(erased) = self.source_between(params.end, return_type.end) else { return };
        if let Some((at, _)) = erased.char_indices().next_back().filter(|_| has_line_break(erased)) {
            self.erasures.erase(params.end - 1, params.end);
            self.erasures.insert_char(params.end + at as u32, ')');
        }
    }

    /// JavaScript forbids a line break after `async` and `return`: if type parameters span lines, `(` moves
    /// to their start.
    fn keep_parameters_on_line(&mut self, type_parameters: Span, params: Span) {
        if self.source_between(type_parameters.start, params.start).is_some_and(has_line_break) {
            self.erasures.erase(params.start, params.start + 1);
            self.erasures.insert_char(type_parameters.start, '(');
        }
    }

    fn source_between(&self, start: u32, end: u32) -> Option<&'s str> {
        self.source.get(start as usize..end as usize)
    }

    fn erase_field_marks(&mut self, field: &PropertyDefinition<'_>) {
        let (key_end, typed) = (field.key.span().end, field.type_annotation.is_some());
        if field.optional || field.definite {
            self.erase_mark(key_end);
        }
        let named_as_modifier = !field.computed
            && field.value.is_none()
            && field.key.static_name().is_some_and(|name| is_modifier_name(&name));
        if named_as_modifier && (typed || field.optional || field.definite) {
            let at = self.tokens.first_from(key_end).map_or(key_end, |token| token.start());
            self.erasures.add_seam(at, SeamKind::FieldNamedAsModifier);
        }
    }
}

impl<'a> Visit<'a> for TypeEraser<'_> {
    fn enter_node(&mut self, kind: AstKind<'a>) {
        self.shape.push_node(kind);
    }

    fn leave_node(&mut self, kind: AstKind<'a>) {
        self.shape.pop_node(kind);
    }

    // Statements and the entries of their lists

    fn visit_statement(&mut self, it: &Statement<'a>) {
        if is_runtime_statement(it) {
            walk::walk_statement(self, it);
        } else {
            self.erase_at_seam(it.span().start, it.span().end, SeamKind::Statement);
        }
    }

    fn visit_import_declaration_specifier(&mut self, it: &ImportDeclarationSpecifier<'a>) {
        if javascript_syntax::is_type_specifier(it) {
            self.erase_entry(it.span());
        } else {
            walk::walk_import_declaration_specifier(self, it);
        }
    }

    fn visit_export_specifier(&mut self, it: &ExportSpecifier<'a>) {
        if it.export_kind == ImportOrExportKind::Type {
            self.erase_entry(it.span);
        } else {
            walk::walk_export_specifier(self, it);
        }
    }

    fn visit_variable_declarator(&mut self, it: &VariableDeclarator<'a>) {
        if it.definite {
            self.erase_mark(it.id.span().end);
        }
        walk::walk_variable_declarator(self, it);
    }

    // Classes

    fn visit_class(&mut self, it: &Class<'a>) {
        if it.r#abstract
            && let Some(keyword) = self.tokens.first_from(it.span.start)
        {
            self.erase(keyword.span());
        }
        if let (Some(first), Some(last)) = (it.implements.first(), it.implements.last())
            && let Some(keyword) = self.tokens.last_before(first.span.start)
        {
            self.erasures.erase(keyword.start(), last.span.end);
        }
        walk::walk_class(self, it);
    }

    fn visit_ts_class_implements(&mut self, _: &TSClassImplements<'a>) {}

    fn visit_class_element(&mut self, it: &ClassElement<'a>) {
        if javascript_syntax::is_runtime_member(it) {
            walk::walk_class_element(self, it);
        } else {
            self.erase_at_seam(it.span().start, it.span().end, SeamKind::Member);
        }
    }

    fn visit_method_definition(&mut self, it: &MethodDefinition<'a>) {
        self.erase_modifiers(it.span, &it.key);
        if it.optional {
            self.erase_mark(it.key.span().end);
        }
        walk::walk_method_definition(self, it);
    }

    fn visit_property_definition(&mut self, it: &PropertyDefinition<'a>) {
        self.erase_modifiers(it.span, &it.key);
        self.erase_field_marks(it);
        walk::walk_property_definition(self, it);
    }

    // Functions

    fn visit_formal_parameter(&mut self, it: &FormalParameter<'a>) {
        if it.accessibility.is_some() || it.readonly || it.r#override {
            self.record_error(
                it.span,
                "A parameter property is not supported: it makes a field, which is more than a type",
                "Declare the field in the class, and write `this.x = x` in the constructor.",
            );
        }
        if it.optional {
            self.erase_mark(it.pattern.span().end);
        }
        walk::walk_formal_parameter(self, it);
    }

    fn visit_ts_this_parameter(&mut self, it: &TSThisParameter<'a>) {
        self.erase_entry(it.span);
    }

    fn visit_arrow_function_expression(&mut self, it: &ArrowFunctionExpression<'a>) {
        if let Some(return_type) = &it.return_type {
            self.keep_arrow_on_line(it.params.span, return_type.span);
        }
        if let Some(type_parameters) = &it.type_parameters {
            self.keep_parameters_on_line(type_parameters.span, it.params.span);
        }
        walk::walk_arrow_function_expression(self, it);
    }

    // Types

    fn visit_ts_type_annotation(&mut self, it: &TSTypeAnnotation<'a>) {
        self.erase(it.span);
    }

    fn visit_ts_type_parameter_declaration(&mut self, it: &TSTypeParameterDeclaration<'a>) {
        self.erase(it.span);
    }

    fn visit_ts_type_parameter_instantiation(&mut self, it: &TSTypeParameterInstantiation<'a>) {
        self.erase(it.span);
    }

    // Expressions with a type

    fn visit_ts_as_expression(&mut self, it: &TSAsExpression<'a>) {
        let start = self.tokens.next_start(&it.expression);
        self.erase_at_seam(start, it.span.end, SeamKind::Expression);
        self.visit_expression(&it.expression);
    }

    fn visit_ts_satisfies_expression(&mut self, it: &TSSatisfiesExpression<'a>) {
        let start = self.tokens.next_start(&it.expression);
        self.erase_at_seam(start, it.span.end, SeamKind::Expression);
        self.visit_expression(&it.expression);
    }

    fn visit_ts_instantiation_expression(&mut self, it: &TSInstantiationExpression<'a>) {
        let types = it.type_arguments.span;
        self.erase_at_seam(types.start, types.end, SeamKind::Expression);
        self.visit_expression(&it.expression);
    }

    fn visit_ts_type_assertion(&mut self, it: &TSTypeAssertion<'a>) {
        self.erasures.erase(it.span.start, it.expression.span().start);
        self.visit_expression(&it.expression);
    }

    fn visit_ts_non_null_expression(&mut self, it: &TSNonNullExpression<'a>) {
        self.erasures.erase(it.span.end - 1, it.span.end);
        self.visit_expression(&it.expression);
    }

    // Constructs that are more than a type

    fn visit_ts_enum_declaration(&mut self, it: &TSEnumDeclaration<'a>) {
        self.record_error(
            it.span,
            "An enum is not supported: it makes an object, which is more than a type",
            "Write `const Color = { Red: 0, Green: 1 } as const`, or a union type like `'red' | 'green'`.",
        );
    }

    fn visit_ts_namespace_declaration(&mut self, it: &TSNamespaceDeclaration<'a>) {
        self.record_error(
            it.span,
            "A namespace with values in it is not supported",
            "Write its functions and constants at the top of the file; a namespace of types alone is fine.",
        );
    }

    fn visit_ts_import_equals_declaration(&mut self, it: &TSImportEqualsDeclaration<'a>) {
        self.record_error(
            it.span,
            "`import x = ...` is not supported",
            "Write `const x = A.B` for an alias; a query program is one file and imports types only.",
        );
    }

    fn visit_ts_export_assignment(&mut self, it: &TSExportAssignment<'a>) {
        self.record_error(it.span, "`export =` is not supported", "Write `export default`.");
    }

    fn visit_accessor_property(&mut self, it: &AccessorProperty<'a>) {
        self.record_error(
            it.span,
            "An `accessor` field is not supported: it is not part of JavaScript yet",
            "Write a `get` and a `set` method.",
        );
    }

    fn visit_decorator(&mut self, it: &Decorator<'a>) {
        self.record_error(
            it.span,
            "A decorator is not supported: it is not part of JavaScript yet",
            "Call the function on the class or the method's value yourself.",
        );
    }
}

/// Returns the position of a program's first JSX element.
pub(super) fn first_jsx(program: &Program<'_>) -> Option<u32> {
    struct FirstToken(Option<u32>);
    impl<'a> Visit<'a> for FirstToken {
        fn enter_node(&mut self, kind: AstKind<'a>) {
            if matches!(kind, AstKind::JSXElement(_) | AstKind::JSXFragment(_)) {
                self.0.get_or_insert(kind.span().start);
            }
        }
    }
    let mut first = FirstToken(None);
    first.visit_program(program);
    first.0
}

fn has_line_break(text: &str) -> bool {
    text.contains(is_line_break)
}

fn is_type_modifier(kind: Kind) -> bool {
    use Kind::{Abstract, Declare, Override, Private, Protected, Public, Readonly};
    matches!(kind, Public | Private | Protected | Readonly | Override | Abstract | Declare)
}

fn is_modifier_name(name: &str) -> bool {
    matches!(name, "get" | "set" | "static" | "async" | "accessor")
}
