module.exports = { level: 'warn' };
