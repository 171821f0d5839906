//! Rule 15: a resource's URL is a template. `@` in what is literal is a hole, `@@` an `@`; what is known only when it
//! runs has no holes, whatever stands in it.

use oxc_ast::ast::{BinaryOperator, Expression};
use oxc_span::GetSpan;
use std::ops::Range;

use super::code::Code;

/// A URL with holes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Template {
    pub(crate) parts: Vec<Part>,
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Literal text, without holes. A hole stands between two that are adjacent.
    Text(String),
    /// A place in S whose value is put in as it is.
    Value(Range<usize>),
}

impl Template {
    /// The template that an expression is.
    pub(crate) fn of(code: &Code<'_, '_>, expression: &Expression<'_>) -> Self {
        let mut template = Self::default();
        template.add(code, expression);
        if template.parts.is_empty() {
            template.parts.push(Part::Text(String::new()));
        }
        template
    }

    /// How many arguments a call has to give.
    pub(crate) fn holes(&self) -> usize {
        let pairs = self.parts.windows(2);
        pairs.filter(|pair| matches!(pair, [Part::Text(_), Part::Text(_)])).count()
    }

    /// What it begins with, if that is literal.
    pub(crate) fn beginning(&self) -> Option<&str> {
        match self.parts.first()? {
            Part::Text(text) => Some(text),
            Part::Value(_) => None,
        }
    }

    fn add(&mut self, code: &Code<'_, '_>, expression: &Expression<'_>) {
        match expression.without_parentheses() {
            Expression::StringLiteral(text) => self.text(&text.value),
            Expression::TemplateLiteral(template) => {
                for (index, quasi) in template.quasis.iter().enumerate() {
                    self.text(quasi.value.cooked.as_deref().unwrap_or(&quasi.value.raw));
                    if let Some(value) = template.expressions.get(index) {
                        self.value(code, value);
                    }
                }
            }
            Expression::BinaryExpression(sum)
                if sum.operator == BinaryOperator::Addition && is_text(expression) =>
            {
                // A side without any text is a value as a whole: numbers are added up before they become text.
                self.add(code, &sum.left);
                self.add(code, &sum.right);
            }
            _ => self.value(code, expression),
        }
    }

    fn value(&mut self, code: &Code<'_, '_>, expression: &Expression<'_>) {
        self.parts.push(Part::Value(code.source(expression.span())));
    }

    fn text(&mut self, text: &str) {
        let mut pieces = pieces(text).into_iter();
        let first = pieces.next().unwrap_or_default();
        match self.parts.last_mut() {
            Some(Part::Text(before)) => before.push_str(&first),
            // Between two values there is nothing to write, unless a hole begins here.
            _ if first.is_empty() && pieces.len() == 0 => return,
            _ => self.parts.push(Part::Text(first)),
        }
        self.parts.extend(pieces.map(Part::Text));
    }
}

/// What stands between the holes.
fn pieces(text: &str) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        if c == '@' && characters.next_if_eq(&'@').is_none() {
            pieces.push(String::new());
        } else if let Some(last) = pieces.last_mut() {
            last.push(c);
        }
    }
    pieces
}

fn is_literal(expression: &Expression<'_>) -> bool {
    matches!(expression.without_parentheses(), Expression::StringLiteral(_) | Expression::TemplateLiteral(_))
}

/// Whether it is a text for sure: a literal, or a sum with one in it.
fn is_text(expression: &Expression<'_>) -> bool {
    match expression.without_parentheses() {
        Expression::BinaryExpression(sum) if sum.operator == BinaryOperator::Addition => {
            is_text(&sum.left) || is_text(&sum.right)
        }
        other => is_literal(other),
    }
}
