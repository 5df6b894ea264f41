/**
 * The official conformance suite for MCP servers, against `/mcp`. It needs no network. Many of its scenarios and some
 * checks call tools of an example server (`test_…`), or prompts and resources, which this server does not have.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { createServer, request as sendRequest, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { API_KEY, startHarness, type ControlHarness } from '../testing/control-harness.ts';

const SUITE = fileURLToPath(import.meta.resolve('@modelcontextprotocol/conformance/dist/index.js'));
const TIMEOUT_MS = 60_000;

interface Scenario {
  name: string;
  version: '2025-11-25' | '2026-07-28';
  /** Checks that need something of the example server. */
  notTestable?: readonly string[];
}

const SCENARIOS: readonly Scenario[] = [
  ...(['2025-11-25', '2026-07-28'] as const).flatMap((version) => [
    { name: 'tools-list', version },
    { name: 'server-sse-multiple-streams', version },
    { name: 'dns-rebinding-protection', version },
  ]),
  { name: 'server-initialize', version: '2025-11-25' },
  { name: 'server-session-lifecycle', version: '2025-11-25' },
  { name: 'ping', version: '2025-11-25' },
  { name: 'http-header-validation', version: '2026-07-28' },
  { name: 'input-required-result-unsupported-methods', version: '2026-07-28' },
  {
    name: 'caching',
    version: '2026-07-28',
    notTestable: [
      'sep-2549-prompts-list-caching-hints',
      'sep-2549-resources-list-caching-hints',
      'sep-2549-resources-templates-list-caching-hints',
    ],
  },
  {
    name: 'server-stateless',
    version: '2026-07-28',
    notTestable: [
      'sep-2575-server-rejects-undeclared-capability',
      'sep-2575-missing-capability-http-400',
      'sep-2575-http-server-no-independent-requests-on-stream',
      'sep-2575-server-no-log-without-loglevel',
    ],
  },
];

let harness: ControlHarness;
let withKey: Server;
let url = '';
before(async () => {
  harness = await startHarness();
  // The suite sends no key.
  withKey = createServer((request, response) => {
    const { method, headers, url: path = '' } = request;
    const forwarded = sendRequest(
      `${harness.address}${path}`,
      { method, headers: { ...headers, authorization: `Bearer ${API_KEY}` } },
      (answer) => {
        response.writeHead(answer.statusCode ?? 500, answer.headers);
        answer.pipe(response);
      },
    );
    forwarded.on('error', () => response.destroy());
    response.once('close', () => forwarded.destroy());
    request.pipe(forwarded);
  });
  withKey.listen(0, '127.0.0.1');
  await once(withKey, 'listening');
  url = `http://127.0.0.1:${(withKey.address() as AddressInfo).port}/mcp`;
});
after(async () => {
  withKey.closeAllConnections();
  withKey.close();
  await harness[Symbol.asyncDispose]();
});

interface Check {
  id: string;
  status: 'SUCCESS' | 'FAILURE' | 'WARNING' | 'SKIPPED' | 'INFO';
  errorMessage?: string;
}

/** Runs a scenario and returns its checks. It exits with 1 if one has failed. */
async function run({ name, version }: Scenario): Promise<Check[]> {
  const directory = await mkdtemp(join(tmpdir(), 'coppice-conformance-'));
  try {
    const args = ['server', '--url', url, '--scenario', name, '--spec-version', version, '-o', directory];
    const output = await new Promise<string>((resolve) => {
      const options = { timeout: TIMEOUT_MS, maxBuffer: 8 << 20 };
      execFile(process.execPath, [SUITE, ...args], options, (_error, stdout, stderr) =>
        resolve(stdout + stderr),
      );
    });
    const file = (await readdir(directory, { recursive: true })).find((path) => path.endsWith('checks.json'));
    assert.ok(file !== undefined, `${name} wrote no checks: ${output.slice(-2000)}`);
    return JSON.parse(await readFile(join(directory, file), 'utf8')) as Check[];
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

for (const scenario of SCENARIOS) {
  const { name, version, notTestable = [] } = scenario;
  test(`${name} of ${version}`, async () => {
    const checks = await run(scenario);
    const failed = checks.filter(({ status }) => status === 'FAILURE');
    const text = failed.map(({ id, errorMessage }) => `${id}: ${errorMessage}`).join('\n');
    assert.deepEqual([...new Set(failed.map(({ id }) => id))].sort(), [...notTestable].sort(), text);
    assert.ok(checks.some(({ status }) => status === 'SUCCESS'));
  });
}
