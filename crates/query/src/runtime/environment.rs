//! The environments, loaded once: compiled at build time, linked to the host functions and ready to be
//! instantiated for each request.

use std::collections::HashMap;

use query_abi::{ALLOC, MEMORY};
use sandbox::{ExternType, GuestClass, InstancePre, Linker, Module, ModuleExport, PoolSize, Sandbox};

use super::start_error::RuntimeStartError;
use crate::host;
use crate::host::QueryGuest;

/// The exports of the JavaScript environment that load and run a program.
const LOAD_JAVASCRIPT: &str = "orfa_javascript_load";
const RUN_JAVASCRIPT: &str = "orfa_javascript_run";

/// An environment, loaded and linked in its sandbox.
pub(crate) struct LinkedEnvironment {
    pub(crate) sandbox: Sandbox,
    pub(crate) linker: Linker<QueryGuest>,
    pub(crate) instance: InstancePre<QueryGuest>,
    pub(crate) memory: ModuleExport,
    pub(crate) alloc: ModuleExport,
    module: Module,
}

/// `env:c@1` and the exports that a query module may import from it.
pub(crate) struct CEnvironment {
    pub(crate) base: LinkedEnvironment,
    pub(crate) sandbox: Sandbox,
    exports: HashMap<String, (ModuleExport, ExternType)>,
}

/// `env:javascript@1`.
pub(crate) struct JavascriptEnvironment {
    pub(crate) base: LinkedEnvironment,
    pub(crate) load: ModuleExport,
    pub(crate) run: ModuleExport,
}

impl LinkedEnvironment {
    fn load(
        class: GuestClass,
        pool: PoolSize,
        from: &environments::EnvironmentModule,
    ) -> Result<Self, RuntimeStartError> {
        let sandbox = Sandbox::new(class, pool)?;
        let module = sandbox.load(from.precompiled, from.wasm)?;
        let mut linker = Linker::new(sandbox.engine());
        host::add_host_functions(&mut linker).map_err(RuntimeStartError::link_error(from.name))?;
        let instance = linker.instantiate_pre(&module).map_err(RuntimeStartError::link_error(from.name))?;
        let memory = find_export(&module, from.name, MEMORY)?;
        let alloc = find_export(&module, from.name, ALLOC)?;
        Ok(Self { sandbox, linker, instance, memory, alloc, module })
    }
}

impl CEnvironment {
    pub(crate) fn load(pool: PoolSize) -> Result<Self, RuntimeStartError> {
        let base = LinkedEnvironment::load(GuestClass::C, pool, &environments::C)?;
        let export = |export: sandbox::ExportType<'_>| {
            let index = base.module.get_export_index(export.name())?;
            Some((export.name().to_owned(), (index, export.ty())))
        };
        let exports = base.module.exports().filter_map(export).collect();
        Ok(Self { sandbox: base.sandbox.clone(), exports, base })
    }

    /// Returns the export with this name, and its type.
    pub(crate) fn export(&self, name: &str) -> Option<(ModuleExport, &ExternType)> {
        self.exports.get(name).map(|(index, ty)| (*index, ty))
    }
}

impl JavascriptEnvironment {
    pub(crate) fn load(pool: PoolSize) -> Result<Self, RuntimeStartError> {
        let base = LinkedEnvironment::load(GuestClass::Javascript, pool, &environments::JAVASCRIPT)?;
        let load = find_export(&base.module, environments::JAVASCRIPT.name, LOAD_JAVASCRIPT)?;
        let run = find_export(&base.module, environments::JAVASCRIPT.name, RUN_JAVASCRIPT)?;
        Ok(Self { base, load, run })
    }
}

fn find_export(
    module: &Module,
    environment: &'static str,
    name: &'static str,
) -> Result<ModuleExport, RuntimeStartError> {
    module.get_export_index(name).ok_or(RuntimeStartError::Export { environment, name })
}
