/** The first sandbox of a new installation, through the public API as any user would: it shows that all works. */
import { request } from 'node:http';
import { BASE_IMAGE } from './lib/base-image.ts';

const COMMAND = 'echo "hello from $(uname -sr), $(nproc) vCPU, $(free -m | awk \'/^Mem:/{print $2}\') MiB"';
const TIMEOUT_MS = 180_000;

interface Call {
  method: string;
  path: string;
  body?: unknown;
}

/** Not fetch: its header timeout cannot be set, and preparing the first image may take minutes. */
async function call(
  address: string,
  apiKey: string,
  { method, path, body }: Call,
): Promise<Record<string, unknown>> {
  const answer = Promise.withResolvers<string>();
  const headers = { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' };
  const outgoing = request(new URL(path, address), { method, headers, timeout: TIMEOUT_MS }, (response) => {
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
    outgoing.destroy(new Error(`${method} ${path}: no answer in ${TIMEOUT_MS} ms`)),
  );
  outgoing.end(body === undefined ? undefined : JSON.stringify(body));
  return JSON.parse(await answer.promise) as Record<string, unknown>;
}

export async function showFirstSandbox(
  address: string,
  apiKey: string,
  say: (text: string) => void,
): Promise<void> {
  say(`Preparing ${BASE_IMAGE} and starting a first sandbox from it …`);
  const sandbox = await call(address, apiKey, {
    method: 'POST',
    path: '/v1/runs',
    body: { image: BASE_IMAGE },
  });
  const path = `/v1/runs/${String(sandbox['id'])}`;
  const result = await call(address, apiKey, {
    method: 'POST',
    path: `${path}/exec`,
    body: { command: COMMAND },
  });
  await call(address, apiKey, { method: 'DELETE', path });
  say(`  sandbox ${String(sandbox['id'])} started in ${String(sandbox['create_ms'])} ms and ran:`);
  say(`  $ ${COMMAND}\n  ${String(result['stdout']).trim()}\n`);
  say('Your own first one:\n');
  say(`  curl -s ${address}/v1/runs -H "Authorization: Bearer ${apiKey}" \\`);
  say(`    -H 'Content-Type: application/json' -d '{"image":"${BASE_IMAGE}"}'\n`);
}
