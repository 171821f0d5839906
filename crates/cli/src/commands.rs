//! The verbs of the command line, one module for each, the noun first (`orfa query build`).
//!
//! `check` and `dev` also use the reports of `config` and other verbs; `dev` and `query` send programs with
//! `call`.

pub(crate) mod aggregate;
pub(crate) mod call;
pub(crate) mod check;
pub(crate) mod config;
pub(crate) mod dev;
pub(crate) mod filter;
pub(crate) mod graphql;
pub(crate) mod keys;
pub(crate) mod query;
pub(crate) mod script;
pub(crate) mod serve;
pub(crate) mod types;
