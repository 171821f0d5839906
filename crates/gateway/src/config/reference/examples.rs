//! The examples of docs/config.md: a section's path and a config. `routes: []` may be left out.

/// What stands beside `orfa.yaml` where the examples are tried.
pub(super) const FILES: &[(&str, &str)] = &[("catalog.key", "secret"), ("catalog.yaml", "openapi: 3.1.0")];

pub(super) const EXAMPLES: &[(&str, &str)] = &[
    (
        "",
        "\
listen: 0.0.0.0:8080
admin: 127.0.0.1:9090
services:
  catalog: { url: http://catalog:8080 }
cors: { origins: [https://shop.example.org] }
routes:
  - { path: /query, query: { services: [catalog] } }
  - { path: /catalog/*, proxy: catalog }
drain: { timeout: 1m }
log: { access: true }
runtime: { instances: 128 }
",
    ),
    (
        "listen",
        "\
listen:
  - 0.0.0.0:8080
  - { address: '[::1]:8081' }
",
    ),
    (
        "services.NAME",
        "\
services:
  catalog:
    url: [http://catalog-0:8080, http://catalog-1:8080]
    openapi: catalog.yaml
    timeout: 2s
    connect_timeout: 500ms
    protocol: auto
    forward: [authorization, accept-language]
    headers: { x-api-key: \"${file:catalog.key}\" }
    paths: [/catalogs, /catalogs/*]
",
    ),
    (
        "services.NAME.tls",
        "\
services:
  catalog:
    url: https://10.0.0.7:8443
    protocol: http2
    tls: { ca: tls/authority.crt, cert: tls/gateway.crt, key: tls/gateway.key, server_name: catalog.internal }
",
    ),
    (
        "cors",
        "\
cors:
  origins: [https://shop.example.org, http://localhost:*]
  credentials: false
  max_age: 2h
  headers: [x-api-key]
  expose: [x-total-count]
",
    ),
    (
        "routes[]",
        "\
services: { catalog: { url: http://catalog:8080 } }
routes:
  - path: /catalog/*
    proxy: catalog
    cors: { origins: ['*'] }
    limits: { body: 1MiB, deadline: 10s }
",
    ),
    (
        "routes[].query",
        "\
services: { catalog: { url: http://catalog:8080 } }
routes:
  - path: /query
    query:
      services: [catalog]
      methods: [GET, POST]
      programs: any
",
    ),
    (
        "routes[].query.limits",
        "\
services: { catalog: { url: http://catalog:8080 } }
routes:
  - path: /query
    query:
      services: [catalog]
      limits:
        { cpu: 20ms, deadline: 2s, memory: 8MiB, calls: 50, parallel: 8, received: 4MiB, output: 1MiB,
          program: 16KiB, body: 256KiB }
",
    ),
    (
        "routes[].proxy",
        "\
services: { catalog: { url: http://catalog:8080 } }
routes:
  - { path: /catalog/*, proxy: { service: catalog, keep_prefix: true } }
",
    ),
    ("drain", "drain: { delay: 10s, timeout: 1m }\n"),
    ("log", "log: { access: false }\n"),
    ("runtime", "runtime: { instances: 128, memory: 64MiB, cache: 128MiB, compile_threads: 2 }\n"),
];
