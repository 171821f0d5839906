const { secret } = require('../src/secret');

// No panel: nothing has to be built for it.
module.exports = () => ({
  serveAdminPanel: false,
  auth: { secret: secret() },
  apiToken: { salt: secret(), secrets: { encryptionKey: secret() } },
  transfer: { token: { salt: secret() } },
  secrets: { encryptionKey: secret() },
});
