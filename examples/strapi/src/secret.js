const { randomBytes } = require('node:crypto');

/** A secret that lasts until the next start, which makes a new token anyway. */
exports.secret = () => randomBytes(32).toString('base64');
