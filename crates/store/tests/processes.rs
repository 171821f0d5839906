//! Tests of the store's guarantees while processes are killed and while several have the file open.
//!
//! A child process is this same test binary, started with one of the ignored tests. It prints the
//! acknowledged commits to its output and reads commands from its input, so that no test depends on timing.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "all of it is a test, and a child speaks by its output"
)]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Lines, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use store::{CommitDurability, KeyLog, Store, StoreError, WriteBatch};

/// The number of times that a child is killed.
const KILLS: usize = 40;
/// The environment variable with the path of the file.
const FILE: &str = "STORE_TEST_FILE";
/// The prefix of a child's lines, because the test harness prints lines, too.
const SAYS: &str = "says ";

struct StoreProcess {
    child: Child,
    commands: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl StoreProcess {
    fn start(test: &str, file: &Path) -> Self {
        Self::spawn(Command::new(std::env::current_exe().unwrap()), test, file)
    }

    /// Starts a child whose files cannot grow beyond this number of blocks of 512 bytes.
    fn start_with_little_room(test: &str, file: &Path, blocks: u32) -> Self {
        let mut command = Command::new("sh");
        let limit = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
        command.args(["-c", &limit]).arg(std::env::current_exe().unwrap());
        Self::spawn(command, test, file)
    }

    fn spawn(mut command: Command, test: &str, file: &Path) -> Self {
        command.args(["--exact", test, "--ignored", "--nocapture"]).env(FILE, file);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { commands: child.stdin.take().unwrap(), child, lines }
    }

    /// Returns the child's next line; `None` when it has ended.
    fn next_line(&mut self) -> Option<String> {
        let mut said = self.lines.by_ref().map_while(Result::ok);
        said.find_map(|line| Some(line.split_once(SAYS)?.1.to_owned()))
    }

    fn send_command(&mut self, line: &str) {
        writeln!(self.commands, "{line}").unwrap();
    }

    /// Kills the child, and returns its remaining lines.
    fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        std::iter::from_fn(|| self.next_line()).collect()
    }
}

impl Drop for StoreProcess {
    /// Also ends the child if the test failed.
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Prints a line in a child.
fn print_line(line: &str) {
    println!("{SAYS}{line}");
}

fn open_store(path: &Path) -> Store {
    Store::open(path, CommitDurability::Process).unwrap()
}

fn child_store() -> Store {
    open_store(&PathBuf::from(std::env::var_os(FILE).unwrap()))
}

fn parse_numbers(log: &KeyLog) -> Vec<u64> {
    let (_, snapshot) = log.snapshot.as_ref().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let all = log.changes.iter().fold(text(snapshot), |all, (_, change)| all + &text(change));
    all.split_terminator(' ').map(|number| number.parse().unwrap()).collect()
}

#[tokio::test]
#[ignore = "started as a child process by the test below"]
async fn appends_until_it_is_killed() {
    let store = child_store();
    let log = store.load("list").await.unwrap().unwrap();
    let (mut numbers, mut version) = (parse_numbers(&log), log.version);
    let mut pipeline = store.pipeline();
    loop {
        let mut commits = Vec::new();
        for _ in 0..8 {
            let change = format!("{} ", numbers.len());
            numbers.push(numbers.len() as u64);
            let both = WriteBatch::new().append("list", version, change).append("twin", version, "x");
            commits.push(pipeline.submit(both).await);
            version += 1;
        }
        for commit in commits {
            print_line(&commit.await.unwrap()[0].version.to_string());
        }
        if numbers.len() % 5 == 0 {
            let snapshot: String = numbers.iter().map(|number| format!("{number} ")).collect();
            store.commit(WriteBatch::new().compact("list", version, snapshot)).await.unwrap();
        }
    }
}

#[tokio::test]
async fn acknowledged_commits_exist_exactly_once_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let survivor = open_store(&path);
    survivor
        .commit(WriteBatch::new().create("list", "").create("twin", "").create("mine", ""))
        .await
        .unwrap();
    let mut moment = 1;
    for kill in 1..=KILLS as u64 {
        let mut child = StoreProcess::start("appends_until_it_is_killed", &path);
        // The child is killed after 0 to 255 acknowledgements, at a random point of its work.
        moment = moment * 197 % 257;
        let mut said: Vec<String> = (1..moment).map(|_| child.next_line().unwrap()).collect();
        said.extend(child.kill());
        // The surviving child is not disturbed.
        survivor.commit(WriteBatch::new().append("mine", kill, "x")).await.unwrap();
        let acknowledged = said.iter().map(|version| version.parse().unwrap()).max().unwrap_or(0_u64);
        for store in [&survivor, &open_store(&path)] {
            let logs = store.load_after(vec![("list".into(), 0), ("twin".into(), 0)]).await.unwrap();
            let (list, twin) = (logs[0].as_ref().unwrap(), logs[1].as_ref().unwrap());
            assert!(list.version >= acknowledged, "{} is there of {acknowledged}", list.version);
            assert_eq!(list.version, twin.version);
            assert!(parse_numbers(list).into_iter().eq(0..list.version - 1));
        }
    }
    assert!(survivor.load("list").await.unwrap().unwrap().version > KILLS as u64 * 50);
}

#[tokio::test]
#[ignore = "started as a child process by the test below"]
async fn appends_until_the_disk_refuses() {
    let store = child_store();
    let mut version = store.commit(WriteBatch::new().create("list", "")).await.unwrap()[0].version;
    let error = loop {
        match store.commit(WriteBatch::new().append("list", version, vec![b'x'; 5_000])).await {
            Ok(results) => version = results[0].version,
            Err(error) => break error,
        }
    };
    let log = store.load("list").await.unwrap().unwrap();
    print_line(&format!("{} {version} {}", error.code(), log.version));
}

#[tokio::test]
async fn a_failing_disk_loses_no_acknowledged_commit_and_keeps_no_refused_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let said = StoreProcess::start_with_little_room("appends_until_the_disk_refuses", &path, 4_000)
        .next_line()
        .unwrap();
    let [code, acknowledged, seen] = said.split(' ').collect::<Vec<_>>()[..] else { panic!("{said}") };
    assert_eq!((code, acknowledged), ("store-io", seen));
    let store = open_store(&path);
    let log = store.load("list").await.unwrap().unwrap();
    assert_eq!(log.version.to_string(), acknowledged);
    assert!(log.version > 20);
    store.commit(WriteBatch::new().append("list", log.version, "x")).await.unwrap();
}

#[tokio::test]
#[ignore = "started as a child process by the test below"]
async fn counts_to_three_hundred() {
    let store = child_store();
    let mut changed = store.subscribe_commits();
    let lease = store
        .acquire_lease(std::process::id().to_string(), "child", Duration::from_secs(3600))
        .await
        .unwrap();
    for _ in 0..300 {
        loop {
            let version = store.load("counter").await.unwrap().unwrap().version;
            match store.commit(WriteBatch::new().with_fence(&lease).append("counter", version, "x")).await {
                Ok(results) => break print_line(&results[0].version.to_string()),
                Err(StoreError::Conflict { .. }) => changed.next().await.unwrap(),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[tokio::test]
async fn two_processes_never_write_the_same_version() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let store = open_store(&path);
    store.commit(WriteBatch::new().create("counter", "")).await.unwrap();
    let mut children = [0; 2].map(|_| StoreProcess::start("counts_to_three_hundred", &path));
    let mut versions = BTreeSet::new();
    for child in &mut children {
        while let Some(version) = child.next_line() {
            assert!(versions.insert(version.parse::<u64>().unwrap()), "{version} was given twice");
        }
        assert!(child.child.wait().unwrap().success());
    }
    assert!(versions.into_iter().eq(2..=601));
    assert_eq!(store.load("counter").await.unwrap().unwrap().version, 601);
}

#[tokio::test]
#[ignore = "started as a child process by the test below"]
async fn writes_under_a_lease_on_request() {
    let store = child_store();
    let lease = store.acquire_lease("group", "child", Duration::ZERO).await.unwrap();
    print_line("leased");
    for order in std::io::stdin().lines() {
        let batch = WriteBatch::new().put("cell", order.unwrap()).with_fence(&lease);
        print_line(store.commit(batch).await.map_or_else(|error| error.code(), |_| "kept"));
    }
}

#[tokio::test]
async fn a_process_suspended_beyond_its_lease_cannot_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let store = open_store(&path);
    let mut child = StoreProcess::start("writes_under_a_lease_on_request", &path);
    assert_eq!(child.next_line().unwrap(), "leased");
    child.send_command("first");
    assert_eq!(child.next_line().unwrap(), "kept");
    let lease = store.acquire_lease("group", "parent", Duration::from_secs(3600)).await.unwrap();
    child.send_command("late");
    assert_eq!(child.next_line().unwrap(), "state-lease-lost");
    store.commit(WriteBatch::new().append("cell", 1, " and mine").with_fence(&lease)).await.unwrap();
    child.send_command("later");
    assert_eq!(child.next_line().unwrap(), "state-lease-lost");
    assert_eq!(store.keys("").await.unwrap(), [("cell".to_owned(), 2)]);
}
