// Runs at each start: seeds an empty database, and writes a new API token to DATA/token, readable by its owner only.
const fs = require('node:fs');
const path = require('node:path');
const seed = require('./seed');

const TOKEN = 'example';

async function newToken(strapi) {
  const tokens = strapi.service('admin::api-token');
  const old = await tokens.getByName(TOKEN);
  if (old) await tokens.revoke(old.id);
  const { accessKey } = await tokens.create({ name: TOKEN, description: '', type: 'full-access', lifespan: null });
  return accessKey;
}

module.exports = {
  async bootstrap({ strapi }) {
    if ((await strapi.documents('api::category.category').count({})) === 0) await seed(strapi);
    const file = path.resolve(process.env.DATA ?? '.tmp', 'token');
    fs.writeFileSync(file, await newToken(strapi), { mode: 0o600 });
  },
};
