const path = require('node:path');

module.exports = ({ env }) => ({
  connection: {
    client: 'sqlite',
    connection: { filename: path.resolve(env('DATA', '.tmp'), 'data.db') },
    useNullAsDefault: true,
  },
});
