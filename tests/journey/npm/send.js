// Sends one event with each client: node send.js URL KEY SOURCE
const { LogflareTransport } = require("@loglayer/transport-logflare");
const { HttpClient } = require("logflare-transport-core");
const { LogLayer } = require("loglayer");
const pino = require("pino");

const [url, apiKey, source] = process.argv.slice(2);

function fail(problem) {
  console.error(problem);
  process.exitCode = 1;
}

async function send() {
  const client = new HttpClient({ apiBaseUrl: url, apiKey, sourceToken: source });
  await client.postLogEvents([{ message: "of core", metadata: { n: 1 }, timestamp: Date.now() }]);

  const layer = new LogflareTransport({ url, apiKey, sourceId: source, enableBatchSend: false, onError: fail });
  new LogLayer({ transport: layer }).withMetadata({ n: 2 }).warn("of loglayer");

  const options = { apiBaseUrl: url, apiKey, sourceToken: source, batchSize: 1 };
  pino(pino.transport({ target: "pino-logflare", options })).error({ n: 3 }, "of pino");
}

send().catch(fail);
