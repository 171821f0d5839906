//! JavaScript's own functions and methods, by what they do to what they are called on and given.
//!
//! A method is known by its name alone, so the name means nothing where the text has a method of that name itself
//! (`code::Members`). A function is known by its text, so it counts only where no variable of the text hides it.

use oxc_ast::ast::{Argument, CallExpression, Expression, NewExpression};
use oxc_span::GetSpan;

use super::code::{Code, identifier, is_function, plain};
use super::flow::{CHANGING, CHANGING_FIRST, VISITING, member};

/// Methods that change nothing and whose result has no part of what they are called on.
pub(crate) const ANSWERING: &[&str] = &[
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

/// Methods that change nothing, but their result may share something.
pub(crate) const SHARING: &[&str] = &[
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

/// Methods whose result was in what they are called on, and is there no longer.
pub(crate) const TAKING: &[&str] = &["pop", "shift", "splice"];

/// Methods that change what they are called on, and whose result is a number or a truth value.
pub(crate) const COUNTING: &[&str] = &["push", "unshift", "delete", "clear"];

/// Methods of functions and promises: they hand what they are given to code that may run later.
pub(crate) const DEFERRING: &[&str] = &["call", "apply", "bind", "then", "catch", "finally"];

/// Functions of JavaScript that change nothing, and whose result has no part of their arguments.
pub(crate) const PURE: &[&str] = &[
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

/// Functions that change nothing, but their result may share something.
const COPYING: &[&str] = &["Object.values", "Object.entries", "Array.from", "Object.fromEntries"];

/// Functions that keep what they are given in their result and nowhere else. So do those of `CHANGING_FIRST`.
const KEEPING: &[&str] = &["Array.of", "Object.create", "Promise.all", "Promise.resolve"];

/// Constructors that change nothing that they are given.
const MAKING: &[&str] = &["Array", "Map", "Set", "Error", "TypeError", "RangeError", "Object"];

/// Constructors that change nothing, and whose result has no part of what they are given.
const CONVERTING: &[&str] = &["Date", "RegExp", "URL", "URLSearchParams", "Uint8Array", "String", "Number"];

/// A function that is JavaScript's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Builtin {
    /// It changes nothing, and its result has no part of its arguments.
    Pure,
    /// It changes nothing. Its result may share something with its arguments.
    Copying,
    /// It may change its first argument. Its result may share something with its arguments, and nothing else does.
    Keeping,
}

impl Builtin {
    /// The function that a call is of, if it is one of these.
    pub(crate) fn called(code: &Code<'_, '_>, call: &CallExpression<'_>) -> Option<Self> {
        let name = global(code, &call.callee)?;
        if PURE.contains(&name) || name.starts_with("Math.") {
            Some(Self::Pure)
        } else if COPYING.contains(&name) {
            Some(Self::Copying)
        } else if KEEPING.contains(&name) || CHANGING_FIRST.contains(&name) {
            Some(Self::Keeping)
        } else {
            None
        }
    }

    /// What a constructor does with its arguments, if it is JavaScript's own.
    pub(crate) fn constructed(code: &Code<'_, '_>, new: &NewExpression<'_>) -> Option<Self> {
        let name = global(code, &new.callee)?;
        if CONVERTING.contains(&name) {
            Some(Self::Pure)
        } else if MAKING.contains(&name) {
            Some(Self::Keeping)
        } else {
            None
        }
    }

    /// Whether JavaScript has a constructor of this name that changes nothing that it is given.
    pub(crate) fn is_constructor(name: &str) -> bool {
        MAKING.contains(&name) || CONVERTING.contains(&name)
    }
}

/// Whether a call is of a function that changes nothing, gives no part of its arguments, and calls no function of the
/// text.
pub(crate) fn is_pure(code: &Code<'_, '_>, call: &CallExpression<'_>) -> bool {
    Builtin::called(code, call) == Some(Builtin::Pure) && !gives_function(code, call)
}

/// Whether a function may be among the arguments of a call.
pub(crate) fn gives_function(code: &Code<'_, '_>, call: &CallExpression<'_>) -> bool {
    let mut given = call.arguments.iter();
    given.any(|argument| plain(argument).is_some_and(|value| is_function(code, value)))
}

/// The argument that a method of JavaScript calls with parts of what it is called on.
pub(crate) fn callback<'b, 'a>(call: &'b CallExpression<'a>, method: &str) -> Option<&'b Argument<'a>> {
    call.arguments.first().filter(|_| VISITING.contains(&method))
}

/// The argument that a function of JavaScript calls with parts of its first one.
pub(crate) fn mapper<'b, 'a>(code: &Code<'_, '_>, call: &'b CallExpression<'a>) -> Option<&'b Argument<'a>> {
    let name = global(code, &call.callee)?;
    call.arguments.get(1).filter(|_| matches!(name, "JSON.stringify" | "Array.from"))
}

/// Whether it is known what a method does.
pub(crate) fn is_known(method: &str) -> bool {
    ANSWERING.contains(&method)
        || SHARING.contains(&method)
        || CHANGING.contains(&method)
        || VISITING.contains(&method)
}

/// The text of an expression that names something global, and nothing that the text declares.
pub(crate) fn global<'a>(code: &Code<'_, 'a>, expression: &Expression<'_>) -> Option<&'a str> {
    let mut root = expression;
    while let Some((object, _)) = member(root) {
        root = object;
    }
    let is_global =
        matches!(root.get_inner_expression(), Expression::Identifier(_)) && identifier(code, root).is_none();
    is_global.then(|| code.text(code.source(expression.span())))
}
