// Send two events in each mode over Fluent Forward, with the handshake, and wait for their acknowledgements.
const fluent = require('fluent-logger');

const [port, password] = process.argv.slice(2);

const send = (eventMode) =>
  new Promise((resolve, reject) => {
    const logger = fluent.createFluentSender('node', {
      host: '127.0.0.1',
      port: Number(port),
      eventMode,
      requireAckResponse: true,
      ackResponseTimeout: 30000,
      flushInterval: 20,
      internalLogger: { info() {}, error() {} },
      security: { clientHostname: 'client.example', sharedKey: 'shared', username: 'alice', password },
    });
    logger.on('error', reject);
    let left = 2;
    for (let n = 0; n < 2; n++) {
      logger.emit('label', { message: `of fluent ${eventMode} ${n}`, n }, (error) => {
        if (error) reject(error);
        else if (--left === 0) resolve();
      });
    }
  });

Promise.all(['Message', 'PackedForward', 'CompressedPackedForward'].map(send)).then(
  () => process.exit(0),
  (error) => {
    console.log(error.message);
    process.exit(1);
  },
);
