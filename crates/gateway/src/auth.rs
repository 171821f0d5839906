//! Authentication and authorisation of callers.

pub(crate) mod authn;
pub(crate) mod authz;
