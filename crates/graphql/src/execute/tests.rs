//! Plans are made of composed schemas and run against a table of answers.

mod federated;
mod nested;
mod nulls;
mod rig;
mod values;
