//! Rule 15: a resource's URL is a template. In literal text `@` is a placeholder and `@@` an `@`. Values that
//! are only known at runtime contain no placeholders.

use oxc_ast::ast::{BinaryOperator, Expression};
use oxc_span::GetSpan;
use std::ops::Range;

use super::code::CodeText;

/// A URL with placeholders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UrlPattern {
    pub(crate) parts: Vec<UrlPatternPart>,
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UrlPatternPart {
    /// Literal text. A placeholder is between two adjacent texts.
    Text(String),
    /// A range of the S text whose value is inserted unchanged.
    Value(Range<usize>),
}

impl UrlPattern {
    /// Returns the template of an expression.
    pub(crate) fn from_expression(code: &CodeText<'_, '_>, expression: &Expression<'_>) -> Self {
        let mut template = Self::default();
        template.add_expression(code, expression);
        if template.parts.is_empty() {
            template.parts.push(UrlPatternPart::Text(String::new()));
        }
        template
    }

    /// Returns the number of arguments that a call needs.
    pub(crate) fn placeholder_count(&self) -> usize {
        let pairs = self.parts.windows(2);
        pairs.filter(|pair| matches!(pair, [UrlPatternPart::Text(_), UrlPatternPart::Text(_)])).count()
    }

    /// Returns the beginning, if it is literal.
    pub(crate) fn literal_prefix(&self) -> Option<&str> {
        match self.parts.first()? {
            UrlPatternPart::Text(text) => Some(text),
            UrlPatternPart::Value(_) => None,
        }
    }

    fn add_expression(&mut self, code: &CodeText<'_, '_>, expression: &Expression<'_>) {
        match expression.without_parentheses() {
            Expression::StringLiteral(text) => self.add_text(&text.value),
            Expression::TemplateLiteral(template) => {
                for (index, quasi) in template.quasis.iter().enumerate() {
                    self.add_text(quasi.value.cooked.as_deref().unwrap_or(&quasi.value.raw));
                    if let Some(value) = template.expressions.get(index) {
                        self.add_value(code, value);
                    }
                }
            }
            Expression::BinaryExpression(sum)
                if sum.operator == BinaryOperator::Addition && is_text(expression) =>
            {
                // An operand without any text is a single value: numbers are added before they become text.
                self.add_expression(code, &sum.left);
                self.add_expression(code, &sum.right);
            }
            _ => self.add_value(code, expression),
        }
    }

    fn add_value(&mut self, code: &CodeText<'_, '_>, expression: &Expression<'_>) {
        self.parts.push(UrlPatternPart::Value(code.source_range(expression.span())));
    }

    fn add_text(&mut self, text: &str) {
        let mut pieces = split_placeholders(text).into_iter();
        let first = pieces.next().unwrap_or_default();
        match self.parts.last_mut() {
            Some(UrlPatternPart::Text(before)) => before.push_str(&first),
            // Between two values no text is needed, unless a placeholder begins here.
            _ if first.is_empty() && pieces.len() == 0 => return,
            _ => self.parts.push(UrlPatternPart::Text(first)),
        }
        self.parts.extend(pieces.map(UrlPatternPart::Text));
    }
}

/// Splits a text at its placeholders.
fn split_placeholders(text: &str) -> Vec<String> {
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

/// Whether an expression is definitely a text: a literal, or a sum that contains one.
fn is_text(expression: &Expression<'_>) -> bool {
    match expression.without_parentheses() {
        Expression::BinaryExpression(sum) if sum.operator == BinaryOperator::Addition => {
            is_text(&sum.left) || is_text(&sum.right)
        }
        other => is_literal(other),
    }
}
