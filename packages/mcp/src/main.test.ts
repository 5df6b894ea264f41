/** The command as a host starts it, with a service of the test behind it. */
import assert from 'node:assert/strict';
import { execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Client } from '@modelcontextprotocol/client';
import { Client as FirstClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport as FirstTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { wireRecord } from '../../sdk/src/testing/loopback-server.ts';

const RECORD = wireRecord();
const MAIN = fileURLToPath(new URL('main.ts', import.meta.url));
const PACKAGE = fileURLToPath(new URL('..', import.meta.url));
const MODULES = fileURLToPath(new URL('../../../node_modules', import.meta.url));
const KEY = `cop_live_us_${'k'.repeat(40)}`;
const COMMAND_MS = 60_000;
const LONG_CREATE_MS = 13_000;

let service: Server;
let answer: (request: IncomingMessage, response: ServerResponse) => void;
let directory = '';
before(async () => {
  directory = mkdtempSync(join(tmpdir(), 'coppice-mcp-'));
  service = createServer((request, response) => answer(request, response)).listen(0, '127.0.0.1');
  await once(service, 'listening');
});
after(() => {
  service.closeAllConnections();
  service.close();
  rmSync(directory, { recursive: true, force: true });
});

const address = (): string => `http://127.0.0.1:${(service.address() as AddressInfo).port}`;
const environment = (change: Record<string, string> = {}): Record<string, string> => ({
  PATH: process.env['PATH'] ?? '',
  SANDBOX_API_KEY: KEY,
  SANDBOX_BASE_URL: address(),
  ...change,
});

/** Runs the command to its end, with no input. */
const run = (args: string[], change: Record<string, string> = {}) =>
  spawnSync(process.execPath, [MAIN, ...args], {
    env: environment(change),
    input: '',
    encoding: 'utf8',
    timeout: COMMAND_MS,
  });

const sendJson = (response: ServerResponse, body: unknown): void => {
  response.setHeader('content-type', 'application/json').end(JSON.stringify(body));
};

test('only the protocol is written to standard output, and no key to standard error', async () => {
  answer = (_request, response) => sendJson(response, []);
  const child = spawn(process.execPath, [MAIN], { env: environment() });
  const texts = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr'] as const)
    child[name].setEncoding('utf8').on('data', (text: string) => (texts[name] += text));
  const send = (message: object): void =>
    void child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
  child.stdin.write('this is not a message\n');
  const clientInfo = { name: 'test', version: '1' };
  const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo };
  send({ id: 1, method: 'initialize', params });
  send({ method: 'notifications/initialized' });
  send({ id: 2, method: 'tools/call', params: { name: 'list_sandboxes', arguments: {} } });
  while (texts.stdout.split('\n').length < 3) await once(child.stdout, 'data');
  child.stdin.end();
  const [exitCode] = (await once(child, 'close')) as [number];
  assert.equal(exitCode, 0);
  const messages = texts.stdout.trim().split('\n');
  assert.deepEqual(
    messages.map((line) => (JSON.parse(line) as { id: number }).id),
    [1, 2],
  );
  assert.match(texts.stderr, /^coppice-mcp: version \S+ serves http/mu);
  assert.ok(!texts.stderr.includes(KEY) && !texts.stdout.includes(KEY));
});

for (const mode of ['legacy', 'auto', { pin: '2026-07-28' }] as const)
  test(`a client of mode ${JSON.stringify(mode)} calls a tool, and cancels a call`, async () => {
    const left = Promise.withResolvers<void>();
    answer = (request, response) => {
      if (request.url?.includes('/exec/stream') === true) {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.write('data: {"type":"stdout","data":"YmVndW4="}\n\n');
        response.once('close', () => left.resolve());
      } else sendJson(response, request.url?.startsWith('/v1/runs/') === true ? RECORD : [RECORD]);
    };
    const client = new Client({ name: 'test', version: '1' }, { versionNegotiation: { mode } });
    await client.connect(
      new StdioClientTransport({
        command: process.execPath,
        args: [MAIN],
        env: environment(),
        stderr: 'ignore',
      }),
    );
    const { structuredContent } = await client.callTool({ name: 'list_sandboxes', arguments: {} });
    assert.ok(JSON.stringify(structuredContent).includes(RECORD.id));
    const controller = new AbortController();
    const params = { name: 'exec', arguments: { sandboxId: RECORD.id, command: 'sleep 100' } };
    const begun = Promise.withResolvers<void>();
    const onprogress = () => begun.resolve();
    const running = client.callTool(params, { signal: controller.signal, onprogress });
    const rejected = assert.rejects(running);
    await begun.promise;
    controller.abort(new Error('enough'));
    await rejected;
    // The service kills a command whose client has left.
    await left.promise;
    await client.close();
  });

test('a create that is in progress at the end of a session is waited for, and its sandbox destroyed', async () => {
  const asked = Promise.withResolvers<ServerResponse>();
  const destroyed = Promise.withResolvers<string | undefined>();
  answer = ({ method, url }, response) => {
    if (method === 'POST') return asked.resolve(response);
    destroyed.resolve(`${method} ${url}`);
    sendJson(response, { status: 'destroyed', cpu_ms: 1, mem_peak_bytes: 1, uptime_ms: 1, cost_cents: 0 });
  };
  const child = spawn(process.execPath, [MAIN, '--destroy-on-exit'], { env: environment() });
  let texts = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (texts += text));
  child.stdout.resume();
  const params = { name: 'create_sandbox', arguments: { timeout: 0 } };
  const clientInfo = { name: 'test', version: '1' };
  const hello = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo };
  for (const message of [
    { id: 1, method: 'initialize', params: hello },
    { method: 'notifications/initialized' },
    { id: 2, method: 'tools/call', params },
  ])
    child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
  const created = await asked.promise;
  child.stdin.end();
  // Longer than the process waits for anything else.
  await delay(LONG_CREATE_MS);
  sendJson(created, RECORD);
  assert.equal(await destroyed.promise, `DELETE /v1/runs/${RECORD.id}`);
  assert.deepEqual(await once(child, 'close'), [0, null]);
  assert.match(texts, /creates in progress: 1;/u);
});

test('the first official client calls a tool', async () => {
  answer = (_request, response) => sendJson(response, [RECORD]);
  const client = new FirstClient({ name: 'test', version: '1' });
  await client.connect(
    new FirstTransport({ command: process.execPath, args: [MAIN], env: environment(), stderr: 'ignore' }),
  );
  const { structuredContent } = await client.callTool({ name: 'list_sandboxes', arguments: {} });
  assert.ok(JSON.stringify(structuredContent).includes(RECORD.id));
  await client.close();
});

test('a wrong start says what is missing, and exits with 2', () => {
  for (const [args, change, expected] of [
    [[], { SANDBOX_API_KEY: '' }, /SANDBOX_API_KEY/u],
    [[], { SANDBOX_BASE_URL: 'nonsense' }, /SANDBOX_BASE_URL must be an http/u],
    [['--nonsense'], {}, /--nonsense/u],
    [['--key-file', join(directory, 'none')], {}, /--key-file .*ENOENT/u],
  ] as const) {
    const { status, stdout, stderr } = run([...args], { ...change });
    assert.deepEqual([status, stdout], [2, ''], stderr);
    assert.match(stderr, expected);
  }
});

test('the key comes from a file that only its owner can read', async () => {
  const file = join(directory, 'key');
  writeFileSync(file, `${KEY}\n`, { mode: 0o644 });
  chmodSync(file, 0o644);
  const open = run(['--key-file', file], { SANDBOX_API_KEY: '' });
  assert.equal(open.status, 2);
  assert.match(open.stderr, /chmod 600/u);
  assert.ok(!open.stderr.includes(KEY));
  chmodSync(file, 0o600);
  let sent: string | undefined;
  answer = ({ headers }, response) => {
    sent = headers.authorization;
    sendJson(response, []);
  };
  const args = [MAIN, '--key-file', file];
  const env = environment({ SANDBOX_API_KEY: 'unused' });
  const client = new Client({ name: 'test', version: '1' });
  await client.connect(new StdioClientTransport({ command: process.execPath, args, env, stderr: 'ignore' }));
  await client.callTool({ name: 'list_sandboxes', arguments: {} });
  await client.close();
  assert.equal(sent, `Bearer ${KEY}`);
});

test('it prints its version and its usage', () => {
  const { version } = JSON.parse(readFileSync(join(PACKAGE, 'package.json'), 'utf8')) as { version: string };
  assert.equal(run(['--version']).stdout, `${version}\n`);
  assert.match(run(['--help']).stdout, /^usage: coppice-mcp/u);
});

test('the packed package runs in an empty project', async () => {
  const execute = promisify(execFile);
  const options = { timeout: COMMAND_MS, env: { ...process.env, npm_config_update_notifier: 'false' } };
  await execute(process.execPath, [join(PACKAGE, 'build-package.mjs')], options);
  const packing = ['pack', '--ignore-scripts', '--silent', '--pack-destination', directory];
  await execute('npm', packing, { ...options, cwd: PACKAGE });
  const archive = readdirSync(directory).find((name) => name.endsWith('.tgz')) ?? '';
  const modules = join(directory, 'project', 'node_modules');
  mkdirSync(join(modules, '@coppice'), { recursive: true });
  await execute('tar', ['-xzf', join(directory, archive), '-C', join(modules, '@coppice')], options);
  // The packages of the registry, as npm would install them.
  for (const name of ['@modelcontextprotocol', 'zod']) symlinkSync(join(MODULES, name), join(modules, name));
  const root = join(modules, '@coppice', 'package');
  assert.deepEqual(readdirSync(root).sort(), ['README.md', 'dist', 'package.json']);
  const client = new Client({ name: 'test', version: '1' });
  const args = [join(root, 'dist', 'main.js')];
  await client.connect(
    new StdioClientTransport({ command: process.execPath, args, env: environment(), stderr: 'ignore' }),
  );
  assert.ok((await client.listTools()).tools.length > 9);
  await client.close();
});

test('the description for registries names this package and its version', () => {
  const read = (name: string): Record<string, unknown> =>
    JSON.parse(readFileSync(join(PACKAGE, name), 'utf8')) as Record<string, unknown>;
  const { name, version, mcpName } = read('package.json');
  const description = read('server.json');
  assert.deepEqual([description['name'], description['version']], [mcpName, version]);
  assert.ok(String(description['description']).length <= 100);
  const [entry] = description['packages'] as Record<string, unknown>[];
  assert.deepEqual([entry?.['identifier'], entry?.['version']], [name, version]);
});
