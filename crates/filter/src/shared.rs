//! Data and queues that modules share across threads, instances and reloads. Both are bounded, so that a
//! module that never removes anything can't exhaust the memory.

use std::collections::{BTreeMap, HashMap, LinkedList, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use offload::polls::{PollSite, watch_polls};

use crate::abi::HostStatus;
use crate::context::{ContextEvent, InstanceHandle, QueueReady};
use crate::sync::lock;

/// The maximum number of bytes of data per `vm_id`, and of all its queues together.
pub(crate) const MAX_BYTES: usize = 32 << 20;
/// The maximum length of a key in bytes.
const MAX_KEY: usize = 64 << 10;
/// The overhead of an item in bytes.
const ITEM_OVERHEAD: usize = 64;
/// The maximum number of queues of one `vm_id`.
pub(crate) const MAX_QUEUES: usize = 256;
/// The maximum length of a queue's name in bytes.
const MAX_NAME: usize = 1024;
/// The maximum number of consumers of one queue.
const MAX_CONSUMERS: usize = 64;

/// Data under one `vm_id`: versioned values.
#[derive(Default)]
pub(crate) struct SharedData {
    data: Mutex<SharedEntries>,
}

#[derive(Default)]
struct SharedEntries {
    /// A tree, since clients may cause hundreds of thousands of keys, and a growing hash table would move all
    /// of them at once.
    values: BTreeMap<Vec<u8>, (Bytes, u32)>,
    bytes: usize,
    version: u32,
}

/// All queues of a process.
#[derive(Default)]
pub(crate) struct SharedQueues {
    inner: Mutex<SharedQueuesInner>,
}

#[derive(Default)]
struct SharedQueuesInner {
    by_name: HashMap<(String, String), u32>,
    queues: Vec<SharedQueue>,
    /// The usage of each `vm_id`. There are as many entries as the configs have named.
    usage: HashMap<String, QueueUse>,
}

#[derive(Clone, Copy, Default)]
struct QueueUse {
    queues: usize,
    bytes: usize,
}

#[derive(Default)]
struct SharedQueue {
    vm_id: String,
    /// A list, since a growing deque of hundreds of thousands of items would move all of them at once.
    items: LinkedList<Bytes>,
    consumers: VecDeque<QueueConsumer>,
}

/// A root context that is notified of items in a queue.
#[derive(Clone)]
pub(crate) struct QueueConsumer {
    pub(crate) instance: InstanceHandle,
    pub(crate) root: u32,
}

impl SharedData {
    /// Returns a value and its version.
    pub(crate) fn get(&self, key: &[u8]) -> Option<(Bytes, u32)> {
        lock(&self.data).values.get(key).cloned()
    }

    /// The number of bytes stored.
    #[cfg(test)]
    pub(crate) fn size(&self) -> usize {
        lock(&self.data).bytes
    }

    /// Sets a value if its version is still this one; 0 matches any version.
    pub(crate) fn set(&self, key: &[u8], value: Bytes, cas: u32) -> Result<(), HostStatus> {
        let before = lock(&self.data).set(key, value, cas)?;
        // Freeing a long value takes time, so it follows the unlocking.
        drop(before);
        Ok(())
    }
}

impl SharedEntries {
    /// Sets a value, and returns the previous one.
    fn set(&mut self, key: &[u8], value: Bytes, cas: u32) -> Result<Option<(Bytes, u32)>, HostStatus> {
        let before = self.values.get(key);
        if cas != 0 && before.is_some_and(|(_, version)| *version != cas) {
            return Err(HostStatus::CasMismatch);
        }
        let freed = before.map_or(0, |(value, _)| key.len() + value.len() + ITEM_OVERHEAD);
        let bytes = self.bytes - freed + key.len() + value.len() + ITEM_OVERHEAD;
        if bytes > MAX_BYTES || key.len() > MAX_KEY {
            return Err(HostStatus::InternalFailure);
        }
        self.bytes = bytes;
        // 0 is reserved for "any version".
        self.version = self.version.checked_add(1).unwrap_or(1);
        Ok(self.values.insert(key.to_vec(), (value, self.version)))
    }
}

impl SharedQueues {
    /// Returns the queue of this name, created if there is none, and adds a consumer.
    pub(crate) fn register(
        &self,
        vm_id: &str,
        name: &str,
        consumer: QueueConsumer,
    ) -> Result<u32, HostStatus> {
        let mut inner = lock(&self.inner);
        let id = match inner.find_id(vm_id, name) {
            Some(id) => id,
            None if name.len() > MAX_NAME => return Err(HostStatus::BadArgument),
            None => {
                let queue_use = inner.usage.entry(vm_id.to_owned()).or_default();
                if queue_use.queues >= MAX_QUEUES {
                    return Err(HostStatus::InternalFailure);
                }
                queue_use.queues += 1;
                inner.queues.push(SharedQueue { vm_id: vm_id.to_owned(), ..SharedQueue::default() });
                let id = u32::try_from(inner.queues.len()).map_err(|_| HostStatus::InternalFailure)?;
                inner.by_name.insert((vm_id.to_owned(), name.to_owned()), id);
                id
            }
        };
        let queue = inner.queue(id)?;
        queue.consumers.retain(|queue_consumer| {
            queue_consumer.instance.has_receiver() && !queue_consumer.is_superseded_by(&consumer)
        });
        queue.consumers.push_back(consumer);
        if queue.consumers.len() > MAX_CONSUMERS {
            queue.consumers.pop_front();
        }
        Ok(id)
    }

    /// Removes a root context, or all root contexts of an instance, from the consumers.
    pub(crate) fn remove_consumers(&self, instance: &InstanceHandle, root: Option<u32>) {
        for queue in &mut lock(&self.inner).queues {
            queue.consumers.retain(|consumer| {
                !consumer.instance.is_same(instance) || root.is_some_and(|root| consumer.root != root)
            });
        }
    }

    pub(crate) fn resolve(&self, vm_id: &str, name: &str) -> Option<u32> {
        lock(&self.inner).find_id(vm_id, name)
    }

    /// Appends an item and notifies one of the consumers.
    pub(crate) fn enqueue(self: &Arc<Self>, id: u32, item: Bytes) -> Result<(), HostStatus> {
        let mut inner = lock(&self.inner);
        let (queue, queue_use) = inner.queue_and_usage(id)?;
        let bytes = queue_use.bytes + item.len() + ITEM_OVERHEAD;
        if bytes > MAX_BYTES {
            return Err(HostStatus::InternalFailure);
        }
        queue_use.bytes = bytes;
        queue.items.push_back(item);
        let consumer = queue.next_consumer();
        drop(inner);
        if let Some(consumer) = consumer {
            self.notify(id, consumer);
        }
        Ok(())
    }

    /// Notifies a consumer in a task of its own, since it may be the one that is running. If the consumer is
    /// gone before its turn comes, the next one is notified.
    fn notify(self: &Arc<Self>, id: u32, consumer: QueueConsumer) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let queues = Arc::clone(self);
        runtime.spawn(watch_polls(PollSite::Filters, async move {
            let mut next = Some(consumer);
            while let Some(consumer) = next {
                next = if consumer.notify(id).await { None } else { queues.other_consumer(id, &consumer) };
            }
        }));
    }

    /// Removes a consumer that is gone, and returns the next one if items are left.
    fn other_consumer(&self, id: u32, queue_consumer: &QueueConsumer) -> Option<QueueConsumer> {
        let mut inner = lock(&self.inner);
        let queue = inner.queue(id).ok()?;
        queue.consumers.retain(|consumer| !consumer.is_same_root(queue_consumer));
        if queue.items.is_empty() { None } else { queue.next_consumer() }
    }

    pub(crate) fn dequeue(&self, id: u32) -> Result<Bytes, HostStatus> {
        let mut inner = lock(&self.inner);
        let (queue, queue_use) = inner.queue_and_usage(id)?;
        let item = queue.items.pop_front().ok_or(HostStatus::Empty)?;
        queue_use.bytes = queue_use.bytes.saturating_sub(item.len() + ITEM_OVERHEAD);
        Ok(item)
    }

    /// The number of queues, and the number of bytes in them.
    #[cfg(test)]
    pub(crate) fn size(&self) -> (usize, usize) {
        let inner = lock(&self.inner);
        (inner.queues.len(), inner.usage.values().map(|queue_use| queue_use.bytes).sum())
    }
}

impl SharedQueuesInner {
    fn find_id(&self, vm_id: &str, name: &str) -> Option<u32> {
        self.by_name.get(&(vm_id.to_owned(), name.to_owned())).copied()
    }

    fn queue(&mut self, id: u32) -> Result<&mut SharedQueue, HostStatus> {
        let index = (id as usize).checked_sub(1).ok_or(HostStatus::NotFound)?;
        self.queues.get_mut(index).ok_or(HostStatus::NotFound)
    }

    fn queue_and_usage(&mut self, id: u32) -> Result<(&mut SharedQueue, &mut QueueUse), HostStatus> {
        let index = (id as usize).checked_sub(1).ok_or(HostStatus::NotFound)?;
        let queue = self.queues.get_mut(index).ok_or(HostStatus::NotFound)?;
        let queue_use = self.usage.get_mut(&queue.vm_id).ok_or(HostStatus::NotFound)?;
        Ok((queue, queue_use))
    }
}

impl SharedQueue {
    /// The consumer to notify next: live ones are notified in turn.
    fn next_consumer(&mut self) -> Option<QueueConsumer> {
        self.consumers.retain(|consumer| consumer.instance.has_receiver());
        let consumer = self.consumers.pop_front()?;
        self.consumers.push_back(consumer.clone());
        Some(consumer)
    }
}

impl QueueConsumer {
    /// Whether this is the same root context of the same instance.
    fn is_same_root(&self, other: &Self) -> bool {
        self.instance.is_same(&other.instance) && self.root == other.root
    }

    /// Whether this is the same root context, or one of an earlier instance in the same slot.
    fn is_superseded_by(&self, other: &Self) -> bool {
        self.is_same_root(other) || self.instance.is_other_generation(&other.instance)
    }

    /// Notifies the consumer when its turn comes. Returns `false` if it is gone by then.
    async fn notify(&self, queue: u32) -> bool {
        let is_delivered = Arc::new(AtomicBool::new(false));
        let ready = QueueReady { root: self.root, queue, is_delivered: Arc::clone(&is_delivered) };
        // The callback may have begun even if it was not completed, because the module trapped.
        self.instance.deliver(ContextEvent::QueueReady(ready)).await;
        is_delivered.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use futures_util::future::{BoxFuture, ready};

    use super::*;
    use crate::context::EventReceiver;

    struct DroppedReceiver;

    impl EventReceiver for DroppedReceiver {
        fn deliver(self: Arc<Self>, _generation: u64, _event: ContextEvent) -> BoxFuture<'static, bool> {
            Box::pin(ready(false))
        }
    }

    fn dropped_consumer() -> QueueConsumer {
        QueueConsumer { instance: InstanceHandle::new(Weak::<DroppedReceiver>::new(), 0), root: 1 }
    }

    #[test]
    fn set_requires_the_current_version() {
        let shared = SharedData::default();
        assert_eq!(shared.set(b"k", "1".into(), 0), Ok(()));
        let (_, version) = shared.get(b"k").unwrap();
        assert_eq!(shared.set(b"k", "2".into(), version), Ok(()));
        assert_eq!(shared.set(b"k", "3".into(), version), Err(HostStatus::CasMismatch));
        assert_eq!(shared.get(b"k").unwrap().0, "2");
        assert_eq!(shared.set(b"new", "1".into(), 77), Ok(()));
        let longest = [b'k'; MAX_KEY + 1];
        assert_eq!(shared.set(&longest, Bytes::new(), 0), Err(HostStatus::InternalFailure));
        assert_eq!(shared.set(&longest[1..], Bytes::new(), 0), Ok(()));
    }

    #[test]
    fn shared_data_is_bounded_and_space_is_reclaimed() {
        let shared = SharedData::default();
        let large = Bytes::from(vec![0; MAX_BYTES - 1024]);
        assert_eq!(shared.set(b"k", large.clone(), 0), Ok(()));
        assert_eq!(shared.set(b"l", large.clone(), 0), Err(HostStatus::InternalFailure));
        assert_eq!(shared.set(b"k", Bytes::new(), 0), Ok(()));
        assert_eq!(shared.set(b"l", large, 0), Ok(()));
    }

    #[test]
    fn queues_are_first_in_first_out() {
        let queues = Arc::new(SharedQueues::default());
        let id = queues.register("vm", "q", dropped_consumer()).unwrap();
        assert_eq!(queues.resolve("vm", "q"), Some(id));
        assert_eq!(queues.resolve("other", "q"), None);
        assert_eq!(queues.dequeue(id), Err(HostStatus::Empty));
        queues.enqueue(id, "a".into()).unwrap();
        queues.enqueue(id, "b".into()).unwrap();
        assert_eq!(queues.dequeue(id).unwrap(), "a");
        assert_eq!(queues.dequeue(id + 1), Err(HostStatus::NotFound));
    }

    #[test]
    fn the_queues_of_one_vm_id_are_bounded_together() {
        let queues = Arc::new(SharedQueues::default());
        let register = |vm_id: &str, name: &str| queues.register(vm_id, name, dropped_consumer());
        let ids: Vec<u32> = (0..MAX_QUEUES).map(|name| register("vm", &name.to_string()).unwrap()).collect();
        assert_eq!(register("vm", "more"), Err(HostStatus::InternalFailure));
        assert_eq!(register("other", &"n".repeat(MAX_NAME + 1)), Err(HostStatus::BadArgument));
        let large = Bytes::from(vec![0; MAX_BYTES / 2 - ITEM_OVERHEAD]);
        queues.enqueue(ids[0], large.clone()).unwrap();
        queues.enqueue(ids[1], large.clone()).unwrap();
        assert_eq!(queues.enqueue(ids[2], Bytes::new()), Err(HostStatus::InternalFailure));
        // Other queues have space, and space is reclaimed.
        let other = register("other", "q").unwrap();
        queues.enqueue(other, large).unwrap();
        queues.dequeue(ids[1]).unwrap();
        queues.enqueue(ids[2], Bytes::new()).unwrap();
    }
}
