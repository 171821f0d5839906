//! Tests of creating and opening files.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

fn open_store(path: &Path) -> Result<Store, StoreError> {
    Store::open(path, CommitDurability::Process)
}

#[tokio::test]
async fn a_new_file_and_its_folder_are_accessible_only_to_the_owner() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("of/state/state.db");
    let store = open_store(&path).unwrap();
    store.commit(batch().create("a", "")).await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(path.parent().unwrap()), mode(&path)), (0o700, 0o600));
    for beside in fs::read_dir(path.parent().unwrap()).unwrap() {
        assert_eq!(mode(&beside.unwrap().path()), 0o600);
    }
}

#[test]
fn commits_wait_for_the_disk_only_with_machine_durability() {
    let folder = tempfile::tempdir().unwrap();
    let synchronous = |durability| {
        let connection = file::open(&folder.path().join("state.db"), durability).unwrap();
        connection.pragma_query_value(None, "synchronous", |row| row.get::<_, i64>(0)).unwrap()
    };
    // 2 is FULL, which syncs the log in each commit; 1 is NORMAL, which syncs it before a checkpoint.
    assert_eq!((synchronous(CommitDurability::Process), synchronous(CommitDurability::Machine)), (1, 2));
}

#[test]
fn does_not_change_a_file_of_a_newer_format() {
    let bench = StoreFixture::new();
    bench.raw_connection().pragma_update(None, "user_version", 2).unwrap();
    let error = open_store(&bench.path()).unwrap_err();
    assert_eq!(error.code(), "store-newer");
    assert!(error.to_string().ends_with("(its format is 2, the latest known is 1)"), "{error}");
}

#[test]
fn does_not_change_a_file_of_another_kind() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    fs::write(&text, "orfa: yes\n".repeat(1000)).unwrap();
    assert_eq!(file_fault(open_store(&text)), FileFault::NotAStore);
    let database = folder.path().join("database");
    Connection::open(&database).unwrap().execute_batch("CREATE TABLE logs (id)").unwrap();
    let before = fs::read(&database).unwrap();
    assert_eq!(file_fault(open_store(&database)), FileFault::NotAStore);
    assert_eq!(fs::read(&database).unwrap(), before);
}

#[tokio::test]
async fn completes_a_partially_created_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let _: String = Connection::open(&path)
        .unwrap()
        .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))
        .unwrap();
    assert!(fs::metadata(&path).unwrap().len() > 0);
    open_store(&path).unwrap().commit(batch().create("a", "")).await.unwrap();
}

#[test]
fn reports_a_path_that_cannot_be_a_file() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let error = open_store(&folder.path().join("file/state.db")).unwrap_err();
    assert_eq!(error.code(), "store-io");
    assert!(error.to_string().contains("file/state.db: the file can't be used"), "{error}");
    assert_eq!(file_fault(open_store(folder.path())), FileFault::Io);
}

#[tokio::test]
async fn a_new_file_can_be_opened_concurrently() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let openers: Vec<_> = (0..16)
        .map(|_| {
            let path = path.clone();
            std::thread::spawn(move || open_store(&path).unwrap())
        })
        .collect();
    let stores: Vec<Store> = openers.into_iter().map(|opener| opener.join().unwrap()).collect();
    for (store, number) in stores.iter().zip(1..) {
        let results = store.commit(batch().put("a", "")).await.unwrap();
        assert_eq!(results[0].version, number);
    }
}
