//! Services on real workers: Node.js, the store, and a service that misbehaves. The code is as the compiler emits it, by
//! hand, so that nothing here depends on what the compiler makes of a text.

mod bad;
mod caching;
mod calls;
mod composed;
mod hello;
mod listings;
mod lost;
mod redirects;
mod reload;
mod rig;
mod state;
