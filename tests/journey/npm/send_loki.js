// Sends one event with each of Loki's clients: node send_loki.js URL KEY STREAM
const pino = require("pino");
const winston = require("winston");
const LokiTransport = require("winston-loki");

const [host, key, stream] = process.argv.slice(2);
const labels = { service_name: stream };

function fail(problem) {
  console.error(problem);
  process.exitCode = 1;
}

async function sendWithWinston(json) {
  const transport = new LokiTransport({
    host,
    json,
    labels,
    basicAuth: `any:${key}`,
    batching: false,
    gracefulShutdown: false,
    onConnectionError: fail,
  });
  const kind = json ? "json" : "protobuf";
  winston.createLogger({ transports: [transport] }).warn(`of winston in ${kind}`, { n: json ? 1 : 2 });
  await transport.flush();
}

async function send() {
  await sendWithWinston(true);
  await sendWithWinston(false);
  // It sends what is left when the process ends.
  const options = { host, labels, basicAuth: { username: "any", password: key } };
  pino(pino.transport({ target: "pino-loki", options })).error({ n: 3 }, "of pino");
}

send().catch(fail);
