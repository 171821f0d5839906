//! Host functions for shared data, queues and metrics, which are implemented in `shared.rs` and
//! `telemetry/metrics.rs`.

use sandbox::GuestResult;

use super::{GuestModule, HostResult};
use crate::abi::HostStatus;
use crate::shared::QueueConsumer;

/// `proxy_get_shared_data`
pub(super) fn get_data(
    guest: &mut GuestModule<'_>,
    key: u32,
    of: u32,
    address: u32,
    length: u32,
    cas: u32,
) -> HostResult {
    guest.describe_call_text((key, of));
    let (value, version) =
        guest.host().resources.shared.get(guest.memory_bytes((key, of))?).ok_or(HostStatus::NotFound)?;
    guest.write_u32(cas, version)?;
    guest.return_bytes(value, (address, length))
}

/// `proxy_set_shared_data`
///
/// # Errors
/// Traps if the callback's time limit is exceeded.
pub(super) async fn set_data(
    guest: &mut GuestModule<'_>,
    (key, of, value, length, cas): (u32, u32, u32, u32, u32),
) -> GuestResult<HostResult> {
    guest.describe_call_text((key, of));
    let value = guest.copy_bytes((value, length)).await?;
    Ok(value.and_then(|value| guest.host().resources.shared.set(guest.memory_bytes((key, of))?, value, cas)))
}

/// `proxy_register_shared_queue`: the caller is notified of new items.
pub(super) fn register_queue(guest: &mut GuestModule<'_>, name: u32, length: u32, to: u32) -> HostResult {
    let name = guest.memory_text((name, length))?;
    guest.describe_call(|| name.clone());
    let host = guest.host();
    let root = host.effective_root().ok_or(HostStatus::BadArgument)?;
    let consumer = QueueConsumer { instance: host.instance.clone(), root: root.id };
    let id = host.resources.queues.register(&root.spec.vm_id, &name, consumer)?;
    guest.write_u32(to, id)
}

/// `proxy_resolve_shared_queue`
pub(super) fn resolve_queue(
    guest: &mut GuestModule<'_>,
    vm_id: u32,
    vm_id_length: u32,
    name: u32,
    length: u32,
    to: u32,
) -> HostResult {
    let (vm_id, name) = (guest.memory_text((vm_id, vm_id_length))?, guest.memory_text((name, length))?);
    guest.describe_call(|| format!("{vm_id}, {name}"));
    let id = guest.host().resources.queues.resolve(&vm_id, &name).ok_or(HostStatus::NotFound)?;
    guest.write_u32(to, id)
}

/// `proxy_enqueue_shared_queue`
///
/// # Errors
/// Traps if the callback's time limit is exceeded.
pub(super) async fn enqueue(
    guest: &mut GuestModule<'_>,
    (queue, data, length): (u32, u32, u32),
) -> GuestResult<HostResult> {
    guest.describe_call(|| queue.to_string());
    let item = guest.copy_bytes((data, length)).await?;
    Ok(item.and_then(|item| guest.host().resources.queues.enqueue(queue, item)))
}

/// `proxy_dequeue_shared_queue`
pub(super) fn dequeue(guest: &mut GuestModule<'_>, queue: u32, address: u32, length: u32) -> HostResult {
    guest.describe_call(|| queue.to_string());
    let item = guest.host().resources.queues.dequeue(queue)?;
    guest.return_bytes(item, (address, length))
}

/// `proxy_define_metric`
pub(super) fn define_metric(
    guest: &mut GuestModule<'_>,
    kind: u32,
    name: u32,
    length: u32,
    to: u32,
) -> HostResult {
    guest.describe_call_text((name, length));
    let id = guest.host().resources.metrics.define(kind, guest.memory_bytes((name, length))?)?;
    guest.write_u32(to, id)
}

/// `proxy_increment_metric`
pub(super) fn increment_metric(guest: &mut GuestModule<'_>, metric: u32, by: u64) -> HostResult {
    guest.describe_call(|| format!("{metric}, {}", by.cast_signed()));
    guest.host().resources.metrics.increment(metric, by.cast_signed())
}

/// `proxy_record_metric`
pub(super) fn record_metric(guest: &mut GuestModule<'_>, metric: u32, value: u64) -> HostResult {
    guest.describe_call(|| format!("{metric}, {value}"));
    guest.host().resources.metrics.record(metric, value)
}

/// `proxy_get_metric`
pub(super) fn get_metric(guest: &mut GuestModule<'_>, metric: u32, to: u32) -> HostResult {
    let value = guest.host().resources.metrics.get(metric)?;
    guest.write_u64(to, value)
}
