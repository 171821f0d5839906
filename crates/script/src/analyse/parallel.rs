//! Rule 18: the plan of a `par`, by its data dependence graph. Calls are extracted from expressions in
//! evaluation order, the graph is built, and neighbouring units without waits are joined. Statements that
//! leave the block or declare a resource cut it into segments, since nothing after them may start before they
//! complete.

use std::collections::{BTreeMap, BTreeSet};

use oxc_ast::AstKind;
use oxc_semantic::NodeId;

use super::ScriptAnalysis;
use super::effects::{CodeEffects, EffectAnalyzer, EffectLocation};
use crate::syntax::ConstructId;
use units::{block_parts, can_hoist_declarations, split_into_units};

pub(crate) mod units;

/// The plan of a `par`.
#[derive(Debug)]
pub(crate) struct ParPlan {
    pub(crate) construct: ConstructId,
    pub(crate) segments: Vec<ParSegment>,
    /// The function declarations, which are available from the beginning.
    pub(crate) functions: Vec<NodeId>,
}

/// The units between two statements that everything waits for.
#[derive(Debug, Default)]
pub(crate) struct ParSegment {
    pub(crate) units: Vec<ParUnit>,
    /// The number of units at the beginning and at the end that run in place, because they do not wait.
    pub(crate) leading_units: usize,
    pub(crate) trailing_units: usize,
}

/// A unit, which runs as a whole.
#[derive(Debug)]
pub(crate) struct ParUnit {
    pub(crate) steps: Vec<UnitStep>,
    pub(crate) effects: CodeEffects,
    /// The earlier units of the segment that it waits for, with the reasons.
    pub(crate) dependencies: BTreeMap<usize, EffectLocation>,
}

/// A step of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnitStep {
    /// A statement, or one declarator of several, without the extracted calls.
    Statement(NodeId),
    /// An extracted call.
    Call(NodeId),
}

impl ParPlan {
    /// Returns the plan of a `par` construct.
    pub(crate) fn from_construct(
        analysis: &ScriptAnalysis<'_, '_>,
        observer: &EffectAnalyzer<'_, '_, '_>,
        construct: ConstructId,
    ) -> Self {
        let code = &analysis.code;
        let mut plan = Self { construct, segments: Vec::new(), functions: Vec::new() };
        let mut units: Vec<ParUnit> = Vec::new();
        for part in block_parts(code, code.statements[construct]) {
            if matches!(code.kind(part), AstKind::Function(_)) {
                plan.functions.push(part);
            } else {
                units.extend(split_into_units(analysis, observer, part));
            }
        }
        if !can_hoist_declarations(code, &units) {
            units.iter_mut().for_each(|unit| unit.effects.barrier = true);
        }
        plan.segments = split_into_segments(units);
        plan
    }

    /// Returns the calls that units make for later ones, in order.
    pub(crate) fn hoisted_calls(&self) -> impl Iterator<Item = NodeId> + '_ {
        let steps =
            self.segments.iter().flat_map(ParSegment::parallel_units).flat_map(|(_, unit)| &unit.steps);
        steps.filter_map(|step| match step {
            UnitStep::Call(call) => Some(*call),
            UnitStep::Statement(_) => None,
        })
    }

    /// Returns the statements that run in a function of their own.
    pub(crate) fn moved_statements(&self) -> impl Iterator<Item = NodeId> + '_ {
        let units = self.segments.iter().flat_map(ParSegment::parallel_units);
        units.flat_map(|(_, unit)| &unit.steps).filter_map(|step| match step {
            UnitStep::Statement(statement) => Some(*statement),
            UnitStep::Call(_) => None,
        })
    }
}

/// Cuts before and after units that leave the block or declare a resource.
fn split_into_segments(units: Vec<ParUnit>) -> Vec<ParSegment> {
    let (mut segments, mut par_units) = (Vec::new(), Vec::new());
    for unit in units {
        let is_full = unit.effects.full_barrier;
        if is_full && !par_units.is_empty() {
            segments.push(ParSegment::from_units(std::mem::take(&mut par_units)));
        }
        par_units.push(unit);
        if is_full {
            segments.push(ParSegment::from_units(std::mem::take(&mut par_units)));
        }
    }
    if !par_units.is_empty() {
        segments.push(ParSegment::from_units(par_units));
    }
    segments
}

impl ParSegment {
    fn from_units(mut units: Vec<ParUnit>) -> Self {
        add_dependencies(&mut units);
        let mut units = merge_units(units);
        let needed = UnitDependencies::from_units(&units);
        let waiting: Vec<usize> = (0..units.len()).filter(|index| units[*index].effects.io > 0).collect();
        if waiting.windows(2).all(|pair| needed.depends_on(pair[1], pair[0])) {
            let leading_units = units.len();
            return Self { units, leading_units, trailing_units: 0 };
        }
        let leading_units =
            units.iter().take_while(|unit| unit.effects.io == 0 && unit.dependencies.is_empty()).count();
        let after = usize::from(units.last().is_some_and(|unit| unit.effects.io == 0));
        for (unit, direct) in units.iter_mut().zip(needed.direct) {
            unit.dependencies.retain(|earlier, _| direct.contains(earlier));
        }
        Self { units, leading_units, trailing_units: after }
    }

    /// Returns the units that run in parallel, with their indices.
    pub(crate) fn parallel_units(&self) -> impl Iterator<Item = (usize, &ParUnit)> {
        self.units.iter().enumerate().take(self.units.len() - self.trailing_units).skip(self.leading_units)
    }
}

/// Adds dependencies between units with a common location, and of barriers on all units before them.
fn add_dependencies(units: &mut [ParUnit]) {
    let mut reads: BTreeMap<EffectLocation, Vec<usize>> = BTreeMap::new();
    let mut writes: BTreeMap<EffectLocation, Vec<usize>> = BTreeMap::new();
    for later in 0..units.len() {
        let effects = &units[later].effects;
        let both = effects.reads.iter().chain(&effects.writes);
        let written = both.filter_map(|it| writes.get(it)).flatten();
        let read = effects.writes.iter().filter_map(|it| reads.get(it)).flatten();
        let before = if effects.barrier { 0..later } else { 0..0 };
        let earlier: BTreeSet<usize> = written.chain(read).copied().chain(before).collect();
        let why = |index: &usize| units[*index].effects.conflict(effects).unwrap_or(EffectLocation::Response);
        let needs = earlier.iter().map(|index| (*index, why(index))).collect();
        for (places, touched) in [(&mut reads, &effects.reads), (&mut writes, &effects.writes)] {
            touched.iter().for_each(|it| places.entry(*it).or_default().push(later));
        }
        units[later].dependencies = needs;
    }
}

/// Joins neighbouring units that do not wait, if the second depends on no call that the first does not depend
/// on.
fn merge_units(units: Vec<ParUnit>) -> Vec<ParUnit> {
    let needed = UnitDependencies::from_units(&units);
    let waits: Vec<bool> = units.iter().map(|unit| unit.effects.io > 0).collect();
    let needs_no_more = |index: usize| {
        (0..index)
            .filter(|it| waits[*it])
            .all(|it| !needed.depends_on(index, it) || needed.depends_on(index - 1, it))
    };
    let mut place = Vec::with_capacity(units.len());
    let mut result: Vec<ParUnit> = Vec::new();
    for (index, mut unit) in units.into_iter().enumerate() {
        let mut needs = BTreeMap::new();
        for (earlier, why) in &unit.dependencies {
            needs.entry(place[*earlier]).or_insert(*why);
        }
        let joins = index > 0 && !waits[index] && !waits[index - 1] && needs_no_more(index);
        match result.last_mut().filter(|_| joins) {
            Some(last) => {
                last.steps.append(&mut unit.steps);
                last.effects.reads.append(&mut unit.effects.reads);
                last.effects.writes.append(&mut unit.effects.writes);
                last.effects.barrier |= unit.effects.barrier;
                needs.remove(&(place[index - 1]));
                for (earlier, why) in needs {
                    last.dependencies.entry(earlier).or_insert(why);
                }
            }
            None => result.push(ParUnit { dependencies: needs, ..unit }),
        }
        place.push(result.len() - 1);
    }
    result
}

/// The transitive dependencies of units.
struct UnitDependencies {
    /// All dependencies of each unit, as a bit set of earlier units.
    transitive: Vec<Vec<u64>>,
    /// The direct dependencies of each unit, without those that others imply.
    direct: Vec<BTreeSet<usize>>,
}

impl UnitDependencies {
    fn from_units(units: &[ParUnit]) -> Self {
        let mut needed = Self { transitive: Vec::new(), direct: Vec::new() };
        for (index, unit) in units.iter().enumerate() {
            let (mut all, mut direct) = (vec![0; index.div_ceil(64)], BTreeSet::new());
            // In descending order, since only later dependencies can imply an earlier one.
            for earlier in unit.dependencies.keys().rev() {
                if contains_bit(&all, *earlier) {
                    continue;
                }
                direct.insert(*earlier);
                all[earlier / 64] |= 1 << (earlier % 64);
                all.iter_mut().zip(&needed.transitive[*earlier]).for_each(|(to, from)| *to |= from);
            }
            needed.transitive.push(all);
            needed.direct.push(direct);
        }
        needed
    }

    fn depends_on(&self, later: usize, earlier: usize) -> bool {
        contains_bit(&self.transitive[later], earlier)
    }
}

fn contains_bit(set: &[u64], index: usize) -> bool {
    set.get(index / 64).is_some_and(|bits| bits >> (index % 64) & 1 == 1)
}
