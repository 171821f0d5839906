//! The service behind the proxies as a process of its own: `upstream 127.0.0.1:4001`.

use tokio::net::TcpListener;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".into());
    Ok(benches::upstream::serve(TcpListener::bind(address).await?).await?)
}
