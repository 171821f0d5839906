const { secret } = require('../src/secret');

// No admin panel, which would have to be built.
module.exports = () => ({
  serveAdminPanel: false,
  auth: { secret: secret() },
  apiToken: { salt: secret(), secrets: { encryptionKey: secret() } },
  transfer: { token: { salt: secret() } },
  secrets: { encryptionKey: secret() },
});
