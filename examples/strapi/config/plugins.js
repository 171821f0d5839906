const { secret } = require('../src/secret');

module.exports = () => ({
  'users-permissions': { config: { jwtSecret: secret() } },
  graphql: { config: { shadowCRUD: true, landingPage: false, defaultLimit: 25, maxLimit: 100, depthLimit: 10 } },
});
