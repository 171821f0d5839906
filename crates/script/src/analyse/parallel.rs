//! Rule 18: the plan of a `par`. Calls are taken out of expressions, in the order in which they would be made; a graph
//! of what depends on what is drawn; what waits for nothing is joined with its neighbours; and what leaves the block
//! or declares a resource cuts it into segments, since nothing after it may begin before it.

use std::collections::{BTreeMap, BTreeSet};

use oxc_ast::AstKind;
use oxc_semantic::NodeId;

use super::Analysis;
use super::effects::{Effects, Location, Observer};
use crate::syntax::ConstructId;
use units::{mean_the_same_without_their_declarations, parts, split};

pub(crate) mod units;

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
    /// A statement, or a declarator of several, without the calls that were taken out of it.
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
        for part in parts(code, code.statements[construct]) {
            if matches!(code.kind(part), AstKind::Function(_)) {
                plan.functions.push(part);
            } else {
                units.extend(split(analysis, observer, part));
            }
        }
        if !mean_the_same_without_their_declarations(code, &units) {
            units.iter_mut().for_each(|unit| unit.effects.barrier = true);
        }
        plan.segments = segments(units);
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

/// Cuts before and behind what leaves the block or declares a resource.
fn segments(units: Vec<Unit>) -> Vec<Segment> {
    let (mut segments, mut open) = (Vec::new(), Vec::new());
    for unit in units {
        let is_full = unit.effects.full;
        if is_full && !open.is_empty() {
            segments.push(Segment::of(std::mem::take(&mut open)));
        }
        open.push(unit);
        if is_full {
            segments.push(Segment::of(std::mem::take(&mut open)));
        }
    }
    if !open.is_empty() {
        segments.push(Segment::of(open));
    }
    segments
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
