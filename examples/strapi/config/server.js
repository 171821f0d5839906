const { secret } = require('../src/secret');

module.exports = ({ env }) => ({
  host: env('HOST', '127.0.0.1'),
  port: env.int('PORT', 1337),
  app: { keys: [secret()] },
  logger: { startup: { enabled: false }, updates: { enabled: false } },
  // Node's default of 5 s would close the connections of clients that wait longer between requests.
  http: { serverOptions: { keepAliveTimeout: 300_000 } },
});
