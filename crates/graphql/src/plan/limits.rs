//! What a document may ask for: told before anything is built of it that grows faster than its text.

use std::collections::HashMap;

use graphql_tools::static_graphql::query::{
    Definition, Document, FragmentDefinition, Selection, SelectionSet,
};

use super::types::{Ty, TypeId, Types};
use crate::GraphqlLimits;
use crate::error::{Code, GraphqlError};

/// How deep brackets may stand within each other, in values too: the parser goes down as deep.
const NESTING: usize = 200;
/// How often a field of one name may be selected at one place of the answer: all are compared with each other.
const SAME: usize = 300;
/// How many of [`LISTS`] may stand within each other in introspection. A schema of hundreds of types has thousands of fields, and
/// each list multiplies by them; tools take one.
const WITHIN: u32 = 2;
/// The lists of introspection that lead from types to types.
const LISTS: [&str; 4] = ["fields", "interfaces", "possibleTypes", "inputFields"];

/// Judges a text before it is parsed.
pub(crate) fn nesting(text: &str) -> Result<(), Box<GraphqlError>> {
    let bytes = text.as_bytes();
    let (mut at, mut open) = (0, 0_usize);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = string(bytes, at),
            b'#' => at += bytes[at..].iter().take_while(|byte| !matches!(byte, b'\n' | b'\r')).count(),
            b'{' | b'[' | b'(' => open += 1,
            b'}' | b']' | b')' => open = open.saturating_sub(1),
            _ => {}
        }
        if open > NESTING {
            let message = format!("the document nests more than {NESTING} brackets within each other");
            return Err(Box::new(GraphqlError::new(Code::Limit, message)));
        }
        at += 1;
    }
    Ok(())
}

/// At the last byte of the string that begins here.
fn string(bytes: &[u8], start: usize) -> usize {
    let is_block = bytes[start..].starts_with(b"\"\"\"");
    let mut at = start + if is_block { 3 } else { 1 };
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 1,
            b'"' if !is_block => return at,
            b'"' if bytes[at..].starts_with(b"\"\"\"") => return at + 2,
            b'\n' if !is_block => return at,
            _ => {}
        }
        at += 1;
    }
    at
}

/// What an operation asks for, its fragments resolved.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    depth: u64,
    aliases: u64,
    cost: u64,
    /// Fields that are not within others.
    fields: u64,
    /// Lists of introspection within each other.
    lists: u64,
}

struct Counting<'d> {
    types: &'d Types,
    fragments: HashMap<&'d str, &'d FragmentDefinition>,
    /// Those that were counted; none while one is being counted.
    known: HashMap<&'d str, Option<Counts>>,
}

/// Judges an operation, whose selection this is.
pub(crate) fn operation(
    document: &Document,
    selections: &SelectionSet,
    root: TypeId,
    types: &Types,
    limits: &GraphqlLimits,
) -> Result<(), Box<GraphqlError>> {
    let fragments = document.definitions.iter().filter_map(|definition| match definition {
        Definition::Fragment(fragment) => Some((fragment.name.as_str(), fragment)),
        Definition::Operation(_) => None,
    });
    let mut counting = Counting { types, fragments: fragments.collect(), known: HashMap::new() };
    let counts = counting.count(selections, Some(root))?;
    // Fragments that are not used are no less to validate.
    let names: Vec<&str> = counting.fragments.keys().copied().collect();
    for name in names {
        counting.fragment(name)?;
    }
    let over = |what: &str, count: u64, most: u32| {
        let message = format!("the operation has {what} of {count}; at most {most} is allowed here");
        (count > u64::from(most)).then(|| Box::new(GraphqlError::new(Code::Limit, message)))
    };
    let told = [
        over("a depth", counts.depth, limits.depth),
        over("a number of aliases", counts.aliases, limits.aliases),
        over("a cost", counts.cost, limits.cost),
        over("a number of root fields", counts.fields, limits.root_fields),
        over("a number of lists within each other in `__schema` or `__type`", counts.lists, WITHIN),
    ];
    told.into_iter().flatten().next().map_or(Ok(()), Err)?;
    repeated(&[selections], &counting.fragments)
}

/// Judges how often fields are selected at one place, below these selections of one object.
fn repeated<'d>(
    selections: &[&'d SelectionSet],
    fragments: &HashMap<&'d str, &'d FragmentDefinition>,
) -> Result<(), Box<GraphqlError>> {
    let mut fields: HashMap<&str, Vec<&SelectionSet>> = HashMap::new();
    let mut open = selections.to_vec();
    while let Some(set) = open.pop() {
        for item in &set.items {
            match item {
                Selection::Field(field) => {
                    let key = field.alias.as_deref().unwrap_or(&field.name);
                    let known = fields.entry(key).or_default();
                    known.push(&field.selection_set);
                    if known.len() > SAME {
                        let message =
                            format!("the operation selects `{key}` more than {SAME} times at one place");
                        let place = (field.position.line as u32, field.position.column as u32);
                        return Err(Box::new(GraphqlError::new(Code::Limit, message).at(place)));
                    }
                }
                Selection::InlineFragment(fragment) => open.push(&fragment.selection_set),
                Selection::FragmentSpread(spread) => {
                    let fragment = fragments.get(spread.fragment_name.as_str());
                    open.extend(fragment.map(|fragment| &fragment.selection_set));
                }
            }
        }
    }
    fields.values().try_for_each(|below| repeated(below, fragments))
}

impl<'d> Counting<'d> {
    fn count(
        &mut self,
        selections: &'d SelectionSet,
        parent: Option<TypeId>,
    ) -> Result<Counts, Box<GraphqlError>> {
        let mut sum = Counts::default();
        for item in &selections.items {
            let counts = match item {
                Selection::Field(field) => {
                    let declared = parent.and_then(|parent| self.types.field(parent, &field.name));
                    let below = self.count(&field.selection_set, declared.map(|field| field.ty.named()))?;
                    let many = declared.map_or(1, |field| 10_u64.saturating_pow(lists(&field.ty)));
                    Counts {
                        depth: below.depth + 1,
                        aliases: below.aliases.saturating_add(u64::from(field.alias.is_some())),
                        cost: below.cost.saturating_mul(many).saturating_add(1),
                        fields: 1,
                        lists: below.lists + u64::from(self.leads_to_types(parent, &field.name)),
                    }
                }
                Selection::InlineFragment(fragment) => {
                    let narrowed = fragment.type_condition.as_ref();
                    let parent = narrowed.map_or(parent, |name| self.types.find(name.as_ref()));
                    self.count(&fragment.selection_set, parent)?
                }
                Selection::FragmentSpread(spread) => self.fragment(&spread.fragment_name)?,
            };
            sum.depth = sum.depth.max(counts.depth);
            sum.aliases = sum.aliases.saturating_add(counts.aliases);
            sum.cost = sum.cost.saturating_add(counts.cost);
            sum.fields = sum.fields.saturating_add(counts.fields);
            sum.lists = sum.lists.max(counts.lists);
        }
        Ok(sum)
    }

    /// Whether a field is one of [`LISTS`], of a type of introspection.
    fn leads_to_types(&self, parent: Option<TypeId>, field: &str) -> bool {
        parent.is_none_or(|parent| self.types.name(parent).starts_with("__")) && LISTS.contains(&field)
    }

    fn fragment(&mut self, name: &str) -> Result<Counts, Box<GraphqlError>> {
        // One that is not there is told by the validation.
        let Some((name, fragment)) = self.fragments.get_key_value(name).map(|(name, known)| (*name, *known))
        else {
            return Ok(Counts::default());
        };
        match self.known.get(name) {
            Some(Some(counts)) => return Ok(*counts),
            Some(None) => {
                let place = (fragment.position.line as u32, fragment.position.column as u32);
                let message = format!("the fragment `{name}` has itself within it");
                return Err(Box::new(GraphqlError::new(Code::Invalid, message).at(place)));
            }
            None => {}
        }
        self.known.insert(name, None);
        let parent = self.types.find(fragment.type_condition.as_ref());
        let counts = self.count(&fragment.selection_set, parent)?;
        self.known.insert(name, Some(counts));
        Ok(counts)
    }
}

fn lists(ty: &Ty) -> u32 {
    match ty {
        Ty::Named(_) => 0,
        Ty::NonNull(inner) => lists(inner),
        Ty::List(inner) => 1 + lists(inner),
    }
}
