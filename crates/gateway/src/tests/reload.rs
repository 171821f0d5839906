//! Tests of reloads while requests are in flight.

use std::path::Path;

use http::StatusCode;

use super::fixture::{GatewayFixture, get};
use crate::{GatewayConfig, LifecycleState, config};

const OLD_CONFIG: &str = "
services: { echo: { url: 'http://UPSTREAM' } }
routes: [{ path: '/old/*', proxy: echo }]
";

fn new_config(fixture: &GatewayFixture, more: &str) -> GatewayConfig {
    let upstream = &fixture.upstream_address;
    let text = format!(
        "listen: 127.0.0.1:0\nservices: {{ echo: {{ url: 'http://{upstream}' }} }}\nroutes: [{{ path: '/new/*', proxy: echo }}]\n{more}"
    );
    config::read_text(&text, Path::new("orfa.yaml")).unwrap()
}

#[tokio::test]
async fn a_request_finishes_with_the_config_that_it_started_with() {
    let fixture = GatewayFixture::new(OLD_CONFIG).await;
    let waiting = tokio::spawn(fixture.send_detached(get("/old/wait")));
    fixture.upstream.wait_until_arrived().await;
    assert_eq!(fixture.gateway.reload(&new_config(&fixture, "")).unwrap(), [""; 0]);
    assert_eq!(fixture.send_request(get("/new/x")).await.status(), StatusCode::OK);
    assert_eq!(fixture.send_request(get("/old/x")).await.status(), StatusCode::NOT_FOUND);
    fixture.upstream.release();
    assert_eq!(waiting.await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn releases_the_old_config_with_its_last_request() {
    let fixture = GatewayFixture::new(OLD_CONFIG).await;
    let waiting = tokio::spawn(fixture.send_detached(get("/old/wait")));
    fixture.upstream.wait_until_arrived().await;
    let old = std::sync::Arc::downgrade(&fixture.gateway.active_config.pipeline());
    fixture.gateway.reload(&new_config(&fixture, "")).unwrap();
    assert!(old.upgrade().is_some());
    fixture.upstream.release();
    waiting.await.unwrap();
    fixture.end().await;
    assert!(old.upgrade().is_none());
}

#[tokio::test]
async fn reports_settings_that_need_a_restart_and_applies_the_rest() {
    let fixture = GatewayFixture::new(OLD_CONFIG).await;
    let config = new_config(&fixture, "admin: 127.0.0.1:1\nruntime: { instances: 3 }");
    let digest = config.source.digest().to_owned();
    assert_eq!(fixture.gateway.reload(&config).unwrap(), ["admin", "runtime"]);
    assert_eq!(fixture.send_request(get("/new/x")).await.status(), StatusCode::OK);
    let state = fixture.gateway.reloads().state();
    assert_eq!((state.digest, state.succeeded, state.failed, state.is_stale), (digest, 1, 0, false));
}

#[tokio::test]
async fn a_config_that_can_not_be_built_changes_nothing() {
    let fixture = GatewayFixture::new(OLD_CONFIG).await;
    let mut config = new_config(&fixture, "");
    // Two equivalent paths, which is only detected when the table is built.
    config.routes.extend(config.routes.clone());
    assert!(fixture.gateway.reload(&config).is_err());
    assert_eq!(fixture.send_request(get("/old/x")).await.status(), StatusCode::OK);
    let state = fixture.gateway.reloads().state();
    assert_eq!((state.succeeded, state.failed, state.is_stale), (0, 1, true));
    fixture.gateway.reload(&new_config(&fixture, "")).unwrap();
    assert!(!fixture.gateway.reloads().state().is_stale);
}

#[tokio::test]
async fn is_ready_from_the_first_connection_until_shutdown_is_requested() {
    let fixture = GatewayFixture::new(OLD_CONFIG).await;
    fixture.send_request(get("/old/x")).await;
    let readiness = fixture.gateway.readiness().clone();
    assert_eq!(readiness.state(), LifecycleState::Ready);
    fixture.end().await;
    assert_eq!(readiness.state(), LifecycleState::Draining);
}
