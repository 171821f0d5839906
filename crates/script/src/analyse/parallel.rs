//! Rule 18: the plan of a `par`. Calls are taken out of expressions, in the order in which they would be made; a graph
//! of what depends on what is drawn; what waits for nothing is joined with its neighbours; and what leaves the block
//! or declares a resource cuts it into segments, since nothing after it may begin before it.

use std::collections::{BTreeMap, BTreeSet};

use oxc_ast::AstKind;
use oxc_semantic::NodeId;
use oxc_span::GetSpan;

use super::Analysis;
use super::calls::Wait;
use super::code::Code;
use super::commit::children;
use super::effects::{Effects, Location, Observer};
use crate::syntax::{ConstructId, ConstructKind};

/// What a `par` does, in order.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) construct: ConstructId,
    pub(crate) segments: Vec<Segment>,
    /// Functions, which are there from the beginning.
    pub(crate) functions: Vec<NodeId>,
}

/// What runs between two statements that everything waits for.
#[derive(Debug, Default)]
pub(crate) struct Segment {
    pub(crate) units: Vec<Unit>,
    /// How many units at the beginning, and at the end, run where they stand: they wait for nothing.
    pub(crate) before: usize,
    pub(crate) after: usize,
}

/// What runs as one.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) steps: Vec<Step>,
    pub(crate) effects: Effects,
    /// Earlier units of the segment that it waits for, and why.
    pub(crate) needs: BTreeMap<usize, Location>,
}

/// A part of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A statement, without the calls that were taken out of it.
    Statement(NodeId),
    /// A call that was taken out.
    Call(NodeId),
}

impl Plan {
    /// The plan of a `par` construct.
    pub(crate) fn of(
        analysis: &Analysis<'_, '_>,
        observer: &Observer<'_, '_, '_>,
        construct: ConstructId,
    ) -> Self {
        let code = &analysis.code;
        let mut plan = Self { construct, segments: Vec::new(), functions: Vec::new() };
        let mut units: Vec<Unit> = Vec::new();
        for statement in children(code, code.statements[construct]) {
            if matches!(code.kind(statement), AstKind::Function(_)) {
                plan.functions.push(statement);
                continue;
            }
            for unit in split(analysis, observer, statement) {
                let is_full = unit.effects.full;
                if is_full && !units.is_empty() {
                    plan.segments.push(Segment::of(std::mem::take(&mut units)));
                }
                units.push(unit);
                if is_full {
                    plan.segments.push(Segment::of(std::mem::take(&mut units)));
                }
            }
        }
        if !units.is_empty() {
            plan.segments.push(Segment::of(units));
        }
        plan
    }

    /// The calls that units make for later ones, in order.
    pub(crate) fn taken_out(&self) -> impl Iterator<Item = NodeId> + '_ {
        let steps = self.segments.iter().flat_map(Segment::parallel).flat_map(|(_, unit)| &unit.steps);
        steps.filter_map(|step| match step {
            Step::Call(call) => Some(*call),
            Step::Statement(_) => None,
        })
    }

    /// The statements that run in a function of their own.
    pub(crate) fn moved(&self) -> impl Iterator<Item = NodeId> + '_ {
        let units = self.segments.iter().flat_map(Segment::parallel);
        units.flat_map(|(_, unit)| &unit.steps).filter_map(|step| match step {
            Step::Statement(statement) => Some(*statement),
            Step::Call(_) => None,
        })
    }
}

impl Segment {
    fn of(units: Vec<Unit>) -> Self {
        let mut units = joined(connected(units));
        let is_sequence = |units: &[Unit]| {
            let waiting: Vec<usize> = (0..units.len()).filter(|index| units[*index].effects.io > 0).collect();
            waiting.windows(2).all(|pair| needed(units, pair[1]).contains(&pair[0]))
        };
        if is_sequence(&units) {
            let before = units.len();
            return Self { units, before, after: 0 };
        }
        let before = units.iter().take_while(|unit| unit.effects.io == 0 && unit.needs.is_empty()).count();
        let after = usize::from(units.last().is_some_and(|unit| unit.effects.io == 0));
        reduce(&mut units);
        Self { units, before, after }
    }

    /// The units that run in parallel, with their indices.
    pub(crate) fn parallel(&self) -> impl Iterator<Item = (usize, &Unit)> {
        self.units.iter().enumerate().take(self.units.len() - self.after).skip(self.before)
    }
}

/// A statement as units: the calls that are made whatever happens, each its own; then what is left of it.
fn split(analysis: &Analysis<'_, '_>, observer: &Observer<'_, '_, '_>, statement: NodeId) -> Vec<Unit> {
    let code = &analysis.code;
    let whole =
        |effects| vec![Unit { steps: vec![Step::Statement(statement)], effects, needs: BTreeMap::new() }];
    let calls = taken_out(analysis, observer, statement);
    if calls.is_empty() {
        return whole(observer.effects(statement, &[]));
    }
    let mut units = Vec::new();
    for call in &calls {
        let inner: Vec<NodeId> =
            calls.iter().copied().filter(|it| it != call && code.is_inside(*it, *call)).collect();
        let mut effects = observer.effects(*call, &inner);
        effects.io = 1;
        effects.writes.insert(Location::Result(*call));
        units.push(Unit { steps: vec![Step::Call(*call)], effects, needs: BTreeMap::new() });
    }
    let mut rest = observer.effects(statement, &calls);
    rest.io = 0;
    let mut effects = rest;
    if let Some(last) = calls.last() {
        // The last call stands for all of the statement, or its result is only put into a variable.
        let is_alone = matches!(code.kind(code.parent(*last)), AstKind::ExpressionStatement(_));
        let puts = effects.writes.iter().all(|it| matches!(it, Location::Variable(_)));
        let reads = effects.reads.iter().all(|it| *it == Location::Result(*last));
        if (is_alone || (puts && reads)) && !effects.barrier && !effects.full {
            let call = units.pop().map(|unit| unit.effects).unwrap_or_default();
            effects.io = 1;
            effects.reads.extend(call.reads);
            effects.writes.extend(call.writes);
            effects.barrier |= call.barrier;
            effects.reads.remove(&Location::Result(*last));
        }
    }
    units.push(Unit { steps: vec![Step::Statement(statement)], effects, needs: BTreeMap::new() });
    units
}

/// The calls of a statement that can be made before the rest of it, in the order in which they are made. None if the
/// statement branches, or changes something on the way.
fn taken_out(analysis: &Analysis<'_, '_>, observer: &Observer<'_, '_, '_>, statement: NodeId) -> Vec<NodeId> {
    let code = &analysis.code;
    let is_plain = matches!(
        code.kind(statement),
        AstKind::ExpressionStatement(_)
            | AstKind::VariableDeclaration(_)
            | AstKind::ThrowStatement(_)
            | AstKind::ReturnStatement(_)
    );
    let is_nested = code
        .construct_at(statement)
        .is_some_and(|id| matches!(code.construct(id).kind, ConstructKind::Res { .. }));
    let waits = analysis.calls.inside(code, statement);
    if !is_plain || is_nested || waits.iter().any(|(_, wait)| matches!(wait, Wait::Await | Wait::Declare(_)))
    {
        return Vec::new();
    }
    let has_order = code.inside(statement).any(|node| orders(code, statement, node));
    if has_order
        || waits.iter().any(|(node, _)| is_called_at_once(code, *node))
        || is_passed_on(code, statement, &waits)
    {
        return Vec::new();
    }
    let mut calls: Vec<NodeId> = waits.into_iter().map(|(node, _)| node).collect();
    if code.inside(statement).any(|node| disturbs(code, observer, &calls, node)) {
        return Vec::new();
    }
    calls.sort_by_key(|node| code.order(*node));
    calls
}

/// Whether a call changes something that the rest of its statement may have looked at before, or may look at later. One
/// that is made after all calls that are taken out stays where it was.
fn disturbs(code: &Code<'_, '_>, observer: &Observer<'_, '_, '_>, calls: &[NodeId], node: NodeId) -> bool {
    let is_call = matches!(code.kind(node), AstKind::CallExpression(_) | AstKind::NewExpression(_));
    let is_last = !calls.contains(&node) && calls.iter().all(|call| code.is_inside(*call, node));
    if !is_call || is_last {
        return false;
    }
    let effects = observer.effects(node, &[]);
    let changes = effects.writes.iter().any(|it| matches!(it, Location::Variable(_) | Location::Content(_)));
    changes || effects.barrier
}

fn is_called_at_once(code: &Code<'_, '_>, node: NodeId) -> bool {
    matches!(code.kind(node), AstKind::CallExpression(call) if call.callee.get_inner_expression().is_function())
}

/// `respond g.get(x)` hands the answer on.
fn is_passed_on(code: &Code<'_, '_>, statement: NodeId, waits: &[(NodeId, Wait)]) -> bool {
    let AstKind::ThrowStatement(throw) = code.kind(statement) else { return false };
    let value = throw.argument.without_parentheses().span();
    code.construct_at(statement).is_some()
        && waits.iter().any(|(node, wait)| code.span(*node) == value && matches!(wait, Wait::Resource { .. }))
}

/// Whether an expression branches, or changes a variable before the rest is looked at.
fn orders(code: &Code<'_, '_>, statement: NodeId, node: NodeId) -> bool {
    if code.function_of(node) != code.function_of(statement) {
        return false;
    }
    match code.kind(node) {
        AstKind::LogicalExpression(_)
        | AstKind::ConditionalExpression(_)
        | AstKind::ChainExpression(_)
        | AstKind::UpdateExpression(_)
        | AstKind::AssignmentPattern(_)
        | AstKind::AssignmentTargetWithDefault(_)
        | AstKind::YieldExpression(_) => true,
        AstKind::UnaryExpression(unary) => unary.operator == oxc_syntax::operator::UnaryOperator::Delete,
        AstKind::AssignmentExpression(assignment) => {
            let is_outer = matches!(code.kind(code.parent(node)), AstKind::ExpressionStatement(_));
            !is_outer || !assignment.operator.is_assign()
        }
        AstKind::VariableDeclaration(declaration) => declaration.declarations.len() > 1,
        _ => false,
    }
}

/// Draws the edges: what touches the same place, and all that is before a barrier.
fn connected(mut units: Vec<Unit>) -> Vec<Unit> {
    for later in 0..units.len() {
        let mut needs = BTreeMap::new();
        for earlier in 0..later {
            let (a, b) = (&units[earlier].effects, &units[later].effects);
            let why = a.conflict(b).or((b.barrier).then_some(Location::Response));
            needs.extend(why.map(|why| (earlier, why)));
        }
        units[later].needs = needs;
    }
    units
}

/// Joins neighbours that wait for nothing themselves, where the second needs no call that the first doesn't.
fn joined(units: Vec<Unit>) -> Vec<Unit> {
    let all: Vec<BTreeSet<usize>> = (0..units.len()).map(|index| needed(&units, index)).collect();
    let waits: Vec<bool> = units.iter().map(|unit| unit.effects.io > 0).collect();
    let calls =
        |index: usize| all[index].iter().copied().filter(|it| waits[*it]).collect::<BTreeSet<usize>>();
    let mut place = Vec::with_capacity(units.len());
    let mut result: Vec<Unit> = Vec::new();
    for (index, mut unit) in units.into_iter().enumerate() {
        let mut needs = BTreeMap::new();
        for (earlier, why) in &unit.needs {
            needs.entry(place[*earlier]).or_insert(*why);
        }
        let joins =
            index > 0 && !waits[index] && !waits[index - 1] && calls(index).is_subset(&calls(index - 1));
        match result.last_mut().filter(|_| joins) {
            Some(last) => {
                last.steps.append(&mut unit.steps);
                last.effects.reads.append(&mut unit.effects.reads);
                last.effects.writes.append(&mut unit.effects.writes);
                last.effects.barrier |= unit.effects.barrier;
                needs.remove(&(place[index - 1]));
                for (earlier, why) in needs {
                    last.needs.entry(earlier).or_insert(why);
                }
            }
            None => result.push(Unit { needs, ..unit }),
        }
        place.push(result.len() - 1);
    }
    result
}

/// All that a unit has to wait for, through others.
fn needed(units: &[Unit], index: usize) -> BTreeSet<usize> {
    let (mut all, mut next) = (BTreeSet::new(), vec![index]);
    while let Some(index) = next.pop() {
        next.extend(units[index].needs.keys().copied().filter(|needed| all.insert(*needed)));
    }
    all
}

/// Takes away edges that others imply.
fn reduce(units: &mut [Unit]) {
    for index in 0..units.len() {
        let direct: Vec<usize> = units[index].needs.keys().copied().collect();
        for edge in &direct {
            let others = direct.iter().filter(|other| *other != edge);
            if others.into_iter().any(|other| needed(units, *other).contains(edge)) {
                units[index].needs.remove(edge);
            }
        }
    }
}
