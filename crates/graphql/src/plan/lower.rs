//! What the planner says becomes steps: every fetch is a step, and a fetch of a REST service one for each root field and
//! each link.
//!
//! It goes through the planner's plan once, in its order, and builds the positions of the answer on the way. A step names
//! the steps that it comes after by the slots that it reads of: nothing waits for what it does not need.

mod represent;
mod select;
mod way;
mod words;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use hive_router_query_planner::ast::fragment::FragmentDefinition;
use hive_router_query_planner::ast::operation::{SubgraphFetchOperation, VariableDefinition};
use hive_router_query_planner::ast::selection_item::SelectionItem;
use hive_router_query_planner::ast::selection_set::{FieldSelection, SelectionSet};
use hive_router_query_planner::planner::plan_nodes::{
    BatchFetchNode, FetchNode, FetchRewrite, FlattenNodePath, FlattenNodePathSegment, PlanNode,
};
use hive_router_query_planner::state::supergraph_state::SupergraphState;

use super::data::{
    Call, Document, Entry, From, Group, Input, Lookup, Only, Position, PositionId, SlotId, Step, StepId, both,
};
use super::types::{TypeId, Types};
use super::values::{Arguments, Speller, quoted};
use crate::{Ask, Bindings, How, Kind, OperationKind, Subgraph};
use represent::required;
use select::{Spot, inlined, without};

/// Why a plan can't be made of what the planner says: a mistake of ours, or of a supergraph.
#[derive(Debug)]
pub(crate) struct Broken(pub(crate) String);

type Done = Result<(), Broken>;

/// The steps and positions so far.
pub(crate) struct Lowering<'a> {
    supergraph: &'a SupergraphState,
    types: &'a Types,
    subgraphs: &'a HashMap<Arc<str>, Subgraph>,
    kind: OperationKind,
    pub(crate) positions: Vec<Position>,
    pub(crate) steps: Vec<Step>,
    /// Those of the nodes that are being lowered.
    conditions: Vec<(Arc<str>, bool)>,
}

/// A fetch that is being lowered.
#[derive(Clone, Copy)]
struct Fetch<'f> {
    subgraph: &'f Subgraph,
    fragments: &'f [FragmentDefinition],
    variables: &'f [VariableDefinition],
    outputs: &'f [FetchRewrite],
}

/// The objects that a fetch is made for.
#[derive(Clone)]
struct Target {
    position: PositionId,
    /// The positions on the way, with the types of those that are meant.
    only: HashMap<PositionId, Only>,
}

/// A fetch of entities: its aliases are one document.
struct Entities<'f> {
    node_variables: Box<[Box<str>]>,
    operation: &'f SubgraphFetchOperation,
    aliases: Vec<Alias<'f>>,
}

struct Alias<'f> {
    field: &'f FieldSelection,
    variable: &'f str,
    requires: &'f SelectionSet,
    inputs: &'f [FetchRewrite],
    outputs: &'f [FetchRewrite],
    targets: Vec<Target>,
}

impl<'f> Fetch<'f> {
    fn bindings(self) -> &'f Bindings {
        match &self.subgraph.kind {
            Kind::Rest(bindings) | Kind::Remote { bindings, .. } => bindings,
        }
    }

    fn is_rest(self) -> bool {
        matches!(self.subgraph.kind, Kind::Rest(_))
    }
}

impl<'a> Lowering<'a> {
    pub(crate) fn new(
        supergraph: &'a SupergraphState,
        types: &'a Types,
        subgraphs: &'a HashMap<Arc<str>, Subgraph>,
        kind: OperationKind,
    ) -> Self {
        let declared = types.root(kind);
        let root = Position {
            parent: None,
            declared,
            slots: Vec::new(),
            is_shared: false,
            children: HashMap::new(),
        };
        let (steps, conditions) = (Vec::new(), Vec::new());
        Self { supergraph, types, subgraphs, kind, positions: vec![root], steps, conditions }
    }

    /// Lowers a node of the planner's plan.
    pub(crate) fn node(&mut self, node: &PlanNode) -> Done {
        match node {
            PlanNode::Sequence(sequence) => sequence.nodes.iter().try_for_each(|node| self.node(node)),
            PlanNode::Parallel(parallel) => parallel.nodes.iter().try_for_each(|node| self.node(node)),
            PlanNode::Fetch(fetch) => self.fetch(fetch, Target { position: 0, only: HashMap::new() }),
            PlanNode::Flatten(flatten) => match &*flatten.node {
                PlanNode::Fetch(fetch) => self.fetch(fetch, self.target(&flatten.path)?),
                _ => Err(Broken("a path leads to something other than a fetch".to_owned())),
            },
            PlanNode::BatchFetch(fetch) => self.batch(fetch),
            PlanNode::Condition(condition) => {
                for (branch, value) in [(&condition.if_clause, true), (&condition.else_clause, false)] {
                    let Some(branch) = branch else { continue };
                    self.conditions.push((condition.condition.as_str().into(), value));
                    let done = self.node(branch);
                    self.conditions.pop();
                    done?;
                }
                Ok(())
            }
            PlanNode::Subscription(_) | PlanNode::Defer(_) => {
                Err(Broken("subscriptions and @defer are not supported".to_owned()))
            }
        }
    }

    /// The position that a path leads to.
    fn target(&self, path: &FlattenNodePath) -> Result<Target, Broken> {
        let mut target = Target { position: 0, only: HashMap::new() };
        for segment in path.as_slice() {
            match segment {
                FlattenNodePathSegment::Field(key) => {
                    let child = self.positions[target.position].children.get(key.as_str());
                    target.position = *child.ok_or_else(|| Broken(format!("no position at `{path}`")))?;
                }
                FlattenNodePathSegment::TypeCondition(names) => {
                    let only = self.only(names.iter().map(String::as_str));
                    let known = target.only.entry(target.position).or_insert(None);
                    *known = both(known, &only);
                }
                FlattenNodePathSegment::List => {}
            }
        }
        Ok(target)
    }

    /// The types of these names, with those that the abstract ones of them may be.
    fn only<'n>(&self, names: impl Iterator<Item = &'n str>) -> Only {
        let mut types: BTreeSet<TypeId> = BTreeSet::new();
        for id in names.filter_map(|name| self.types.find(name)) {
            types.insert(id);
            types.extend(self.types.objects(id));
        }
        Some(types.into_iter().collect())
    }

    fn subgraph(&self, name: &str) -> Result<&'a Subgraph, Broken> {
        self.subgraphs.get(name).ok_or_else(|| Broken(format!("there is no service `{name}`")))
    }

    fn fetch(&mut self, node: &FetchNode, target: Target) -> Done {
        let subgraph = self.subgraph(&node.service_name)?;
        let outputs = node.output_rewrites.as_deref().unwrap_or_default();
        let document = &node.operation.document;
        let variables = document.operation.variable_definitions.as_deref().unwrap_or_default();
        let fetch = Fetch { subgraph, fragments: &document.fragments, variables, outputs };
        let Some(requires) = &node.requires else { return self.roots(fetch, node, &target) };
        let field = document.operation.selection_set.entities_field();
        let alias = Alias {
            field: field.ok_or_else(|| Broken("a fetch of entities without `_entities`".to_owned()))?,
            variable: "representations",
            requires,
            inputs: node.input_rewrites.as_deref().unwrap_or_default(),
            outputs,
            targets: vec![target],
        };
        let node_variables = names(node.variable_usages.iter().flatten());
        self.entities(fetch, Entities { node_variables, operation: &node.operation, aliases: vec![alias] })
    }

    fn batch(&mut self, node: &BatchFetchNode) -> Done {
        let subgraph = self.subgraph(&node.service_name)?;
        let document = &node.operation.document;
        let mut aliases = Vec::new();
        for alias in &node.entity_batch.aliases {
            let field = document.operation.selection_set.items.iter().find_map(|item| match item {
                SelectionItem::Field(field) if field.selection_identifier() == alias.alias => Some(field),
                _ => None,
            });
            let targets: Result<Vec<Target>, Broken> =
                alias.merge_paths.iter().map(|path| self.target(path)).collect();
            aliases.push(Alias {
                field: field.ok_or_else(|| Broken(format!("a batch without `{}`", alias.alias)))?,
                variable: &alias.representations_variable_name,
                requires: &alias.requires,
                inputs: alias.input_rewrites.as_deref().unwrap_or_default(),
                outputs: alias.output_rewrites.as_deref().unwrap_or_default(),
                targets: targets?,
            });
        }
        let variables = document.operation.variable_definitions.as_deref().unwrap_or_default();
        let fetch = Fetch { subgraph, fragments: &document.fragments, variables, outputs: &[] };
        let representations: Vec<&str> = aliases.iter().map(|alias| alias.variable).collect();
        let variables = node.variable_usages.iter().flatten();
        let node_variables = names(variables.filter(|name| !representations.contains(&name.as_str())));
        self.entities(fetch, Entities { node_variables, operation: &node.operation, aliases })
    }

    /// The root fields of a fetch.
    fn roots(&mut self, fetch: Fetch<'_>, node: &FetchNode, target: &Target) -> Done {
        let operation = &node.operation.document.operation;
        let position = target.position;
        let parent = Arc::clone(self.types.name(self.positions[position].declared));
        if let Kind::Remote { path, .. } = &fetch.subgraph.kind {
            let is_query = !operation.operation_kind.as_ref().is_some_and(|kind| kind.is_mutation());
            let variables = names(node.variable_usages.iter().flatten());
            let text = self.text(fetch, &node.operation, None, &parent);
            let document = Document::new(path, &text, variables, is_query);
            let slot = self.root(fetch.subgraph, Call::Document(document), position, &[]);
            let spot = Spot { position, slot, parent: &parent, only: None };
            return self.select(fetch, &spot, &operation.selection_set, &mut Vec::new());
        }
        let selections = inlined(&operation.selection_set, fetch.fragments);
        self.operations(fetch, position, &parent, &selections)
    }

    /// The root fields of a REST service, each by an operation.
    fn operations(
        &mut self,
        fetch: Fetch<'_>,
        position: PositionId,
        parent: &str,
        selections: &SelectionSet,
    ) -> Done {
        for item in &selections.items {
            let field = match item {
                SelectionItem::Field(field) if field.name == "__typename" => continue,
                SelectionItem::Field(field) => field,
                SelectionItem::InlineFragment(fragment) => {
                    let conditions = conditions(&fragment.skip_if, &fragment.include_if);
                    self.under(conditions, |lowering| {
                        lowering.operations(fetch, position, parent, &fragment.selections)
                    })?;
                    continue;
                }
                SelectionItem::FragmentSpread(_) => continue,
            };
            let known = fetch.bindings().roots.get(&(self.kind, field.name.as_str().into()));
            let operation =
                known.ok_or_else(|| Broken(format!("`{parent}.{}` has no operation", field.name)))?;
            let arguments = self.arguments(fetch, parent, field);
            let call = Call::Operation(Arc::clone(operation), arguments);
            let slot =
                self.root(fetch.subgraph, call, position, &conditions(&field.skip_if, &field.include_if));
            self.value(fetch, &Spot { position, slot, parent, only: None }, field)?;
        }
        Ok(())
    }

    /// A step that is made once, and the slot of what it brings. Changes are made one after the other.
    fn root(
        &mut self,
        subgraph: &Subgraph,
        call: Call,
        position: PositionId,
        conditions: &[(Arc<str>, bool)],
    ) -> SlotId {
        let is_change = position == 0 && self.kind == OperationKind::Mutation;
        let base = self.positions[position].slots.iter().filter_map(|slot| match slot.from {
            From::Found(step, _) => Some(step),
            From::Parent(_) => None,
        });
        let after = if is_change { (0..self.steps.len()).collect() } else { base.collect() };
        let step = self.steps.len();
        let slot = self.positions[position].slot(From::Found(step, 0));
        let group = Group {
            position,
            slot,
            only: None,
            input: Input::Nothing,
            key: Vec::new(),
            walk: None,
            is_many: false,
            batch: 0,
        };
        let after = if position == 0 && !is_change { Vec::new() } else { after };
        self.push(subgraph, call, vec![group], conditions, after);
        slot
    }

    fn push(
        &mut self,
        subgraph: &Subgraph,
        call: Call,
        groups: Vec<Group>,
        conditions: &[(Arc<str>, bool)],
        after: Vec<StepId>,
    ) {
        let conditions = self.conditions.iter().chain(conditions).cloned().collect();
        let service = Arc::clone(&subgraph.name);
        let (Kind::Rest(bindings) | Kind::Remote { bindings, .. }) = &subgraph.kind;
        let bindings = Arc::clone(bindings);
        self.steps.push(Step { service, bindings, call, groups, conditions, after });
    }

    /// A fetch of entities: links are steps of their own, and what remains is one.
    fn entities(&mut self, fetch: Fetch<'_>, node: Entities<'_>) -> Done {
        let mut rests: Vec<Option<SelectionSet>> = Vec::new();
        for alias in &node.aliases {
            let inner = inlined(&alias.field.selections, fetch.fragments);
            let mut has_links = false;
            for target in &alias.targets {
                has_links |= self.links(fetch, target, &inner, alias.requires)?;
            }
            rests.push(has_links.then(|| without(&inner, fetch.bindings())));
        }
        let Kind::Remote { path, .. } = &fetch.subgraph.kind else { return Ok(()) };
        if rests.iter().all(|rest| rest.as_ref().is_some_and(|rest| rest.items.is_empty())) {
            return Ok(());
        }
        let rest = select::replaced(node.operation, &rests);
        let text = self.text(fetch, node.operation, rest, self.types.name(self.types.query));
        let document = Document::new(path, &text, node.node_variables, true);
        let batches = node.aliases.iter();
        let batches = batches.map(|alias| (alias.field.selection_identifier().into(), alias.variable.into()));
        let step = self.steps.len();
        let call = Call::Entities(document, batches.collect());
        let (mut groups, mut after) = (Vec::new(), BTreeSet::new());
        let mut spots = Vec::new();
        for (batch, alias) in node.aliases.iter().enumerate() {
            for target in &alias.targets {
                let mut said = self.representation(alias.requires, alias.inputs, fetch.fragments);
                let way = self.way(target, None, way::Needs::Said(&mut said))?;
                let position = target.position;
                let slot = self.positions[position].slot(From::Found(step, groups.len()));
                after.extend(way.after);
                spots.push((position, slot, batch));
                groups.push(Group {
                    position,
                    slot,
                    only: None,
                    input: Input::Representation(said),
                    key: way.key,
                    walk: Some(way.walk),
                    is_many: false,
                    batch,
                });
            }
        }
        self.push(fetch.subgraph, call, groups, &[], after.into_iter().collect());
        for (position, slot, batch) in spots {
            let (Some(alias), Some(rest)) = (node.aliases.get(batch), rests.get(batch)) else { continue };
            let parent = Arc::clone(self.types.name(self.positions[position].declared));
            let spot = Spot { position, slot, parent: &parent, only: None };
            let fetch = Fetch { outputs: alias.outputs, ..fetch };
            self.select(fetch, &spot, rest.as_ref().unwrap_or(&alias.field.selections), &mut Vec::new())?;
        }
        Ok(())
    }

    /// The links of a fetch of entities, and for a REST service what it knows of them itself. Says whether there were links.
    fn links(
        &mut self,
        fetch: Fetch<'_>,
        target: &Target,
        selections: &SelectionSet,
        requires: &SelectionSet,
    ) -> Result<bool, Broken> {
        let mut has_links = false;
        for item in &selections.items {
            let SelectionItem::InlineFragment(fragment) = item else { continue };
            let conditions = conditions(&fragment.skip_if, &fragment.include_if);
            has_links |= self.under(conditions, |lowering| {
                lowering.entity(fetch, target, &fragment.type_condition, &fragment.selections, requires)
            })?;
        }
        Ok(has_links)
    }

    /// The same of objects of one type.
    fn entity(
        &mut self,
        fetch: Fetch<'_>,
        target: &Target,
        name: &str,
        selections: &SelectionSet,
        requires: &SelectionSet,
    ) -> Result<bool, Broken> {
        let Some(entity) = fetch.bindings().entities.get(name) else { return Ok(false) };
        let only = self.only([name].into_iter());
        let key_of = |need: &str| required(requires, name, need);
        let (mut has_links, mut own) = (false, Vec::new());
        for item in &selections.items {
            match item {
                SelectionItem::Field(field) if field.name == "__typename" => {}
                SelectionItem::Field(field) => match entity.links.get(field.name.as_str()) {
                    Some(link) => {
                        has_links = true;
                        let keys: Option<Vec<Arc<str>>> =
                            link.needs.iter().map(|need| key_of(need)).collect();
                        let keys = keys.ok_or_else(|| unreadable(name, &field.name))?;
                        let reading = Reading { needs: &link.needs, keys };
                        self.link(fetch, target, &only, name, field, &link.how, reading)?;
                    }
                    None => own.push(item.clone()),
                },
                // What is under a condition stands in a fragment of its own.
                SelectionItem::InlineFragment(fragment) if fragment.type_condition == name => {
                    let conditions = conditions(&fragment.skip_if, &fragment.include_if);
                    has_links |= self.under(conditions, |lowering| {
                        lowering.entity(fetch, target, name, &fragment.selections, requires)
                    })?;
                }
                other => own.push(other.clone()),
            }
        }
        if own.is_empty() || !fetch.is_rest() {
            return Ok(has_links);
        }
        let how = entity.own.as_ref().ok_or_else(|| Broken(format!("`{name}` can't be found by a key")))?;
        let needs: Vec<Box<str>> = how.needs().into_iter().map(Into::into).collect();
        let keys: Option<Vec<Arc<str>>> = needs.iter().map(|need| key_of(need)).collect();
        let keys = keys.ok_or_else(|| unreadable(name, "it"))?;
        let call = Call::Keys(how.clone(), Arguments::default());
        let slot = self.keyed(fetch, target, &only, call, Reading { needs: &needs, keys }, &[])?;
        let spot = Spot { position: target.position, slot, parent: name, only };
        self.teller(fetch, &spot);
        self.select(fetch, &spot, &SelectionSet { items: own }, &mut Vec::new())?;
        Ok(has_links)
    }

    /// Lowers something that depends on variables.
    fn under<T>(&mut self, conditions: Vec<(Arc<str>, bool)>, lower: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.conditions.len();
        self.conditions.extend(conditions);
        let done = lower(self);
        self.conditions.truncate(outer);
        done
    }

    /// A link is a step, and its results are the field's values.
    #[expect(clippy::too_many_arguments, reason = "what a link is, and where")]
    fn link(
        &mut self,
        fetch: Fetch<'_>,
        target: &Target,
        only: &Only,
        parent: &str,
        field: &FieldSelection,
        how: &How,
        reading: Reading<'_>,
    ) -> Done {
        let arguments = self.arguments(fetch, parent, field);
        let call = match (&fetch.subgraph.kind, asked(how)) {
            (Kind::Remote { path, .. }, Ask::Field { .. }) => {
                let selections = inlined(&field.selections, fetch.fragments);
                let used = selections.variable_usages();
                let bindings = fetch.bindings();
                let declared = fetch.variables.iter().filter(|variable| used.contains(&variable.name));
                let declared = declared.map(|variable| words::declared(bindings, variable).to_string());
                let declares = declared.collect::<Vec<_>>().join(", ");
                let below = self.type_of(parent, &field.name).unwrap_or_default();
                let selections = self.words(bindings, &selections, &below);
                Call::Linked {
                    path: Arc::clone(path),
                    how: how.clone(),
                    arguments,
                    selection: select::bare(&selections),
                    declares: declares.into(),
                    variables: names(used.iter()),
                }
            }
            _ => Call::Keys(how.clone(), arguments),
        };
        let slot =
            self.keyed(fetch, target, only, call, reading, &conditions(&field.skip_if, &field.include_if))?;
        self.value(fetch, &Spot { position: target.position, slot, parent, only: only.clone() }, field)
    }

    /// A step for each object, by fields of it.
    fn keyed(
        &mut self,
        fetch: Fetch<'_>,
        target: &Target,
        only: &Only,
        call: Call,
        mut reading: Reading<'_>,
        conditions: &[(Arc<str>, bool)],
    ) -> Result<SlotId, Broken> {
        let is_abstract = self.positions[target.position].is_abstract(self.types);
        let only = if is_abstract { only.clone() } else { None };
        let way = self.way(target, only.as_ref(), way::Needs::Keys(&mut reading.keys))?;
        let (step, position) = (self.steps.len(), target.position);
        let slot = self.positions[position].slot(From::Found(step, 0));
        let group = Group {
            position,
            slot,
            only,
            input: Input::Fields(reading.needs.into(), reading.keys.into()),
            key: way.key,
            walk: Some(way.walk),
            is_many: is_many(&call),
            batch: 0,
        };
        self.push(fetch.subgraph, call, vec![group], conditions, way.after.into_iter().collect());
        Ok(slot)
    }

    /// A slot that is the value of a field.
    fn value(&mut self, fetch: Fetch<'_>, spot: &Spot<'_>, field: &FieldSelection) -> Done {
        let key = field.selection_identifier();
        let entry = Entry {
            only: spot.only.clone(),
            lookup: Lookup::Itself,
            is_renamed: false,
            spelling: self.spelling(fetch, spot.parent, &field.name),
        };
        self.positions[spot.position].slots[spot.slot].add(key, entry);
        self.below(fetch, spot, field, key, &mut vec![key.to_owned()])
    }

    fn arguments(&self, fetch: Fetch<'_>, parent: &str, field: &FieldSelection) -> Arguments {
        let speller = Speller { types: self.types, bindings: Some(fetch.bindings()) };
        let declared = self.types.find(parent).and_then(|id| self.types.field(id, &field.name));
        let mut arguments = Vec::new();
        for argument in declared.map(|field| field.arguments.as_slice()).unwrap_or_default() {
            let given = field.arguments.iter().flatten().find(|(name, _)| **name == *argument.name);
            let default = argument.default.as_ref().map(|value| speller.literal(value, &argument.ty));
            let value = match given {
                Some((_, value)) => speller.template(value, &argument.ty, default),
                None => match default {
                    Some(text) => super::values::Template::Text(text),
                    None => continue,
                },
            };
            arguments.push((quoted(&argument.name), value));
        }
        Arguments(arguments)
    }
}

/// What a step reads of its objects.
struct Reading<'r> {
    needs: &'r [Box<str>],
    keys: Vec<Arc<str>>,
}

fn unreadable(parent: &str, field: &str) -> Broken {
    Broken(format!("what `{parent}.{field}` needs is not asked for"))
}

fn asked(how: &How) -> &Ask {
    match how {
        How::Ids(ask, _) | How::List(ask, _) | How::Each(ask) => ask,
    }
}

fn is_many(call: &Call) -> bool {
    match call {
        Call::Keys(How::Ids(_, joined) | How::List(_, joined), _)
        | Call::Linked { how: How::Ids(_, joined) | How::List(_, joined), .. } => joined.is_many,
        _ => false,
    }
}

fn names<'n>(names: impl Iterator<Item = &'n String>) -> Box<[Box<str>]> {
    names.map(|name| name.as_str().into()).collect()
}

/// The variables on which it depends whether a field or fragment is there.
fn conditions(skip: &Option<String>, include: &Option<String>) -> Vec<(Arc<str>, bool)> {
    let skip = skip.iter().map(|name| (name.as_str().into(), false));
    skip.chain(include.iter().map(|name| (name.as_str().into(), true))).collect()
}
