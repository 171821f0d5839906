//! Status responses: `respond {302: {Location: u, body: b}}` (rule 13 of the S language).

use oxc_ast::ast::{Expression, ObjectProperty, ObjectPropertyKind, PropertyKey};

/// A status response, as written in the source.
pub(crate) struct StatusResponse<'o, 'a> {
    pub(crate) status: f64,
    members: &'o [ObjectPropertyKind<'a>],
}

impl<'o, 'a> StatusResponse<'o, 'a> {
    /// Returns the status response of a value, if it is one: an object literal with exactly one member, which
    /// maps a status code to an object literal.
    pub(crate) fn from_expression(value: &'o Expression<'a>) -> Option<Self> {
        let Expression::ObjectExpression(object) = value.without_parentheses() else { return None };
        let [ObjectPropertyKind::ObjectProperty(only)] = object.properties.as_slice() else { return None };
        let PropertyKey::NumericLiteral(status) = &only.key else { return None };
        let Expression::ObjectExpression(inner) = only.value.without_parentheses() else { return None };
        let is_status =
            (100.0..600.0).contains(&status.value) && status.value.fract() == 0.0 && !only.computed;
        is_status.then(|| Self { status: status.value, members: inner.properties.as_slice() })
    }

    /// Returns the members that are headers, including spread elements.
    pub(crate) fn header_members(&self) -> impl Iterator<Item = &'o ObjectPropertyKind<'a>> {
        self.members.iter().filter(|member| body_property(member).is_none())
    }

    /// Returns the members named `body`. The last one counts.
    pub(crate) fn body_members(&self) -> impl Iterator<Item = &'o ObjectProperty<'a>> {
        self.members.iter().filter_map(body_property)
    }
}

fn body_property<'o, 'a>(member: &'o ObjectPropertyKind<'a>) -> Option<&'o ObjectProperty<'a>> {
    let ObjectPropertyKind::ObjectProperty(property) = member else { return None };
    let property: &ObjectProperty<'a> = property;
    let is_body = !property.computed && property.key.static_name().is_some_and(|name| name == "body");
    is_body.then_some(property)
}
