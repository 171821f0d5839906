//! The examples with services of their own. Those of S services are in `script/examples.rs`.

mod marketplace;
mod strapi;
