//! The groups of a service: cells that are written together, by one writer at a time.
//!
//! The files are one unit, since their objects refer to each other: a service has groups and instances, a
//! group refers back to its service, and a commit and the locks of a run refer to its group.
//!
//! - `service_groups.rs`: the groups of a service, and their change on a reload; `instances.rs`: dynamic
//!   resources
//! - `group.rs`: versions, loading, leases; `commit.rs`: from a change set to the disk
//! - `held_locks.rs`: deadlock detection

pub(super) mod commit;
pub(super) mod group;
pub(super) mod held_locks;
pub(super) mod instances;
pub(super) mod service_groups;
