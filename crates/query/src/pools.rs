//! The pools of the three kinds of programs, as large as the system lets them be.

use sandbox::{Class, Pool, Sandbox};

use crate::environment::{CEnvironment, JavascriptEnvironment};
use crate::start::StartError;

/// Where nothing else is written and memory is no matter.
const INSTANCES: u32 = 256;

/// An environment and a pool for each kind, all with room for so many programs at once.
pub(crate) struct Pools {
    pub(crate) c: CEnvironment,
    pub(crate) javascript: JavascriptEnvironment,
    pub(crate) plain: Sandbox,
    pub(crate) instances: u32,
}

impl Pools {
    /// Reserves so many places of each kind, or as many as there is address space for: half of them, and
    /// half of those.
    ///
    /// # Errors
    /// When there is not even room for one, or an environment does not load.
    pub(crate) fn reserve(instances: u32, memory: usize) -> Result<Self, StartError> {
        let mut instances = instances.max(1);
        loop {
            match Self::all(Pool { instances, memory }) {
                Ok(pools) if instances == 1 || sandbox::has_address_space() => return Ok(pools),
                Err(StartError::Sandbox(error)) if instances > 1 && error.is_refusal() => {}
                Ok(_) => {}
                Err(error) => return Err(error),
            }
            instances /= 2;
        }
    }

    fn all(pool: Pool) -> Result<Self, StartError> {
        Ok(Self {
            c: CEnvironment::load(pool)?,
            javascript: JavascriptEnvironment::load(pool)?,
            plain: Sandbox::new(Class::Plain, pool)?,
            instances: pool.instances,
        })
    }
}

/// How many places there are where the config does not say it: what they keep between programs fits into
/// half of the memory that the process may have.
pub(crate) fn usual_instances(memory: Option<u64>) -> u32 {
    let kept: u64 = [Class::C, Class::Javascript, Class::Plain].map(Class::kept).iter().sum();
    let fitting = memory.map_or(u64::MAX, |memory| memory / 2 / kept);
    u32::try_from(fitting).unwrap_or(INSTANCES).clamp(1, INSTANCES)
}

#[cfg(test)]
mod tests {
    use super::usual_instances;

    #[test]
    fn what_places_keep_fits_into_half_of_the_memory() {
        assert_eq!(usual_instances(None), 256);
        assert_eq!(usual_instances(Some(64 << 30)), 256);
        let few = usual_instances(Some(512 << 20));
        assert!((32..100).contains(&few), "{few}");
        assert_eq!(usual_instances(Some(1 << 20)), 1);
    }
}
