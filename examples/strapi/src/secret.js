const { randomBytes } = require('node:crypto');

/** Returns a secret that is valid until the next start, which creates a new token anyway. */
exports.secret = () => randomBytes(32).toString('base64');
