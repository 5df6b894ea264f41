/**
 * The client, as it is published, in every runtime that it supports, against a real control. All runtimes do the same
 * (scenario.ts), so all must report the same. `npm test` installs the runtimes; by hand, `COPPICE_TEST_RUNTIMES` names
 * a directory with them.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { stripTypeScriptTypes } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import {
  API_KEY,
  startHarness,
  type ControlHarness,
} from '../../../server/src/control/testing/control-harness.ts';
import { buildPackage } from '../../build-package.mjs';
import { answerLikeGuests } from '../fixtures/simple-guest.ts';
import { runInBrowser } from './browser.ts';
import type { Place } from './scenario.ts';

const TIMEOUT_MS = 2 * 60_000;
const REPOSITORY = fileURLToPath(new URL('../../../..', import.meta.url));
const ENTRY = `
import * as sdk from './dist/index.js';
import { runScenario } from './scenario.js';
const report = await runScenario(sdk, JSON.parse(globalThis.process.env.SCENARIO_PLACE));
console.log(JSON.stringify(report));
`;

/** The report of every runtime. */
const EXPECTED = {
  exec: 'ran hello\n',
  exitCode: 3,
  stdin: 'äöü',
  stream: 'ran hello\n',
  detached: ['ran hello\n', 0],
  abort: 'Error: stopped',
  timeout: 'TimeoutError',
  text: '€uro\n',
  bytes: [0, 255, 128, 10],
  blob: 5,
  uploadStream: 8,
  downloadStream: 4,
  list: true,
  spawn: ['one\ntwo\n', 0],
  shell: [
    ['ran a\n', 0],
    ['ran b\n', 0],
  ],
  terminal: [3, 0],
  found: [true, null],
  listed: true,
  fork: ['running', 'running'],
  audit: [true, false, true],
  error: [400, 'image_not_pinned'],
  printed: 'as in the browser',
  destroyed: 'destroyed',
};

let directory: string;
let harness: ControlHarness;
before(async () => {
  directory = await mkdtemp(join(tmpdir(), 'coppice-runtimes-'));
  await buildPackage(join(directory, 'dist'));
  const scenario = await readFile(new URL('scenario.ts', import.meta.url), 'utf8');
  await writeFile(join(directory, 'scenario.js'), stripTypeScriptTypes(scenario));
  await writeFile(join(directory, 'entry.js'), ENTRY);
  await writeFile(join(directory, 'package.json'), JSON.stringify({ type: 'module' }));
  // Node.js 20 has no WebSocket: the client loads that of the package ws, as a user of Node.js 20 installs it.
  await mkdir(join(directory, 'node_modules'));
  await symlink(join(REPOSITORY, 'node_modules', 'ws'), join(directory, 'node_modules', 'ws'));
  harness = await startHarness();
  answerLikeGuests(harness.runner);
});
after(async () => {
  await harness?.[Symbol.asyncDispose]();
  await rm(directory, { recursive: true, force: true });
});

function place(sendsStreams: boolean): Place {
  return { baseUrl: harness.address, apiKey: API_KEY, sendsStreams };
}

/** Returns the path of a program that set-up has installed. */
function findProgram(name: string): string {
  const installed = process.env['COPPICE_TEST_RUNTIMES'];
  assert.ok(
    installed !== undefined,
    'COPPICE_TEST_RUNTIMES must name a directory with node20, node22, deno and bun',
  );
  return join(installed, name);
}

async function runWith(program: string, args: string[]): Promise<unknown> {
  const env = {
    PATH: process.env['PATH'],
    HOME: directory,
    DENO_DIR: join(directory, 'deno'),
    DENO_NO_UPDATE_CHECK: '1',
    SCENARIO_PLACE: JSON.stringify(place(true)),
  };
  const options = { cwd: directory, env, timeout: TIMEOUT_MS };
  const { stdout } = await promisify(execFile)(program, [...args, join(directory, 'entry.js')], options);
  return JSON.parse(stdout);
}

const DENO_ARGS = ['run', '--no-prompt', '--no-remote', '--allow-net', '--allow-env', '--allow-read'];
const RUNTIMES: [name: string, program: () => string, args: string[]][] = [
  ['Node.js 20', () => findProgram('node20'), []],
  ['Node.js 22', () => findProgram('node22'), []],
  ['the Node.js of the service', () => process.execPath, []],
  ['Deno', () => findProgram('deno'), DENO_ARGS],
  ['Bun', () => findProgram('bun'), ['run']],
];

for (const [name, program, args] of RUNTIMES) {
  test(`the client works in ${name}`, async () => {
    assert.deepEqual(await runWith(program(), args), EXPECTED);
  });
}

test('the client works in a browser', async () => {
  assert.deepEqual(await runInBrowser(directory, place(false)), EXPECTED);
});
