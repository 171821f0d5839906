//! Tests of the store's guarantees. `StoreFixture` has a file and can open it a second time, as another
//! process would.

mod commit_notifications;
mod faults;
mod group_commit;
mod leases;
mod model;
mod opening;

use std::path::PathBuf;

use bytes::Bytes;
use rusqlite::Connection;
use tempfile::TempDir;

use super::*;

struct StoreFixture {
    folder: TempDir,
    store: Store,
}

impl StoreFixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("state.db"), CommitDurability::Process).unwrap();
        Self { folder, store }
    }

    /// Creates a store with a changed connection.
    fn with_connection(change: impl FnOnce(&Connection)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.db");
        let connection = file::open(&path, CommitDurability::Process).unwrap();
        change(&connection);
        let store = Store::start(connection, path.into()).unwrap();
        Self { folder, store }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("state.db")
    }

    /// Opens the same file again.
    fn reopen(&self) -> Store {
        Store::open(&self.path(), CommitDurability::Process).unwrap()
    }

    /// Opens the file with plain SQLite.
    fn raw_connection(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }
}

fn batch() -> WriteBatch {
    WriteBatch::new()
}

fn conflict_error(key: &str, version: u64) -> StoreError {
    StoreError::Conflict { key: key.into(), version }
}

/// Returns the fault of a file from an error.
fn file_fault<T: std::fmt::Debug>(result: Result<T, StoreError>) -> FileFault {
    match result.unwrap_err() {
        StoreError::File { fault, .. } => fault,
        error => panic!("not of the file: {error}"),
    }
}

/// Returns the version of a log and its concatenated bytes.
async fn read_log(store: &Store, key: &str) -> Option<(u64, String)> {
    let log = store.load(key).await.unwrap()?;
    let (_, mut value) = log.snapshot.map(|(version, value)| (version, value.to_vec())).unwrap();
    log.changes.iter().for_each(|(_, change)| value.extend_from_slice(change));
    Some((log.version, String::from_utf8(value).unwrap()))
}

fn expected_log(version: u64, value: &str) -> Option<(u64, String)> {
    Some((version, value.to_owned()))
}

#[tokio::test]
async fn a_log_consists_of_its_snapshot_and_the_changes_since() {
    let StoreFixture { store, .. } = &StoreFixture::new();
    store.commit(batch().create("a", "0").append("a", 1, "1").append("a", 2, "2")).await.unwrap();
    let changes = vec![(2, Bytes::from("1")), (3, Bytes::from("2"))];
    let log = KeyLog { version: 3, snapshot: Some((1, "0".into())), changes: changes.clone() };
    assert_eq!(store.load("a").await.unwrap(), Some(log));
    assert_eq!(store.load("b").await.unwrap(), None);
    let known = |version| vec![("a".into(), version)];
    let key_log = KeyLog { version: 3, snapshot: None, changes: changes[1..].to_vec() };
    assert_eq!(store.load_after(known(2)).await.unwrap(), [Some(key_log)]);
    let nothing = KeyLog { version: 3, snapshot: None, changes: vec![] };
    assert_eq!(store.load_after(known(3)).await.unwrap(), [Some(nothing)]);
}

#[tokio::test]
async fn a_compaction_changes_no_version_and_keeps_later_changes() {
    let StoreFixture { store, .. } = &StoreFixture::new();
    store.commit(batch().create("a", "0").append("a", 1, "1").append("a", 2, "2")).await.unwrap();
    let results = store.commit(batch().compact("a", 2, "01")).await.unwrap();
    assert_eq!(results, [WriteResult { version: 3, needs_compaction: false }]);
    let compacted = KeyLog { version: 3, snapshot: Some((2, "01".into())), changes: vec![(3, "2".into())] };
    assert_eq!(store.load("a").await.unwrap(), Some(compacted.clone()));
    store.commit(batch().compact("a", 1, "older")).await.unwrap();
    assert_eq!(store.load("a").await.unwrap(), Some(compacted));
    assert_eq!(store.commit(batch().compact("a", 4, "later")).await, Err(conflict_error("a", 3)));
    assert_eq!(store.commit(batch().compact("b", 1, "")).await, Err(conflict_error("b", 0)));
}

#[tokio::test]
async fn a_compaction_is_due_once_the_changes_outweigh_the_snapshot() {
    let StoreFixture { store, .. } = &StoreFixture::new();
    let (value, change) = (vec![b'v'; 300_000], vec![b'c'; 20_000]);
    store.commit(batch().create("large", value.clone()).create("small", "")).await.unwrap();
    let mut due = Vec::new();
    for version in 1..=20 {
        let write_batch =
            batch().append("large", version, change.clone()).append("small", version, change.clone());
        let results = store.commit(write_batch).await.unwrap();
        let mut is_due = |key: &str, value: Vec<u8>| {
            due.push((key.to_owned(), version));
            batch().compact(key.to_owned(), version + 1, value)
        };
        if results[0].needs_compaction {
            let compaction = is_due("large", value.clone());
            store.commit(compaction).await.unwrap();
        }
        if results[1].needs_compaction {
            let compaction = is_due("small", vec![]);
            store.commit(compaction).await.unwrap();
        }
    }
    let of = |wanted: &str| {
        due.iter().filter(|(key, _)| key == wanted).map(|(_, version)| *version).collect::<Vec<_>>()
    };
    assert_eq!(of("large"), [15]);
    assert_eq!(of("small"), [4, 8, 12, 16, 20]);
}

#[tokio::test]
async fn rejects_creation_of_existing_and_changes_of_missing_keys() {
    let StoreFixture { store, .. } = &StoreFixture::new();
    store.commit(batch().create("a", "0")).await.unwrap();
    assert_eq!(store.commit(batch().create("a", "1")).await, Err(conflict_error("a", 1)));
    assert_eq!(store.commit(batch().append("b", 0, "1")).await, Err(conflict_error("b", 0)));
    assert_eq!(store.commit(batch().replace("b", 3, "1")).await, Err(conflict_error("b", 0)));
    assert_eq!(store.commit(batch().append("a", u64::MAX, "1")).await, Err(conflict_error("a", 1)));
    store.commit(batch().put("b", "put").put("a", "put").replace("a", 2, "replaced")).await.unwrap();
    assert_eq!(
        (read_log(store, "a").await, read_log(store, "b").await),
        (expected_log(3, "replaced"), expected_log(1, "put"))
    );
}

#[tokio::test]
async fn a_recreated_key_never_repeats_a_version() {
    let StoreFixture { store, .. } = &StoreFixture::new();
    store.commit(batch().create("a", "0").append("a", 1, "1").append("a", 2, "2")).await.unwrap();
    let results = store.commit(batch().remove("a").create("a", "new")).await.unwrap();
    assert_eq!(results[1].version, 4);
    assert_eq!(store.commit(batch().append("a", 1, "1")).await, Err(conflict_error("a", 4)));
    let log = KeyLog { version: 4, snapshot: Some((4, "new".into())), changes: vec![] };
    assert_eq!(store.load_after(vec![("a".into(), 3)]).await.unwrap(), [Some(log)]);
}

#[tokio::test]
async fn prefixes_match_by_characters_including_the_last_code_point() {
    let StoreFixture { store, .. } = &StoreFixture::new();
    let names = [
        "a",
        "a/1",
        "a/1\0",
        "a/10",
        "a/\u{10ffff}",
        "a/\u{10ffff}z",
        "b",
        "\u{d7ff}",
        "\u{d7ff}z",
        "\u{e000}",
    ];
    for name in names {
        store.commit(batch().create(name, "")).await.unwrap();
    }
    for prefix in ["", "a", "a/", "a/1", "a/\u{10ffff}", "\u{d7ff}", "\u{10ffff}", "c"] {
        let mut expected: Vec<&str> = names.iter().copied().filter(|name| name.starts_with(prefix)).collect();
        expected.sort_unstable();
        let found: Vec<String> = store.keys(prefix).await.unwrap().into_iter().map(|(key, _)| key).collect();
        assert_eq!(found, expected, "{prefix:?}");
        let behind = store.scan(prefix, prefix, 20).await.unwrap();
        expected.retain(|name| *name != prefix);
        assert_eq!(behind.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), expected, "{prefix:?}");
    }
    store
        .commit(batch().remove("a/1").remove("nobody").remove_all("a/1\0").remove_all("\u{d7ff}"))
        .await
        .unwrap();
    let left: Vec<String> = store.keys("").await.unwrap().into_iter().map(|(key, _)| key).collect();
    assert_eq!(left, ["a", "a/10", "a/\u{10ffff}", "a/\u{10ffff}z", "b", "\u{e000}"]);
    store.commit(batch().remove_all("")).await.unwrap();
    assert_eq!(store.keys("").await.unwrap(), []);
}

#[tokio::test]
async fn sizes_of_logs_are_not_less_than_those_of_their_values() {
    let bench = StoreFixture::new();
    let store = &bench.store;
    store.commit(batch().create("a/1", "12345").create("a/2", "").create("b", "1")).await.unwrap();
    assert_eq!(store.sizes("a/").await.unwrap(), [("a/1".to_owned(), 5), ("a/2".to_owned(), 0)]);
    store.commit(batch().append("a/1", 1, "678")).await.unwrap();
    let appended = store.sizes("a/1").await.unwrap();
    assert!(matches!(&appended[..], [(_, size)] if *size >= 8), "{appended:?}");
    store.commit(batch().compact("a/1", 2, "12345678").remove("a/2")).await.unwrap();
    assert_eq!(store.sizes("a/").await.unwrap(), [("a/1".to_owned(), 8)]);
}

#[tokio::test]
async fn reads_several_logs_atomically() {
    let bench = StoreFixture::new();
    bench.store.commit(batch().create("a", "").create("b", "")).await.unwrap();
    let writer = bench.reopen();
    let writes = tokio::spawn(async move {
        for version in 1..300 {
            writer.commit(batch().append("a", version, "x").append("b", version, "x")).await.unwrap();
        }
    });
    while !writes.is_finished() {
        let logs = bench.store.load_after(vec![("a".into(), 0), ("b".into(), 0)]).await.unwrap();
        let versions: Vec<u64> = logs.into_iter().map(|log| log.unwrap().version).collect();
        assert_eq!(versions[0], versions[1]);
        tokio::task::yield_now().await;
    }
    writes.await.unwrap();
}

#[test]
fn every_error_has_a_unique_code_and_a_hint() {
    let file = |fault| StoreError::File { file: Path::new("state.db").into(), fault, why: "why".into() };
    let name: Arc<str> = "a".into();
    let faults = [
        FileFault::Full,
        FileFault::Locked,
        FileFault::Corrupt,
        FileFault::ReadOnly,
        FileFault::NewerFormat,
        FileFault::NotAStore,
        FileFault::FileReplaced,
        FileFault::Io,
    ];
    let mut errors: Vec<StoreError> = faults.into_iter().map(file).collect();
    errors.extend([
        conflict_error("a", 3),
        StoreError::LeaseTaken { name: name.clone(), holder: "b".into(), left: Duration::from_secs(1) },
        StoreError::LeaseLost { name: name.clone() },
        StoreError::Abandoned,
        StoreError::TooLarge { key: name, size: 1 },
        StoreError::Stopped,
    ]);
    let codes: std::collections::BTreeSet<&str> = errors.iter().map(StoreError::code).collect();
    assert_eq!(codes.len(), errors.len());
    for error in &errors {
        let is_plain = |letter: u8| letter == b'-' || letter.is_ascii_lowercase();
        assert!(error.code().bytes().all(is_plain), "{}", error.code());
        assert!(!error.hint().is_empty() && !error.to_string().is_empty());
    }
    assert_eq!(errors[0].to_string(), "state.db: the disk is full (why)");
    assert_eq!(conflict_error("a", 0).to_string(), "there is no `a`");
}
