//! Tests of accepting connections.

use std::net::TcpStream;
use std::path::Path;

use super::*;
use crate::{Gateway, config};

const CONFIG: &str = "
listen: 127.0.0.1:0
admin: off
runtime: { instances: 1 }
services: { up: { url: 'http://127.0.0.1:1' } }
routes: [{ path: /, proxy: up }]
";

#[tokio::test]
async fn accepts_one_connection_in_a_poll() {
    const COUNT: usize = 10;
    let config = config::read_text(CONFIG, Path::new("orfa.yaml")).unwrap();
    let gateway = Gateway::build(config).unwrap();
    let listeners = gateway.bind().unwrap();
    let address = listeners.addresses()[0];
    let clients = [(); COUNT].map(|()| TcpStream::connect(address).unwrap());
    let ending = DrainSignal::new();
    let accepted = || Arc::strong_count(&ending.count_connection()) - 2;
    let mut accepting = pin!(accept_all(Arc::clone(&gateway.active_config), listeners, &ending));
    while accepted() < COUNT {
        let before = accepted();
        assert!((&mut accepting).now_or_never().is_none());
        assert!(accepted() - before <= 1, "{} connections in a poll", accepted() - before);
        yield_now().await;
    }
    drop(clients);
}
