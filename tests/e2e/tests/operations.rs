//! A gateway as its operators see it: the admin listener, reloads, takeovers and shutdown, service managers,
//! little memory, several replicas, traces and logs.

mod admin;
mod config_folder;
mod lifecycle;
mod low_memory;
mod previous_version;
mod replicas;
mod service_manager;
mod traces;
