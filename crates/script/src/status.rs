//! Status responses: `respond {302: {Location: u, body: b}}` (rule 13 of the S language).

use oxc_ast::ast::{Expression, ObjectProperty, ObjectPropertyKind, PropertyKey};

/// A status response, as it is written.
pub(crate) struct StatusResponse<'o, 'a> {
    pub(crate) status: f64,
    members: &'o [ObjectPropertyKind<'a>],
}

impl<'o, 'a> StatusResponse<'o, 'a> {
    /// The status response that a value is, if it is one: an object literal with one member, a status that has an object.
    pub(crate) fn of(value: &'o Expression<'a>) -> Option<Self> {
        let Expression::ObjectExpression(object) = value.without_parentheses() else { return None };
        let [ObjectPropertyKind::ObjectProperty(only)] = object.properties.as_slice() else { return None };
        let PropertyKey::NumericLiteral(status) = &only.key else { return None };
        let Expression::ObjectExpression(inner) = only.value.without_parentheses() else { return None };
        let is_status =
            (100.0..600.0).contains(&status.value) && status.value.fract() == 0.0 && !only.computed;
        is_status.then(|| Self { status: status.value, members: inner.properties.as_slice() })
    }

    /// The members that are headers, and what is spread among them.
    pub(crate) fn headers(&self) -> impl Iterator<Item = &'o ObjectPropertyKind<'a>> {
        self.members.iter().filter(|member| body_of(member).is_none())
    }

    /// The members that are called `body`. Of several the last one counts.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = &'o ObjectProperty<'a>> {
        self.members.iter().filter_map(body_of)
    }
}

fn body_of<'o, 'a>(member: &'o ObjectPropertyKind<'a>) -> Option<&'o ObjectProperty<'a>> {
    let ObjectPropertyKind::ObjectProperty(property) = member else { return None };
    let property: &ObjectProperty<'a> = property;
    let is_body = !property.computed && property.key.static_name().is_some_and(|name| name == "body");
    is_body.then_some(property)
}
