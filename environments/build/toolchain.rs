//! The C toolchain: finds and runs clang, wasm-ld, wasi-libc and the compiler runtime.
//!
//! This file is compiled twice: into the build script of this crate (`build.rs`), which builds the
//! environments, and as `environments::toolchain`, with which `orfa query build` builds queries. A query only
//! needs clang and wasm-ld: it imports everything else.
//!
//! Every error is one line that names the Debian package to install.
use std::collections::hash_map::DefaultHasher;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::thread;
use std::time::SystemTime;

/// The result of a step of the toolchain. Errors are one line for people, followed by the tool's own output.
pub type ToolchainResult<T> = std::result::Result<T, String>;

/// The command that installs missing tools.
pub const INSTALL: &str =
    "apt-get install --no-install-recommends clang-19 lld-19 wasi-libc libclang-rt-19-dev-wasm32";

/// The oldest clang whose WebAssembly output is tested with the environments.
const OLDEST_CLANG: u32 = 16;
const NEWEST_CLANG: u32 = 22;
const PREFERRED_CLANG: u32 = 19;

/// The flags for every C file of an environment or a query: the WebAssembly features that all modules of ORFA
/// may use, and no trace of the machine that built them.
pub const TARGET_FLAGS: &[&str] = &[
    "--target=wasm32-wasi",
    "-mbulk-memory",
    "-mnontrapping-fptoint",
    "-msign-ext",
    "-mno-reference-types",
    "-mno-multivalue",
    "-fno-ident",
    "-fvisibility=hidden",
];

/// A clang that can compile for WebAssembly, and its linker.
#[derive(Clone, Debug)]
pub struct ClangToolchain {
    /// The compiler. It also compiles for the host.
    pub clang: PathBuf,
    linker: PathBuf,
    version: String,
    sysroot: PathBuf,
}

impl ClangToolchain {
    /// Finds clang (`$ORFA_CLANG`, else clang-19, else any version from 16 on) and wasm-ld (`$ORFA_WASM_LD`,
    /// else the one of clang's version). The root of wasi-libc is `$ORFA_WASI_SYSROOT`, else `/usr`.
    pub fn find() -> ToolchainResult<Self> {
        let (clang, major, version) = find_clang()?;
        let linker = find_linker(&clang, major)?;
        let sysroot = std::env::var_os("ORFA_WASI_SYSROOT").unwrap_or_else(|| "/usr".into());
        Ok(Self { clang, linker, version, sysroot: sysroot.into() })
    }

    /// Returns the folder of wasi-libc's headers.
    pub fn libc_headers(&self) -> ToolchainResult<PathBuf> {
        self.libc_part("include", "string.h")
    }

    /// Returns the folder of wasi-libc's archives and of `crt1-reactor.o`.
    pub fn libc_archives(&self) -> ToolchainResult<PathBuf> {
        self.libc_part("lib", "libc.a")
    }

    /// Returns the archive of functions that clang calls implicitly, such as 128-bit arithmetic.
    pub fn builtins(&self) -> ToolchainResult<PathBuf> {
        let mut command = Command::new(&self.clang);
        command.args(["--target=wasm32-wasi", "-rtlib=compiler-rt", "-print-libgcc-file-name"]);
        let path = PathBuf::from(String::from_utf8_lossy(&run_tool(&mut command)?.stdout).trim());
        if path.is_file() { Ok(path) } else { Err(missing_tool("the compiler runtime for wasm32", &path)) }
    }

    /// Compiles C files into `out`, in parallel on all cores. Objects that are newer than all their inputs
    /// are reused. Returns the objects in the order of the sources.
    pub fn compile(
        &self,
        sources: &[PathBuf],
        flags: &[OsString],
        out: &Path,
    ) -> ToolchainResult<Vec<PathBuf>> {
        fs::create_dir_all(out).map_err(|error| format!("{}: {error}", out.display()))?;
        let objects: Vec<_> = sources.iter().map(|source| self.object_path(source, flags, out)).collect();
        let jobs = Mutex::new(sources.iter().zip(&objects));
        let next = || jobs.lock().ok().and_then(|mut jobs| jobs.next());
        let worker = || -> ToolchainResult<()> {
            while let Some((source, object)) = next() {
                if !is_fresh(object).unwrap_or(false) {
                    self.compile_file(source, flags, object)?;
                }
            }
            Ok(())
        };
        let cores = thread::available_parallelism().map_or(1, usize::from).min(sources.len());
        thread::scope(|scope| {
            let workers: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().try_for_each(|worker| {
                worker.join().unwrap_or_else(|_| Err("a compiler thread ended unexpectedly".into()))
            })
        })?;
        Ok(objects)
    }

    /// Links objects and archives, given in order among `arguments`, into `output`.
    pub fn link(&self, arguments: &[OsString], output: &Path) -> ToolchainResult<()> {
        let mut command = Command::new(&self.linker);
        command.args(["-m", "wasm32"]).args(arguments).arg("-o").arg(output);
        run_tool(&mut command).map(drop)
    }

    fn libc_part(&self, part: &str, file: &str) -> ToolchainResult<PathBuf> {
        let folder = self.sysroot.join(part).join("wasm32-wasi");
        if folder.join(file).is_file() { Ok(folder) } else { Err(missing_tool("wasi-libc", &folder)) }
    }

    /// Returns the path of a source's object. Its name has a hash of flags and compiler version.
    fn object_path(&self, source: &Path, flags: &[OsString], out: &Path) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        (&self.version, TARGET_FLAGS, flags, source).hash(&mut hasher);
        let stem = source.file_stem().unwrap_or_default().to_string_lossy();
        out.join(format!("{stem}-{:016x}.o", hasher.finish()))
    }

    /// Compiles one C file and returns the compiler's warnings.
    pub fn compile_file(&self, source: &Path, flags: &[OsString], object: &Path) -> ToolchainResult<String> {
        let mut command = Command::new(&self.clang);
        command.args(TARGET_FLAGS).arg("-nostdlibinc");
        if let Ok(headers) = self.libc_headers() {
            command.arg("-isystem").arg(headers);
        }
        command.args(flags).arg("-MD").arg("-MF").arg(object.with_extension("d"));
        let output = run_tool(command.arg("-c").arg(source).arg("-o").arg(object))?;
        Ok(String::from_utf8_lossy(&output.stderr).trim_end().to_owned())
    }
}

/// Whether an object is newer than every file in its make rule.
fn is_fresh(object: &Path) -> std::io::Result<bool> {
    let modified = |path: &Path| -> std::io::Result<SystemTime> { fs::metadata(path)?.modified() };
    let made = modified(object)?;
    let rule = fs::read_to_string(object.with_extension("d"))?;
    let files = rule.split_whitespace().skip(1).filter(|word| *word != "\\");
    Ok(files.map(|file| modified(Path::new(file))).all(|time| time.is_ok_and(|time| time < made)))
}

fn find_clang() -> ToolchainResult<(PathBuf, u32, String)> {
    if let Some(chosen) = std::env::var_os("ORFA_CLANG") {
        let version = clang_version(&chosen)
            .ok_or(format!("ORFA_CLANG={} is not a clang that can be run", chosen.to_string_lossy()))?;
        return Ok((chosen.into(), version.0, version.1));
    }
    let numbered = (OLDEST_CLANG..=NEWEST_CLANG).rev().map(|major| format!("clang-{major}"));
    let names = std::iter::once(format!("clang-{PREFERRED_CLANG}")).chain(numbered);
    let found = names.chain(["clang".to_owned()]).find_map(|name| {
        let (major, version) = clang_version(OsStr::new(&name))?;
        (major >= OLDEST_CLANG).then(|| (PathBuf::from(name), major, version))
    });
    found.ok_or(format!("clang {OLDEST_CLANG} or newer was not found; on Debian: {INSTALL}"))
}

/// Returns the major version and the whole version line of a clang, if the command exists.
fn clang_version(clang: &OsStr) -> Option<(u32, String)> {
    let output = Command::new(clang).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.contains("clang version"))?;
    let number = line.split("clang version ").nth(1)?.split('.').next()?;
    Some((number.parse().ok()?, line.to_owned()))
}

fn find_linker(clang: &Path, major: u32) -> ToolchainResult<PathBuf> {
    if let Some(chosen) = std::env::var_os("ORFA_WASM_LD") {
        return Ok(chosen.into());
    }
    let beside = clang.with_file_name("wasm-ld");
    let names = [PathBuf::from(format!("wasm-ld-{major}")), beside, "wasm-ld".into()];
    let runs = |name: &PathBuf| Command::new(name).arg("--version").output().is_ok();
    names.into_iter().find(runs).ok_or(format!("wasm-ld was not found; on Debian: {INSTALL}"))
}

/// Runs a tool to its end. If it fails, the error contains its standard error.
fn run_tool(command: &mut Command) -> ToolchainResult<Output> {
    let tool = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{tool} can't be run: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    Err(format!("{tool} failed:\n{}", String::from_utf8_lossy(&output.stderr).trim_end()))
}

fn missing_tool(what: &str, place: &Path) -> String {
    format!("{what} was not found at {}; on Debian: {INSTALL}", place.display())
}
