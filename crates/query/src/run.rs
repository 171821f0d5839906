//! One run of a program: a fresh instance, its input, its end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use query_abi::{ALLOC, CONSTRUCTORS, ENTRY, MEMORY};
use sandbox::{
    Extern, Func, GuestResult, Instance, Metered, Module, ModuleExport, Store, Trap, Trapped, UpdateDeadline,
};
use services::{Budget, Overloaded, Payer};
use tokio::time::timeout_at;

use crate::environment::{CEnvironment, Environment, JavascriptEnvironment};
use crate::guest::{Answer, Console, Guest};
use crate::limits::Limit;
use crate::problem::QueryError;
use crate::program::{CProgram, Externs, Import, Program};
use crate::runtime::Runtime;

/// How a run ended.
pub(crate) struct Ended {
    pub(crate) result: Result<(), QueryError>,
    pub(crate) answer: Answer,
    pub(crate) console: Console,
    pub(crate) cpu: Duration,
}

/// Runs a program to its end, or to the first of its limits.
pub(crate) async fn run(runtime: &Runtime, program: &Program, mut guest: Guest, input: &Bytes) -> Ended {
    let limits = guest.limits;
    let deadline = guest.call.budget.deadline;
    let trace = guest.call.trace.clone();
    let waits = trace.phase("queue");
    let Ok(_place) = timeout_at(deadline.into(), runtime.place(program)).await else {
        return ended(Err(limits.exceeded(Limit::Deadline)), guest, Duration::ZERO);
    };
    match timeout_at(deadline.into(), runtime.line.stand()).await {
        Ok(Ok(place)) => guest.takes(place),
        Ok(Err(sandbox::TooLong)) => return ended(Err(Overloaded.into()), guest, Duration::ZERO),
        Err(_) => return ended(Err(limits.exceeded(Limit::Deadline)), guest, Duration::ZERO),
    }
    drop(waits);
    let _runs = trace.phase("run");
    let _running = runtime.ticker.run();
    let payer = guest.call.payer.clone();
    let mut store = store(runtime.engine(program), guest);
    let entered = enter(runtime, program, &mut store, input);
    let metered = Metered::new(entered, limits.millis(Limit::Cpu), runtime.gate.clone());
    let mut charged = Charged { metered, payer };
    let result = timeout_at(deadline.into(), &mut charged.metered).await;
    let cpu = charged.metered.spent();
    drop(charged);
    let result = match result {
        Ok(Ok(Ok(()))) => Ok(()),
        Ok(Ok(Err(error))) => Err(reason(error)),
        Ok(Err(sandbox::OverCpu)) => Err(limits.exceeded(Limit::Cpu)),
        Err(_) => Err(limits.exceeded(Limit::Deadline)),
    };
    ended(result, store.into_data(), cpu)
}

/// A run that somebody pays for: also one that is dropped because its client went away.
struct Charged<F: Future> {
    metered: Metered<F>,
    payer: Option<Arc<dyn Payer>>,
}

impl<F: Future> Drop for Charged<F> {
    fn drop(&mut self) {
        if let Some(payer) = &self.payer {
            payer.charge(self.metered.spent());
        }
    }
}

/// Checks that a run which went well has an answer.
fn ended(result: Result<(), QueryError>, guest: Guest, cpu: Duration) -> Ended {
    let result = match result {
        Ok(()) if guest.answer.body.is_none() => Err(QueryError::NoAnswer),
        result => result,
    };
    Ended { result, answer: guest.answer, console: guest.console, cpu }
}

/// The budget of upstream calls that a run's limits make.
pub(crate) fn budget(limits: &crate::limits::Limits) -> Budget {
    let calls = u32::try_from(limits.value(Limit::Calls)).unwrap_or(u32::MAX);
    let parallel = limits.size(Limit::Parallel);
    Budget::new(limits.millis(Limit::Deadline), calls, limits.value(Limit::Received), parallel)
}

/// The store of one run. At every tick the guest yields as tokio's own tasks do: it goes on only after the
/// thread has looked for new input, so that a busy guest keeps nobody waiting for more than its tick.
fn store(engine: &sandbox::Engine, guest: Guest) -> Store<Guest> {
    let mut store = Store::new(engine, guest);
    store.limiter(|guest| guest);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|mut store| {
        store.data_mut().ticked();
        Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now())))
    });
    store
}

async fn enter(
    runtime: &Runtime,
    program: &Program,
    store: &mut Store<Guest>,
    input: &Bytes,
) -> GuestResult<()> {
    match program {
        Program::C(program) => enter_c(&runtime.c, program, store, input).await?,
        Program::Javascript(source) => enter_javascript(&runtime.javascript, source, store, input).await?,
        Program::Plain(module) => enter_plain(runtime, module, store, input).await?,
    }
    settle_unsafe(store.data_mut()).await
}

/// Waits for the unsafe calls that the program did not wait for.
async fn settle_unsafe(guest: &mut Guest) -> GuestResult<()> {
    while guest.futures.unsafe_pending() {
        guest.steps_aside();
        let Some(ended) = guest.futures.next().await else { break };
        guest.settle_one(ended).map_err(Trapped::new)?;
    }
    Ok(())
}

async fn enter_c(
    environment: &CEnvironment,
    program: &CProgram,
    store: &mut Store<Guest>,
    input: &Bytes,
) -> GuestResult<()> {
    let base = instantiate(&environment.base, store).await?;
    let imports = imports(&environment.base, base, program, store)?;
    let query = Instance::new_async(&mut *store, &program.module, &imports).await?;
    if let Some(constructors) = &program.constructors {
        let constructors = function(&query, store, constructors, CONSTRUCTORS)?.typed::<(), ()>(&*store)?;
        constructors.call_async(&mut *store, ()).await?;
    }
    let (address, len) = place(&environment.base, base, store, input).await?;
    let entry = function(&query, store, &program.entry, ENTRY)?.typed::<(u32, u32), ()>(&*store)?;
    entry.call_async(&mut *store, (address, len)).await
}

async fn enter_javascript(
    environment: &JavascriptEnvironment,
    source: &str,
    store: &mut Store<Guest>,
    input: &Bytes,
) -> GuestResult<()> {
    let instance = instantiate(&environment.base, store).await?;
    let names = store.data().access.clone();
    let (source, source_len) = place(&environment.base, instance, store, source.as_bytes()).await?;
    let (input, input_len) = place(&environment.base, instance, store, input).await?;
    let (names, names_len) = place(&environment.base, instance, store, names.names.as_bytes()).await?;
    let run = function(&instance, store, &environment.run, "orfa_javascript")?;
    let run = run.typed::<(u32, u32, u32, u32, u32, u32), ()>(&*store)?;
    run.call_async(&mut *store, (source, source_len, input, input_len, names, names_len)).await
}

async fn enter_plain(
    runtime: &Runtime,
    module: &Module,
    store: &mut Store<Guest>,
    input: &Bytes,
) -> GuestResult<()> {
    let instance = runtime.plain.1.instantiate_async(&mut *store, module).await?;
    store.data_mut().memory = instance.get_memory(&mut *store, MEMORY);
    for constructors in ["_initialize", CONSTRUCTORS] {
        if let Ok(constructors) = instance.get_typed_func::<(), ()>(&mut *store, constructors) {
            constructors.call_async(&mut *store, ()).await?;
        }
    }
    let (address, len) = place_plain(instance, store, input).await?;
    let entry = instance.get_typed_func::<(u32, u32), ()>(&mut *store, ENTRY)?;
    entry.call_async(&mut *store, (address, len)).await
}

/// A fresh instance of an environment, its memory known to the host functions.
async fn instantiate(environment: &Environment, store: &mut Store<Guest>) -> GuestResult<Instance> {
    let instance = environment.instance.instantiate_async(&mut *store).await?;
    let memory = instance.get_module_export(&mut *store, &environment.memory);
    store.data_mut().memory = memory.and_then(Extern::into_memory);
    Ok(instance)
}

fn imports(
    base: &Environment,
    instance: Instance,
    program: &CProgram,
    store: &mut Store<Guest>,
) -> GuestResult<Externs> {
    let find = |import: &Import| match import {
        Import::Environment(export) => instance.get_module_export(&mut *store, export),
        Import::Host(name) => base.linker.get(&mut *store, query_abi::HOST_MODULE, name).ok(),
    };
    let found: Option<Externs> = program.imports.iter().map(find).collect();
    found.ok_or_else(|| gateway("an import of the program is gone"))
}

fn function(
    instance: &Instance,
    store: &mut Store<Guest>,
    export: &ModuleExport,
    name: &str,
) -> GuestResult<Func> {
    let found = instance.get_module_export(&mut *store, export).and_then(Extern::into_func);
    found.ok_or_else(|| gateway(&format!("`{name}` is gone")))
}

/// Copies bytes into memory that the environment allocates.
async fn place(
    environment: &Environment,
    instance: Instance,
    store: &mut Store<Guest>,
    bytes: &[u8],
) -> GuestResult<(u32, u32)> {
    let alloc = function(&instance, store, &environment.alloc, ALLOC)?;
    place_with(alloc, store, bytes).await
}

async fn place_with(alloc: Func, store: &mut Store<Guest>, bytes: &[u8]) -> GuestResult<(u32, u32)> {
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    if len == 0 {
        return Ok((0, 0));
    }
    let alloc = alloc.typed::<u32, u32>(&*store)?;
    let address = alloc.call_async(&mut *store, len).await?;
    write(store, address, bytes)?;
    Ok((address, len))
}

/// A plain module allocates its input itself if it exports `orfa_alloc`; otherwise its memory grows.
async fn place_plain(instance: Instance, store: &mut Store<Guest>, bytes: &[u8]) -> GuestResult<(u32, u32)> {
    if let Some(alloc) = instance.get_func(&mut *store, ALLOC) {
        return place_with(alloc, store, bytes).await;
    }
    let memory = store.data().memory.ok_or_else(|| gateway("the module has no memory"))?;
    let pages = bytes.len().div_ceil(64 << 10) as u64;
    let over = |guest: &Guest| Trapped::new(guest.limits.exceeded(Limit::Memory));
    let grown = memory.grow_async(&mut *store, pages).await;
    let at = grown.map_err(|_| over(store.data()))? << 16;
    let address = u32::try_from(at).map_err(|_| over(store.data()))?;
    write(store, address, bytes)?;
    Ok((address, bytes.len() as u32))
}

fn write(store: &mut Store<Guest>, address: u32, bytes: &[u8]) -> GuestResult<()> {
    let memory = store.data().memory.ok_or_else(|| gateway("the module has no memory"))?;
    let over = store.data().limits.exceeded(Limit::Memory);
    let range = address as usize..(address as usize).saturating_add(bytes.len());
    let place = memory.data_mut(&mut *store).get_mut(range).filter(|_| address != 0);
    place.ok_or_else(|| Trapped::new(over))?.copy_from_slice(bytes);
    Ok(())
}

fn gateway(what: &str) -> Trapped {
    Trapped::new(QueryError::Gateway(what.to_owned()))
}

/// What an error out of the sandbox means.
fn reason(error: Trapped) -> QueryError {
    if error.is::<QueryError>() {
        return error.downcast().unwrap_or_else(|error| QueryError::Gateway(format!("{error:#}")));
    }
    match error.downcast_ref::<Trap>() {
        Some(trap) => QueryError::Trapped(trap.to_string()),
        None => QueryError::Gateway(format!("{error:#}")),
    }
}
