//! The examples of docs/config.md, each with the path of its section. `routes: []` may be left out.

/// The files that the examples refer to, with their content.
pub(super) const FILES: &[(&str, &str)] = &[
    ("catalog.key", "secret"),
    ("catalog.yaml", "openapi: 3.1.0"),
    ("shop.key", "a-long-and-random-key-of-the-shop"),
    ("tokens.secret", "at-least-32-random-bytes-that-issuer-and-gateway-share"),
];

pub(super) const EXAMPLES: &[(&str, &str)] = &[
    (
        "",
        "\
listen: 0.0.0.0:8080
trusted_proxies: [10.0.0.0/8]
client_ip_header: x-forwarded-for
proxy_headers: [x-forwarded-prefix]
admin: 127.0.0.1:9090
takeover: /run/orfa/takeover.sock
services:
  catalog: { url: http://catalog:8080 }
auth: { jwt: { issuer: https://login.example.org, audience: shop } }
callers:
  shop: { key: \"${file:shop.key}\" }
rights:
  anonymous: { routes: [/catalog/*], rate: { requests: 10/s } }
  others: {}
cors: { origins: [https://shop.example.org] }
programs: { blocked: [] }
shed: { delay: 50ms }
connections: { per_address: 500 }
routes:
  - { path: /query, query: { services: [catalog] } }
  - { path: /catalog/*, proxy: catalog }
  - { path: /shop/*, script: shop.sjs }
  - { path: '/buyers/{id}', aggregate: buyers.yaml }
  - { path: /graphql, graphql: { services: [catalog] } }
compress: true
drain: { timeout: 1m }
log: { access: true }
traces: { otlp: http://collector:4318 }
scripts: { durability: machine }
runtime: { instances: 128 }
",
    ),
    (
        "admin",
        "\
admin: { address: 0.0.0.0:9090, hosts: [orfa-admin.shop.svc.cluster.local] }
",
    ),
    (
        "listen",
        "\
listen:
  - 0.0.0.0:8080
  - address: '[::]:8443'
    tls:
      certificates:
        - { cert: tls/shop.crt, key: tls/shop.key }
        - { cert: tls/api.crt, key: tls/api.key }
      client: { ca: tls/clients.crt, required: true }
    hosts: [shop.example.org, '*.shop.example.org', 'api.example.org:8443']
",
    ),
    (
        "traces",
        "\
traces:
  otlp: https://collector.example.org
  sample: 0.01
  service_name: shop-gateway
  headers: { authorization: \"${file:catalog.key}\" }
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
    first_byte_timeout: 800ms
    idle_timeout: 30s
    upgrade_idle_timeout: 10m
    upgrades: [websocket]
    dns_refresh_rate: 10s
    retries: { attempts: 1 }
    health: { path: /healthz }
    forward: [authorization, accept-language]
    headers: { x-api-key: \"${file:catalog.key}\" }
    paths: [/catalogs, /catalogs/*]
",
    ),
    (
        "services.NAME.graphql",
        "\
services:
  agents: { url: http://agents:8080, graphql: { path: /api/graphql, schema: agents.graphql, federated: false } }
  reviews: { url: http://reviews:8080, graphql: {} }
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
        "services.NAME.retries",
        "services: { catalog: { url: http://catalog:8080, retries: { attempts: 3, budget: 10% } } }\n",
    ),
    (
        "services.NAME.health",
        "\
services:
  catalog:
    url: http://catalog:8080
    health: { path: /healthz, interval: 10s, timeout: 500ms, status: 200-204, healthy_threshold: 1,
              unhealthy_threshold: 2 }
",
    ),
    (
        "programs",
        "\
programs:
  blocked: [b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9]
",
    ),
    (
        "trust.NAME",
        "\
trust:
  shop:
    public_key: MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEaxfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpZP40Li/hp/m47n60p8D54WK84zV2sxXs7LtkBoN79R9Q==
    expires: 2027-06-30
    services: [catalog]
    methods: [GET]
    modes: [code]
    limits: { cpu: 20ms, calls: 50 }
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
    ("compress", "compress: { min: 512, codings: [br, gzip] }\n"),
    (
        "auth",
        "\
auth:
  keys: { header: x-api-key }
  jwt: { issuer: https://login.example.org, audience: shop }
",
    ),
    ("auth.keys", "auth: { keys: { header: authorization } }\n"),
    (
        "auth.jwt",
        "\
auth:
  jwt:
    issuer: https://login.example.org
    audience: [shop, warehouse]
    jwks: https://login.example.org/keys
    algorithms: [RS256, ES256, EdDSA]
    leeway: 30s
    caller: email
    groups: /realm_access/roles
",
    ),
    ("auth.jwt", "auth: { jwt: { issuer: billing, audience: shop, secret: \"${file:tokens.secret}\" } }\n"),
    (
        "callers.NAME",
        "\
auth: { jwt: { issuer: https://login.example.org, audience: shop } }
callers:
  shop: { key: \"${file:shop.key}\", groups: [partners] }
  robot:
    key: [\"sha256:5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8\"]
  warehouse: { certificate: 'dns:warehouse.example.org' }
  admin: { subject: auth0|42 }
",
    ),
    (
        "rights.NAME",
        "\
auth: { jwt: { issuer: https://login.example.org, audience: shop } }
services:
  catalog: { url: http://catalog:8080 }
  order: { url: http://order:8080 }
routes:
  - { path: /query, query: { services: [catalog, order] } }
  - { path: /catalog/*, proxy: catalog }
rights:
  anonymous: { routes: [/catalog/*], rate: { requests: 10/s } }
  partners:
    services: [catalog]
    methods: [GET]
    limits: { cpu: 20ms, calls: 50 }
    rate: { requests: 100/s, burst: 200, cpu: 500ms/s, max_in_flight: 20 }
  others: { rate: { requests: 50/s } }
",
    ),
    (
        "rights.NAME.limits",
        "\
rights:
  anonymous:
    limits:
      { cpu: 20ms, timeout: 1s, memory: 8MiB, calls: 50, concurrency: 8, upstream_bytes: 4MiB,
        response_body: 1MiB }
",
    ),
    (
        "rights.NAME.rate",
        "rights: { anonymous: { rate: { requests: 600/m, burst: 20, cpu: 100ms/s, max_in_flight: 5 } } }\n",
    ),
    (
        "connections",
        "\
connections:
  max: 10000
  per_address: 500
  new_per_address: 200/s
  handshakes: 1000
  handshakes_per_address: 50
  requests_per_address: 1000
  request_bodies: 256MiB
  request_bodies_per_address: 32MiB
  received: 512MiB
  received_per_address: 64MiB
  unsent: 256MiB
  unsent_per_address: 32MiB
  unsent_per_connection: 16MiB
",
    ),
    ("shed", "shed: { automatic: true, delay: 50ms, max_in_flight: 20000 }\n"),
    (
        "routes[]",
        "\
services: { catalog: { url: http://catalog:8080 } }
routes:
  - path: /catalog/*
    proxy: catalog
    auth: optional
    cors: { origins: ['*'] }
    compress: true
    dedup: false
    filters: [{ wasm: fault-injection.wasm }]
    limits: { request_body: 1MiB, min_request_body_rate: 1kB, timeout: 10s }
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
      programs: signed
      stored: [./queries/*, ./queries/2026/*]
      modes: [code, instance]
",
    ),
    (
        "routes[].query.recordings",
        "\
services: { catalog: { url: http://catalog:8080 } }
callers:
  tester: { key: \"${file:shop.key}\" }
trust:
  app:
    public_key: MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEaxfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpZP40Li/hp/m47n60p8D54WK84zV2sxXs7LtkBoN79R9Q==
routes:
  - path: /query
    query: { services: [catalog], recordings: { callers: [tester], keys: [app], size: 1MiB } }
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
        { cpu: 20ms, timeout: 2s, memory: 8MiB, calls: 50, concurrency: 8, upstream_bytes: 4MiB,
          response_body: 1MiB, program_bytes: 16KiB, request_body: 256KiB }
",
    ),
    (
        "routes[].script",
        "\
services: { catalog: { url: http://catalog:8080 } }
routes:
  - path: /shop/*
    script:
      file: shop.sjs
      service: shop
      hosts: [\"pages.internal:8080\", \"*.example.org\"]
      strict_paths: true
      show_versions: true
",
    ),
    (
        "routes[].script.limits",
        "\
routes:
  - path: /shop/*
    script:
      file: shop.sjs
      limits: { cpu: 500ms, timeout: 10s, calls: 100, concurrency: 16, upstream_bytes: 4MiB,
                request_body: 256KiB }
",
    ),
    (
        "routes[].script.workers",
        "\
routes:
  - { path: /shop/*, script: { file: shop.sjs, workers: { min: 2, max: 8 } } }
",
    ),
    (
        "routes[].script.resources",
        "\
routes:
  - { path: /shop/*, script: { file: shop.sjs, resources: { max: 10000, ttl: 1h } } }
",
    ),
    (
        "routes[].script.state",
        "\
routes:
  - { path: /shop/*, script: { file: shop.sjs, state: { size: 64MiB } } }
",
    ),
    (
        "routes[].aggregate",
        "\
routes:
  - { path: /buyers, aggregate: { file: buyers.yaml } }
",
    ),
    (
        "routes[].aggregate.limits",
        "\
routes:
  - path: /buyers
    aggregate:
      file: buyers.yaml
      limits: { calls: 100, concurrency: 8, fan_out: 50, upstream_bytes: 16MiB, timeout: 5s,
                request_body: 64KiB, response_body: 32MiB, memory: 64MiB }
",
    ),
    (
        "routes[].graphql",
        "\
services:
  catalog: { url: http://catalog:8080, openapi: catalog.yaml }
  reviews: { url: http://reviews:8080, graphql: {} }
callers:
  shop: { key: \"${file:shop.key}\" }
routes:
  - path: /graphql
    graphql:
      services: [catalog, reviews]
      links: links.yaml
      mutations: true
      introspection: { callers: [shop] }
      graphiql: false
      apq: false
      documents: { files: ./documents/*.graphql, only: true }
      coalesce: { calls: true, operations: true }
  - { path: /federated, graphql: { supergraph: supergraph.graphql, introspection: \"off\" } }
",
    ),
    (
        "routes[].graphql.limits",
        "\
services: { catalog: { url: http://catalog:8080, openapi: catalog.yaml } }
routes:
  - path: /graphql
    graphql:
      services: [catalog]
      limits:
        { depth: 12, selections: 500, aliases: 20, tokens: 2000, root_fields: 10, cost: 5000, calls: 100,
          concurrency: 8, upstream_bytes: 16MiB, timeout: 5s, request_body: 64KiB, response_body: 1MiB }
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
    (
        "routes[].filters[]",
        "\
services: { catalog: { url: http://catalog:8080 }, authority: { url: http://authority:8080 } }
routes:
  - path: /catalog/*
    proxy: catalog
    filters:
      - wasm: forward-auth.wasm
        name: auth
        config: { uri: http://authority/check }
        vm_config: { region: eu }
        root_id: auth
        vm_id: auth
        priority: 10
        services: [authority]
        dialect: strict
      - { wasm: fault-injection.wasm, config: { http_status: 503, percentage: 10 }, on_trap: open, on_refusal: open }
      - { wasm: forward-auth-of-apisix.wasm, hosts: [\"auth.internal:8080\", \"*.example.org\"] }
",
    ),
    (
        "routes[].filters[].limits",
        "\
services: { catalog: { url: http://catalog:8080 } }
routes:
  - path: /catalog/*
    proxy: catalog
    filters:
      - wasm: fault-injection.wasm
        limits: { cpu: 2ms, startup_cpu: 1s, memory: 32MiB, calls: 4, buffer: 256KiB }
",
    ),
    (
        "scripts",
        "\
scripts:
  state_dir: /var/lib/orfa/state
  durability: machine
  engine: [node, --max-semi-space-size=32]
  memory: 128MiB
  workers: 16
  internal_calls: 20000
",
    ),
    ("drain", "drain: { delay: 10s, timeout: 1m }\n"),
    ("log", "log: { access: false }\n"),
    (
        "runtime",
        "\
runtime:
  instances: 128
  memory: 64MiB
  cache: 128MiB
  cache_dir: /var/cache/orfa
  cache_dir_size: 512MiB
  secret: \"${file:tokens.secret}\"
  compile_threads: 2
  compile_time: 1s
",
    ),
];
