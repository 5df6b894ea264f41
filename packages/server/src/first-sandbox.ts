/**
 * Runs the first sandbox of a new installation through the public API, as a user would, to show that everything works.
 */
import { request } from 'node:http';
import { buildCurlTarget } from './curl-hint.ts';
import { BASE_IMAGE } from './lib/base-image.ts';
import { connectPinned } from './lib/tls/pinned-socket.ts';
import { serverCertificate } from './lib/tls/tls-pair.ts';
import type { TlsSource } from './lib/tls/tls-source.ts';
import { stretched } from './lib/waiting/deadline.ts';

const COMMAND = 'echo "hello from $(uname -sr), $(nproc) vCPU, $(free -m | awk \'/^Mem:/{print $2}\') MiB"';
const TIMEOUT_MS = 180_000;
const CONNECT_TIMEOUT_MS = 10_000;

export interface FirstSandboxOptions {
  /** URL of the API. */
  address: string;
  apiKey: string;
  /** The key in the printed command: the key itself, or a shell expression that reads it. */
  shownKey: string;
  say: (text: string) => void;
  /** Certificate of the API; undefined for plain HTTP. */
  tls: TlsSource | undefined;
}

interface Call {
  method: string;
  path: string;
  body?: unknown;
}

/** Sends a request. Does not use fetch: its header timeout is fixed, and preparing the first image may take minutes. */
async function call(
  { address, apiKey, tls }: FirstSandboxOptions,
  { method, path, body }: Call,
): Promise<Record<string, unknown>> {
  const answer = Promise.withResolvers<string>();
  const { host, hostname, port } = new URL(address);
  const headers = { host, authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' };
  const socket = tls && (await connectPinned(new URL(address), tls.pair, stretched(CONNECT_TIMEOUT_MS)));
  const options = { method, path, headers, timeout: stretched(TIMEOUT_MS) };
  const target =
    socket === undefined
      ? { ...options, hostname: hostname.replace(/^\[|\]$/gu, ''), port }
      : { ...options, createConnection: () => socket };
  const outgoing = request(target, (response) => {
    let text = '';
    response.setEncoding('utf8');
    response.on('data', (chunk: string) => (text += chunk));
    response.on('end', () => {
      if ((response.statusCode ?? 500) < 300) answer.resolve(text);
      else answer.reject(new Error(`${method} ${path}: ${response.statusCode} ${text}`));
    });
  });
  outgoing.on('error', (error) => answer.reject(error));
  outgoing.on('timeout', () =>
    outgoing.destroy(new Error(`${method} ${path}: no answer in ${options.timeout} ms`)),
  );
  outgoing.end(body === undefined ? undefined : JSON.stringify(body));
  return JSON.parse(await answer.promise) as Record<string, unknown>;
}

export async function showFirstSandbox(options: FirstSandboxOptions): Promise<void> {
  const { say } = options;
  say(`Preparing ${BASE_IMAGE} and starting a first sandbox from it …`);
  const sandbox = await call(options, { method: 'POST', path: '/v1/runs', body: { image: BASE_IMAGE } });
  const path = `/v1/runs/${String(sandbox['id'])}`;
  const result = await call(options, { method: 'POST', path: `${path}/exec`, body: { command: COMMAND } });
  await call(options, { method: 'DELETE', path });
  say(`  sandbox ${String(sandbox['id'])} started in ${String(sandbox['create_ms'])} ms and ran:`);
  say(`  $ ${COMMAND}\n  ${String(result['stdout']).trim()}\n`);
  sayHowToCall(options);
}

function sayHowToCall({ address, shownKey, say, tls }: FirstSandboxOptions): void {
  const served = tls && { certificate: serverCertificate(tls.pair), certPath: tls.certPath };
  const curl = buildCurlTarget(address, served);
  say('Create your own sandbox:\n');
  say(`  curl -s ${curl.options}${curl.address}/v1/runs -H "Authorization: Bearer ${shownKey}" \\`);
  say(`    -H 'Content-Type: application/json' -d '{"image":"${BASE_IMAGE}"}'\n`);
}
