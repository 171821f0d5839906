//! Recipes of handlers that only call resources and compose the responses. Any form that is unknown here
//! means no recipe, so a recipe has the same meaning as its JavaScript. Every operation that may throw is a
//! step. Steps run in source order, or within a `par` after their inputs.

use std::collections::{BTreeMap, HashMap};

use oxc_ast::AstKind;
use oxc_ast::ast::{
    ArrayExpressionElement, AssignmentTarget, CallExpression, Expression, IdentifierReference,
    ObjectExpression, ObjectPropertyKind, PropertyKind, StaticMemberExpression, VariableDeclaration,
};
use oxc_semantic::NodeId;
use oxc_syntax::operator::AssignmentOperator;
use oxc_syntax::symbol::SymbolId;
use serde_json::Value;

use super::ScriptAnalysis;
use super::calls::WaitOperation;
use super::code::{argument_expression, body_statements, child_statements};
use super::names::SymbolMeaning;
use super::template;
use crate::method::HandlerMethod;
use crate::program::ConcurrencyClass;
use crate::program::inline_plan::{
    InlineOperation, InlinePlan, InlineStep, ObjectEntry, UrlPiece, ValuePart,
};
use crate::syntax::ConstructKind;

/// The maximum nesting of objects and lists, since the evaluation is recursive.
const MAX_NESTING: usize = 16;
/// Whole numbers below this are spelled with digits only.
const INTEGER_NOTATION_LIMIT: f64 = 1e15;
/// The members that every object inherits.
const INHERITED_MEMBERS: [&str; 12] = [
    "__defineGetter__",
    "__defineSetter__",
    "__lookupGetter__",
    "__lookupSetter__",
    "__proto__",
    "constructor",
    "hasOwnProperty",
    "isPrototypeOf",
    "propertyIsEnumerable",
    "toLocaleString",
    "toString",
    "valueOf",
];

/// A part of a resource's URL.
enum ResourceUrlPart {
    Text(String),
    /// The value of a step, only known at runtime.
    Step(usize),
}

struct InlinePlanBuilder<'c, 'p, 'a> {
    analysis: &'c ScriptAnalysis<'p, 'a>,
    sites: &'c BTreeMap<NodeId, usize>,
    handler: NodeId,
    steps: Vec<InlineStep>,
    /// The values of variables.
    variable_values: HashMap<SymbolId, ValuePart>,
    /// The resources that the handler has declared so far.
    resources: HashMap<usize, Vec<ResourceUrlPart>>,
    /// The steps that the next step has to wait for.
    next_dependencies: Vec<usize>,
    in_par: bool,
    answer: Option<ValuePart>,
}

/// Returns the recipe of a handler, if it is simple enough. `sites` are the numbers of calls.
pub(crate) fn build_inline_plan(
    analysis: &ScriptAnalysis<'_, '_>,
    sites: &BTreeMap<NodeId, usize>,
    handler: usize,
) -> Option<InlinePlan> {
    let (it, classified) = (&analysis.names.handlers[handler], &analysis.handlers[handler].classification);
    let is_nested = analysis.names.resources[it.resource].parent.is_some();
    if is_nested || classified.class != ConcurrencyClass::Stateless {
        return None;
    }
    let node = analysis.code.functions[it.function].node;
    let mut cook = InlinePlanBuilder {
        analysis,
        sites,
        handler: node,
        steps: Vec::new(),
        variable_values: HashMap::new(),
        resources: HashMap::new(),
        next_dependencies: Vec::new(),
        in_par: false,
        answer: None,
    };
    for statement in body_statements(&analysis.code, node) {
        cook.plan_statement(statement)?;
    }
    Some(InlinePlan { steps: cook.steps, answer: cook.answer? })
}

impl<'a> InlinePlanBuilder<'_, '_, 'a> {
    fn plan_statement(&mut self, node: NodeId) -> Option<()> {
        if self.answer.is_some() {
            return None;
        }
        let code = &self.analysis.code;
        let construct = code.construct_at(node).map(|id| &code.construct(id).kind);
        match (code.kind(node), construct) {
            (AstKind::VariableDeclaration(declaration), Some(ConstructKind::External { .. })) => declaration
                .declarations
                .iter()
                .try_for_each(|it| self.plan_resource(it.id.get_binding_identifier()?.symbol_id.get()?)),
            (AstKind::VariableDeclaration(declaration), None) => self.plan_declaration(declaration),
            (AstKind::ThrowStatement(it), Some(ConstructKind::Respond { .. })) => {
                self.plan_respond(&it.argument)
            }
            (AstKind::BlockStatement(_), Some(ConstructKind::Par)) if !self.in_par => self.plan_par(node),
            (AstKind::ExpressionStatement(it), None) => match it.expression.without_parentheses() {
                Expression::AssignmentExpression(it) if it.operator == AssignmentOperator::Assign => {
                    let AssignmentTarget::AssignmentTargetIdentifier(name) = &it.left else { return None };
                    let symbol = self.referenced_symbol(name)?;
                    let is_constant = code.semantic.scoping().symbol_flags(symbol).is_const_variable();
                    let value = self.value_part(&it.right)?;
                    (!is_constant && self.variable_values.insert(symbol, value).is_some()).then_some(())
                }
                Expression::CallExpression(call) => self.plan_call(call, false).map(|_| ()),
                _ => None,
            },
            (AstKind::EmptyStatement(_), None) => Some(()),
            _ => None,
        }
    }

    fn plan_par(&mut self, block: NodeId) -> Option<()> {
        let first = self.steps.len();
        self.in_par = true;
        child_statements(&self.analysis.code, block)
            .into_iter()
            .try_for_each(|statement| self.plan_statement(statement))?;
        self.in_par = false;
        if self.steps.len() > first {
            self.next_dependencies = (first..self.steps.len()).collect();
        }
        Some(())
    }

    fn plan_declaration(&mut self, declaration: &VariableDeclaration<'a>) -> Option<()> {
        if declaration.kind.is_using() {
            return None;
        }
        for declarator in &declaration.declarations {
            let symbol = declarator.id.get_binding_identifier()?.symbol_id.get()?;
            // A redeclared parameter is not an ordinary variable.
            if self.analysis.names.symbol_meaning(symbol).is_some() {
                return None;
            }
            match &declarator.init {
                Some(value) => {
                    let value = self.value_part(value)?;
                    self.variable_values.insert(symbol, value);
                }
                None => {
                    self.variable_values.entry(symbol).or_insert(ValuePart::Undefined);
                }
            }
        }
        Some(())
    }

    /// Declares a resource. The values in its URL are evaluated at the declaration.
    fn plan_resource(&mut self, symbol: SymbolId) -> Option<()> {
        let (code, names) = (&self.analysis.code, &self.analysis.names);
        let external = names.external(symbol)?;
        let mut links = Vec::new();
        for part in &names.externals[external].template.parts {
            links.push(match part {
                template::UrlPatternPart::Text(text) => ResourceUrlPart::Text(text.clone()),
                template::UrlPatternPart::Value(place) => {
                    let mut nodes = code.subtree_nodes(code.declaration(symbol));
                    let value = match code.kind(nodes.find(|node| code.node_range(*node) == *place)?) {
                        AstKind::IdentifierReference(name) => self.variable_value(name)?,
                        AstKind::StaticMemberExpression(member) => self.member_value(member)?,
                        _ => return None,
                    };
                    ResourceUrlPart::Step(self.add_step(part_step(&value), InlineOperation::Text(value)))
                }
            });
        }
        self.resources.insert(external, links);
        Some(())
    }

    fn plan_respond(&mut self, value: &Expression<'a>) -> Option<()> {
        let bare = value.without_parentheses();
        self.answer = Some(match bare {
            Expression::CallExpression(call) => self.plan_call(call, true)?,
            _ => self.composed_value(bare, 0)?,
        });
        Some(())
    }

    /// Converts an expression that may be an object or a list, or a value in one.
    fn composed_value(&mut self, expression: &Expression<'a>, depth: usize) -> Option<ValuePart> {
        if depth == MAX_NESTING {
            return None;
        }
        match expression.without_parentheses() {
            Expression::ObjectExpression(object) => self.object_value(object, depth),
            Expression::ArrayExpression(list) => {
                let items = list.elements.iter().map(|item| match item {
                    ArrayExpressionElement::SpreadElement(_) | ArrayExpressionElement::Elision(_) => None,
                    item => self.composed_value(item.as_expression()?, depth + 1),
                });
                items.collect::<Option<_>>().map(ValuePart::List)
            }
            value => self.value_part(value),
        }
    }

    fn object_value(&mut self, object: &ObjectExpression<'a>, depth: usize) -> Option<ValuePart> {
        let entries = object.properties.iter().map(|property| match property {
            ObjectPropertyKind::SpreadProperty(spread) => match self.value_part(&spread.argument)? {
                ValuePart::Step(step) => Some(ObjectEntry::Spread(step)),
                _ => None,
            },
            ObjectPropertyKind::ObjectProperty(it) => {
                let name = it.key.static_name().filter(|_| it.kind == PropertyKind::Init && !it.method)?;
                let is_odd = |byte: u8| byte < b' ' || matches!(byte, b'"' | b'\\');
                // Index members are enumerated first, regardless of their position, and two names have
                // special meanings.
                let is_index = name.starts_with(|first: char| first.is_ascii_digit());
                if is_index || name.bytes().any(is_odd) || matches!(&*name, "toJSON" | "__proto__") {
                    return None;
                }
                Some(ObjectEntry::Named(name.into_owned(), self.composed_value(&it.value, depth + 1)?))
            }
        });
        entries.collect::<Option<_>>().map(ValuePart::Object)
    }

    /// Converts an expression to a constant, a variable's value, or the value of a step.
    fn value_part(&mut self, expression: &Expression<'a>) -> Option<ValuePart> {
        let constant = |value: Value| Some(ValuePart::Constant(value));
        match expression.without_parentheses() {
            Expression::StringLiteral(text) if !text.lone_surrogates => constant(text.value.as_str().into()),
            #[expect(clippy::cast_possible_truncation, reason = "a whole number of at most 15 digits")]
            Expression::NumericLiteral(it)
                if it.value.fract() == 0.0 && it.value < INTEGER_NOTATION_LIMIT =>
            {
                constant((it.value as i64).into())
            }
            Expression::BooleanLiteral(it) => constant(it.value.into()),
            Expression::NullLiteral(_) => constant(Value::Null),
            Expression::Identifier(name) => self.variable_value(name),
            Expression::StaticMemberExpression(member) => self.member_value(member),
            Expression::CallExpression(call) => self.plan_call(call, false),
            _ => None,
        }
    }

    fn referenced_symbol(&self, name: &IdentifierReference<'a>) -> Option<SymbolId> {
        self.analysis.code.semantic.scoping().get_reference(name.reference_id.get()?).symbol_id()
    }

    fn variable_value(&self, name: &IdentifierReference<'a>) -> Option<ValuePart> {
        self.variable_values.get(&self.referenced_symbol(name)?).cloned()
    }

    /// Converts `query.id`, or a member of a step's value.
    fn member_value(&mut self, member: &StaticMemberExpression<'a>) -> Option<ValuePart> {
        let name = member.property.name.as_str();
        if member.optional || INHERITED_MEMBERS.contains(&name) {
            return None;
        }
        if let Expression::Identifier(object) = member.object.without_parentheses()
            && self.analysis.names.symbol_meaning(self.referenced_symbol(object)?)
                == Some(SymbolMeaning::Query)
        {
            return (!name.starts_with('$')).then(|| ValuePart::Query(name.to_owned()));
        }
        match self.value_part(&member.object)? {
            ValuePart::Step(of) => {
                Some(ValuePart::Step(self.add_step(Some(of), InlineOperation::Member(of, name.to_owned()))))
            }
            _ => None,
        }
    }

    fn plan_call(&mut self, call: &CallExpression<'a>, passes: bool) -> Option<ValuePart> {
        let node = call.node_id.get();
        let WaitOperation::Resource { external, symbol, method } = *self.analysis.calls.waits.get(&node)?
        else {
            return None;
        };
        if !matches!(method, HandlerMethod::Get | HandlerMethod::Head | HandlerMethod::Options) {
            return None;
        }
        let given = call.arguments.iter().map(|it| self.value_part(argument_expression(it)?));
        let given: Vec<ValuePart> = given.collect::<Option<_>>()?;
        let mut uses: Vec<usize> = given.iter().filter_map(part_step).collect();
        let url = self.call_url(external, symbol, given)?;
        uses.extend(
            url.iter().filter_map(|piece| if let UrlPiece::Step(step) = piece { Some(*step) } else { None }),
        );
        if passes {
            uses.extend(0..self.steps.len());
        }
        let site = *self.sites.get(&node)?;
        Some(ValuePart::Step(self.add_step(uses, InlineOperation::Call { site, method, url, passes })))
    }

    /// Returns the URL of a call. URLs that begin with `/` belong to the same service, where arguments keep
    /// their types, so they have no recipe.
    fn call_url(&self, external: usize, symbol: SymbolId, given: Vec<ValuePart>) -> Option<Vec<UrlPiece>> {
        let code = &self.analysis.code;
        let is_own = code.is_inside(code.declaration(symbol), self.handler);
        let outer: Vec<ResourceUrlPart>;
        let links = if is_own {
            self.resources.get(&external)?
        } else {
            let parts = self.analysis.names.externals[external].template.parts.iter();
            let texts = parts.map(|part| match part {
                template::UrlPatternPart::Text(text) => Some(ResourceUrlPart::Text(text.clone())),
                template::UrlPatternPart::Value(_) => None,
            });
            outer = texts.collect::<Option<_>>()?;
            &outer
        };
        let is_outside = |text: &str| text.starts_with("http://") || text.starts_with("https://");
        if !matches!(links.first(), Some(ResourceUrlPart::Text(text)) if is_outside(text)) {
            return None;
        }
        let (mut pieces, mut given) = (Vec::new(), given.into_iter());
        for link in links {
            let piece = match link {
                ResourceUrlPart::Text(text) => {
                    if let Some(UrlPiece::Text(_)) = pieces.last() {
                        pieces.push(UrlPiece::Encoded(given.next()?));
                    }
                    UrlPiece::Text(text.clone())
                }
                ResourceUrlPart::Step(step) => UrlPiece::Step(*step),
            };
            pieces.push(piece);
        }
        given.next().is_none().then_some(pieces)
    }

    /// Adds a step that uses the values of the steps `uses`.
    fn add_step(&mut self, uses: impl IntoIterator<Item = usize>, operation: InlineOperation) -> usize {
        let mut after = self.next_dependencies.clone();
        if self.in_par {
            after.extend(uses);
            after.sort_unstable();
            after.dedup();
        }
        self.steps.push(InlineStep { after, what: operation });
        let step = self.steps.len() - 1;
        if !self.in_par {
            self.next_dependencies = vec![step];
        }
        step
    }
}

fn part_step(part: &ValuePart) -> Option<usize> {
    match part {
        ValuePart::Step(step) => Some(*step),
        _ => None,
    }
}
