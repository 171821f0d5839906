//! JavaScript's built-in functions and methods, by their effects on receivers and arguments.
//!
//! A method is recognised by its name alone, so a name does not count if the text defines a method of that
//! name (`code::Members`). A function is recognised by its text, so it counts only if no variable of the text
//! shadows it.

use oxc_ast::ast::{Argument, CallExpression, Expression, NewExpression};
use oxc_span::GetSpan;

use super::code::{CodeText, argument_expression, identifier_symbol, is_function};
use super::flow::{CALLBACK_METHODS, FIRST_ARGUMENT_MUTATORS, MUTATING_METHODS, member_access};

/// Methods without side effects whose result contains no part of the receiver.
pub(crate) const NON_ALIASING_METHODS: &[&str] = &[
    "includes",
    "indexOf",
    "lastIndexOf",
    "join",
    "has",
    "some",
    "every",
    "findIndex",
    "findLastIndex",
    "forEach",
    "keys",
    "toString",
    "startsWith",
    "endsWith",
    "charAt",
    "charCodeAt",
    "substring",
    "substr",
    "split",
    "trim",
    "toUpperCase",
    "toLowerCase",
    "padStart",
    "padEnd",
    "repeat",
    "replace",
    "replaceAll",
    "match",
    "search",
    "toFixed",
    "localeCompare",
    "hasOwnProperty",
    "test",
];

/// Methods without side effects whose result may share parts with the receiver or the arguments.
pub(crate) const ALIASING_METHODS: &[&str] = &[
    "at",
    "find",
    "findLast",
    "get",
    "map",
    "filter",
    "slice",
    "concat",
    "flat",
    "flatMap",
    "reduce",
    "reduceRight",
    "values",
    "entries",
    "toSorted",
    "toReversed",
    "toSpliced",
    "with",
    "valueOf",
];

/// Methods that remove their result from the receiver.
pub(crate) const REMOVAL_METHODS: &[&str] = &["pop", "shift", "splice"];

/// Methods that change their receiver and return a number or boolean.
pub(crate) const SCALAR_MUTATORS: &[&str] = &["push", "unshift", "delete", "clear"];

/// Methods of functions and promises that pass their arguments to code that may run later.
pub(crate) const DEFERRED_CALL_METHODS: &[&str] = &["call", "apply", "bind", "then", "catch", "finally"];

/// Built-in functions without side effects whose result contains no part of the arguments.
pub(crate) const PURE_FUNCTIONS: &[&str] = &[
    "JSON.stringify",
    "JSON.parse",
    "String",
    "Number",
    "Boolean",
    "parseInt",
    "parseFloat",
    "isNaN",
    "isFinite",
    "Object.hasOwn",
    "Object.is",
    "Object.keys",
    "Array.isArray",
    "encodeURIComponent",
    "encodeURI",
    "decodeURIComponent",
    "decodeURI",
    "structuredClone",
    "Number.isInteger",
    "Number.isFinite",
    "Number.isNaN",
    "Number.parseInt",
    "Number.parseFloat",
    "console.log",
    "console.info",
    "console.warn",
    "console.error",
    "console.debug",
    "Date.now",
    "Math.random",
];

/// Functions without side effects whose result may share parts with the arguments.
const COPYING_FUNCTIONS: &[&str] = &["Object.values", "Object.entries", "Array.from", "Object.fromEntries"];

/// Functions that store their arguments in the result and nowhere else, like those of
/// `FIRST_ARGUMENT_MUTATORS`.
const STORING_FUNCTIONS: &[&str] = &["Array.of", "Object.create", "Promise.all", "Promise.resolve"];

/// Constructors that do not change their arguments.
const STORING_CONSTRUCTORS: &[&str] = &["Array", "Map", "Set", "Error", "TypeError", "RangeError", "Object"];

/// Constructors that do not change their arguments, and whose result contains no part of them.
const CONVERTING_CONSTRUCTORS: &[&str] =
    &["Date", "RegExp", "URL", "URLSearchParams", "Uint8Array", "String", "Number"];

/// A JavaScript built-in function, by its effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BuiltinFunction {
    /// No side effects, and the result contains no part of the arguments.
    Pure,
    /// No side effects. The result may share parts with the arguments.
    Copying,
    /// May change the first argument. Only the result may share parts with the arguments.
    Storing,
}

impl BuiltinFunction {
    /// Returns the built-in function that is called, if it is one.
    pub(crate) fn from_call(code: &CodeText<'_, '_>, call: &CallExpression<'_>) -> Option<Self> {
        let name = global_name(code, &call.callee)?;
        if PURE_FUNCTIONS.contains(&name) || name.starts_with("Math.") {
            Some(Self::Pure)
        } else if COPYING_FUNCTIONS.contains(&name) {
            Some(Self::Copying)
        } else if STORING_FUNCTIONS.contains(&name) || FIRST_ARGUMENT_MUTATORS.contains(&name) {
            Some(Self::Storing)
        } else {
            None
        }
    }

    /// Returns the effect of a built-in constructor.
    pub(crate) fn from_constructor(code: &CodeText<'_, '_>, new: &NewExpression<'_>) -> Option<Self> {
        let name = global_name(code, &new.callee)?;
        if CONVERTING_CONSTRUCTORS.contains(&name) {
            Some(Self::Pure)
        } else if STORING_CONSTRUCTORS.contains(&name) {
            Some(Self::Storing)
        } else {
            None
        }
    }

    /// Whether JavaScript has a constructor of this name that does not change its arguments.
    pub(crate) fn is_constructor(name: &str) -> bool {
        STORING_CONSTRUCTORS.contains(&name) || CONVERTING_CONSTRUCTORS.contains(&name)
    }
}

/// Whether a call has no side effects, returns no part of its arguments, and calls no function of the text.
pub(crate) fn is_pure_call(code: &CodeText<'_, '_>, call: &CallExpression<'_>) -> bool {
    BuiltinFunction::from_call(code, call) == Some(BuiltinFunction::Pure)
        && !has_function_argument(code, call)
}

/// Whether any argument of a call may be a function.
pub(crate) fn has_function_argument(code: &CodeText<'_, '_>, call: &CallExpression<'_>) -> bool {
    let mut given = call.arguments.iter();
    given.any(|argument| argument_expression(argument).is_some_and(|value| is_function(code, value)))
}

/// Returns the argument that a built-in method calls with parts of the receiver.
pub(crate) fn callback_argument<'b, 'a>(
    call: &'b CallExpression<'a>,
    method: &str,
) -> Option<&'b Argument<'a>> {
    call.arguments.first().filter(|_| CALLBACK_METHODS.contains(&method))
}

/// Returns the argument that a built-in function calls with parts of its first argument.
pub(crate) fn mapper_argument<'b, 'a>(
    code: &CodeText<'_, '_>,
    call: &'b CallExpression<'a>,
) -> Option<&'b Argument<'a>> {
    let name = global_name(code, &call.callee)?;
    call.arguments.get(1).filter(|_| matches!(name, "JSON.stringify" | "Array.from"))
}

/// Whether the effect of a method is known.
pub(crate) fn is_known_method(method: &str) -> bool {
    NON_ALIASING_METHODS.contains(&method)
        || ALIASING_METHODS.contains(&method)
        || MUTATING_METHODS.contains(&method)
        || CALLBACK_METHODS.contains(&method)
}

/// Returns the text of an expression that refers to a global variable which the text does not declare.
pub(crate) fn global_name<'a>(code: &CodeText<'_, 'a>, expression: &Expression<'_>) -> Option<&'a str> {
    let mut root = expression;
    while let Some((object, _)) = member_access(root) {
        root = object;
    }
    let is_global = matches!(root.get_inner_expression(), Expression::Identifier(_))
        && identifier_symbol(code, root).is_none();
    is_global.then(|| code.source_text(code.source_range(expression.span())))
}
