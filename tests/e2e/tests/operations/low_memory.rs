//! A gateway in a cgroup with little memory, as in containers and systemd services.
//!
//! Creating the cgroup requires root and a writable cgroup file system. Otherwise the test prints the reason
//! and is skipped.

use std::io;
use std::path::{Path, PathBuf};

use testkit::{GatewayProcess, http, misbehaving_upstream};
use tokio::process::Command;

use crate::support::{fetch_metrics, metric_value, orfa_binary};

/// The memory limit, in bytes: less than a full instance pool keeps.
const MEMORY: u64 = 256 << 20;

/// A cgroup that is removed on drop, if its processes have ended.
struct CgroupGuard(PathBuf);

impl CgroupGuard {
    /// Creates a cgroup: version 1 where that still controls memory, version 2 otherwise.
    fn new(memory: u64) -> io::Result<Self> {
        let name = format!("orfa-test-{}", std::process::id());
        let of_version_1 = Path::new("/sys/fs/cgroup/memory");
        let (root, file) = match of_version_1.is_dir() {
            true => (of_version_1, "memory.limit_in_bytes"),
            false => (Path::new("/sys/fs/cgroup"), "memory.max"),
        };
        let group = Self(root.join(name));
        std::fs::create_dir(&group.0)?;
        std::fs::write(group.0.join(file), memory.to_string())?;
        Ok(group)
    }

    /// Returns a command whose process joins the cgroup before it becomes the gateway.
    fn command(&self) -> Command {
        let mut command = Command::new("sh");
        let script = r#"echo $$ > "$GROUP/cgroup.procs" && exec "$0" "$@""#;
        command.env("GROUP", &self.0).args(["-c", script]).arg(orfa_binary());
        command
    }
}

impl Drop for CgroupGuard {
    /// After a failed test the cgroup may remain, because the gateway is killed only later.
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shrinks_the_instance_pool_with_little_memory_and_survives_a_burst() {
    const PROGRAM: &str = "export default async (_, { up }) => {
        const held = 'x'.repeat(1 << 20)
        await up.get('/slow', { ms: 20 })
        return held.length
    }";
    let group = match CgroupGuard::new(MEMORY) {
        Ok(group) => group,
        Err(error) => return eprintln!("skipped: no cgroup with a memory limit: {error}"),
    };
    let upstream = misbehaving_upstream::start().await;
    let config = format!(
        "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nshed: {{ automatic: false }}\ndrain: {{ delay: 0s }}\n\
         services: {{ up: {{ url: '{}' }} }}\n\
         routes: [{{ path: /query, query: {{ services: [up], limits: {{ cpu: 2s, timeout: 30s }} }} }}]\n",
        upstream.url()
    );
    let mut gateway = GatewayProcess::start_with_command(group.command(), &config).await;
    let seen = fetch_metrics(&gateway).await;
    let places = metric_value(&seen, "orfa_program_instances_max{class=\"javascript\"}");
    assert!((1..256).contains(&places), "{places} instances");
    let ask = || {
        let url = format!("{}/query", gateway.url);
        async move { http::request("POST", &url, &[("content-type", "text/javascript")], PROGRAM).await }
    };
    let burst: Vec<_> = (0..400).map(|_| tokio::spawn(ask())).collect();
    for asked in burst {
        let answer = asked.await.expect("a client").expect("an answer");
        assert_eq!((answer.status.as_u16(), answer.text().as_str()), (200, "1048576"));
    }
    assert!(gateway.terminate().await.success());
}
