//! A model test: after any sequence of commits, compactions, crashes and reopenings, a store equals a map in
//! memory.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const KEYS: [&str; 5] = ["a", "a/1", "a/10", "a/2", "b"];

/// The expected state of a key: all its values since the last snapshot, and the version of the first one.
#[derive(Clone, Debug)]
struct ModelCell {
    base: u64,
    values: Vec<String>,
}

#[derive(Clone, Debug, Default)]
struct StoreModel {
    cells: BTreeMap<String, ModelCell>,
    floor: u64,
}

/// A write whose version is given as the difference to the correct one.
#[derive(Clone, Debug)]
enum ModelWrite {
    Append(usize, i64, u8),
    Create(usize, u8),
    Replace(usize, i64, u8),
    Put(usize, u8),
    Remove(usize),
    RemoveAll(usize),
    Compact(usize, i64),
}

#[derive(Clone, Debug)]
enum ModelStep {
    /// The operations, and whether the other process executes them.
    Commit(Vec<ModelWrite>, bool),
    /// The process is killed, and the file is opened in the state on disk.
    Crash,
    /// The file is closed and opened.
    Reopen,
    /// A key is read by a caller that has a certain version.
    LoadAfter(usize, i64),
}

impl ModelCell {
    fn version(&self) -> u64 {
        self.base + self.values.len() as u64 - 1
    }

    fn value(&self, version: u64) -> Option<&String> {
        self.values.get(usize::try_from(version.checked_sub(self.base)?).ok()?)
    }
}

impl StoreModel {
    fn version(&self, key: &str) -> u64 {
        self.cells.get(key).map_or(0, ModelCell::version)
    }

    /// Adds an operation to a batch, and applies it to the model if it is valid.
    fn apply(&mut self, batch: WriteBatch, op: &ModelWrite) -> (WriteBatch, Result<(), StoreError>) {
        let (ModelWrite::Append(key, ..)
        | ModelWrite::Create(key, _)
        | ModelWrite::Replace(key, ..)
        | ModelWrite::Put(key, _)
        | ModelWrite::Remove(key)
        | ModelWrite::RemoveAll(key)
        | ModelWrite::Compact(key, _)) = op;
        let key = KEYS[*key];
        let version = self.version(key);
        let near = |by: &i64| version.saturating_add_signed(*by);
        let letter = |letter: &u8| char::from(b'a' + letter % 26).to_string();
        let is_there = version > 0;
        let (batch, is_right) = match op {
            ModelWrite::Append(_, by, change) => {
                let is_right = is_there && *by == 0;
                if let (Some(cell), true) = (self.cells.get_mut(key), is_right) {
                    let last = cell.values.last().unwrap();
                    cell.values.push(format!("{last}{}", letter(change)));
                }
                (batch.append(key, near(by), letter(change)), is_right)
            }
            ModelWrite::Create(_, value) => {
                self.put(key, letter(value), !is_there);
                (batch.create(key, letter(value)), !is_there)
            }
            ModelWrite::Replace(_, by, value) => {
                // The version is 0 if the key does not exist; then the operation is a creation.
                let is_right = near(by) == version;
                self.put(key, letter(value), is_right);
                (batch.replace(key, near(by), letter(value)), is_right)
            }
            ModelWrite::Put(_, value) => {
                self.put(key, letter(value), true);
                (batch.put(key, letter(value)), true)
            }
            ModelWrite::Remove(_) => {
                self.remove(|each| each == key);
                (batch.remove(key), true)
            }
            ModelWrite::RemoveAll(_) => {
                self.remove(|each| each.starts_with(key));
                (batch.remove_all(key), true)
            }
            ModelWrite::Compact(_, by) => {
                let value = self.cells.get(key).and_then(|cell| cell.value(near(by))).cloned();
                let value = value.unwrap_or_else(|| "older than the snapshot".to_owned());
                (batch.compact(key, near(by), value), is_there && near(by) <= version)
            }
        };
        (batch, if is_right { Ok(()) } else { Err(conflict_error(key, version)) })
    }

    fn put(&mut self, key: &str, value: String, is_right: bool) {
        if is_right {
            let version = self.version(key);
            let base = if version == 0 { self.floor + 1 } else { version + 1 };
            self.cells.insert(key.to_owned(), ModelCell { base, values: vec![value] });
        }
    }

    fn remove(&mut self, is_meant: impl Fn(&str) -> bool) {
        let highest =
            self.cells.iter().filter(|(key, _)| is_meant(key)).map(|(_, cell)| cell.version()).max();
        self.floor = self.floor.max(highest.unwrap_or(0));
        self.cells.retain(|key, _| !is_meant(key));
    }
}

async fn commit_and_compare(model: &mut StoreModel, store: &Store, ops: &[ModelWrite]) {
    let mut after = model.clone();
    let (mut all, mut expected) = (batch(), Ok(()));
    for op in ops {
        let (batch, outcome) = after.apply(all, op);
        (all, expected) = (batch, expected.and(outcome));
        if expected.is_err() {
            break;
        }
    }
    assert_eq!(store.commit(all).await.map(drop), expected, "{ops:?}");
    if expected.is_ok() {
        *model = after;
    }
}

async fn check_store(model: &StoreModel, store: &Store) {
    let keys: Vec<_> = model.cells.iter().map(|(key, cell)| (key.clone(), cell.version())).collect();
    assert_eq!(store.keys("").await.unwrap(), keys);
    check_scan(model, store).await;
    for (key, cell) in &model.cells {
        assert_eq!(read_log(store, key).await, expected_log(cell.version(), cell.values.last().unwrap()));
    }
}

/// Compares all logs page by page.
async fn check_scan(model: &StoreModel, store: &Store) {
    let mut cells = model.cells.iter();
    let mut after = String::new();
    loop {
        let page = store.scan("", &*after, 2).await.unwrap();
        assert!(page.len() <= 2);
        let Some((last, _)) = page.last() else { break };
        after.clone_from(last);
        for (key, log) in page {
            let (expected, cell) = cells.next().unwrap();
            assert_eq!((&key, Ok(Some(log))), (expected, store.load(&*key).await), "{cell:?}");
        }
    }
    assert_eq!(cells.next().map(|(key, _)| key), None);
}

async fn check_load_after(model: &StoreModel, store: &Store, key: &str, by: i64) {
    let known = model.version(key).saturating_add_signed(by);
    let log = store.load_after(vec![(key.into(), known)]).await.unwrap().pop().unwrap();
    let Some(cell) = model.cells.get(key) else { return assert_eq!(log, None) };
    let log = log.unwrap();
    let begin = log.snapshot.map(|(_, value)| String::from_utf8(value.to_vec()).unwrap());
    let begin = begin.unwrap_or_else(|| cell.value(known).unwrap().clone());
    let changes = log.changes.iter().map(|(_, change)| String::from_utf8(change.to_vec()).unwrap());
    assert_eq!(changes.fold(begin, |value, change| value + &change), *cell.values.last().unwrap());
    assert_eq!(log.version, cell.version());
}

/// Copies the files on disk, which is the state that a killed process leaves.
fn simulate_crash(bench: &StoreFixture) -> StoreFixture {
    let folder = tempfile::tempdir().unwrap();
    for name in ["state.db", "state.db-wal"] {
        std::fs::copy(bench.folder.path().join(name), folder.path().join(name)).unwrap();
    }
    let store = Store::open(&folder.path().join("state.db"), CommitDurability::Process).unwrap();
    StoreFixture { folder, store }
}

async fn run_steps(steps: Vec<ModelStep>) {
    let mut bench = StoreFixture::new();
    let mut other = bench.reopen();
    let mut model = StoreModel::default();
    for step in steps {
        match step {
            ModelStep::Commit(ops, by_other) => {
                commit_and_compare(&mut model, if by_other { &other } else { &bench.store }, &ops).await;
            }
            ModelStep::Crash => {
                bench = simulate_crash(&bench);
                other = bench.reopen();
            }
            ModelStep::Reopen => {
                bench.store = bench.reopen();
                other = bench.reopen();
            }
            ModelStep::LoadAfter(key, by) => check_load_after(&model, &bench.store, KEYS[key], by).await,
        }
        check_store(&model, &bench.store).await;
    }
    check_store(&model, &other).await;
}

fn any_op() -> impl Strategy<Value = ModelWrite> {
    let key = || 0..KEYS.len();
    let near = || prop_oneof![8 => Just(0_i64), 1 => -3_i64..3];
    prop_oneof![
        8 => (key(), near(), any::<u8>()).prop_map(|(key, by, change)| ModelWrite::Append(key, by, change)),
        3 => (key(), any::<u8>()).prop_map(|(key, value)| ModelWrite::Create(key, value)),
        1 => (key(), near(), any::<u8>()).prop_map(|(key, by, value)| ModelWrite::Replace(key, by, value)),
        2 => (key(), any::<u8>()).prop_map(|(key, value)| ModelWrite::Put(key, value)),
        1 => key().prop_map(ModelWrite::Remove),
        1 => key().prop_map(ModelWrite::RemoveAll),
        3 => (key(), -4_i64..2).prop_map(|(key, by)| ModelWrite::Compact(key, by)),
    ]
}

fn any_step() -> impl Strategy<Value = ModelStep> {
    prop_oneof![
        20 => (prop::collection::vec(any_op(), 0..5), any::<bool>()).prop_map(|(ops, other)| ModelStep::Commit(ops, other)),
        1 => Just(ModelStep::Crash),
        1 => Just(ModelStep::Reopen),
        4 => (0..KEYS.len(), -5_i64..3).prop_map(|(key, by)| ModelStep::LoadAfter(key, by)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_store_behaves_like_a_map_in_memory(steps in prop::collection::vec(any_step(), 1..60)) {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run_steps(steps));
    }
}
