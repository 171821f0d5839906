//! The service behind the proxies as a separate process: `upstream 127.0.0.1:4001`. With a file of JSON texts
//! by path and query, `upstream 127.0.0.1:4001 answers.json`, it replays another service.

use benches::upstream;
use tokio::net::TcpListener;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let listener = TcpListener::bind(arguments.next().unwrap_or_else(|| "127.0.0.1:0".into())).await?;
    match arguments.next() {
        None => upstream::serve(listener).await?,
        Some(file) => {
            upstream::serve_recorded(listener, &serde_json::from_slice(&std::fs::read(file)?)?).await?
        }
    }
    Ok(())
}
