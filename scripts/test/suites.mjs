import { existsSync, realpathSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { AGENT_DIRECTORY, GO_ENVIRONMENT } from '../setup/agent.mjs';
import { CAPTURE_DIRECTORY } from '../setup/capture.mjs';
import { listFiles } from '../setup/hash.mjs';
import { JAIL_DIRECTORY } from '../setup/jail.mjs';
import { assetsDirectory, REPOSITORY } from '../setup/paths.mjs';
import { addCounts, failure, NOTHING, withExitCode } from './counts.mjs';
import { GoEvents } from './go-events.mjs';
import { runLive } from './live-command.mjs';
import { findNetworkWrapper } from './private-network.mjs';
import { summarizeRecord } from './test-record.mjs';

const MINUTE_MS = 60_000;
const EVENT_REPORTER = join(REPOSITORY, 'scripts', 'test', 'event-reporter.mjs');
/** npm puts its packages' Node.js first in PATH and says here which one it runs in itself: the user's own. */
const USER_NODE = process.env['npm_node_execpath'] ?? process.execPath;
/** Where packages/sdk/tsconfig.test.json puts its output. */
const SDK_TEST_BUILD = join(REPOSITORY, '.cache', 'sdk-test');
const NOT_OURS = new Set(['node_modules', 'dist', '.git']);

/**
 * @typedef {import('./counts.mjs').Counts} Counts
 * @typedef {import('../setup/setup.mjs').SetupResult} Tools
 * @typedef {{ name: string, title: string, run: (tools: Tools) => Promise<Counts> }} Suite
 */

/** @type {Suite[]} */
export const SUITES = [
  {
    name: 'go',
    title: "tests of the guest agent, of QEMU's launcher and of what saves memory",
    run: async (tools) => {
      let counts = NOTHING;
      for (const directory of [AGENT_DIRECTORY, JAIL_DIRECTORY, CAPTURE_DIRECTORY])
        counts = addCounts(counts, await runGoTests(tools.getGo(), directory));
      return counts;
    },
  },
  {
    name: 'unit',
    title: 'tests beside the code',
    run: async (tools) => {
      const files = [
        ...(await findTests('packages', '.test.ts')),
        ...(await findTests('scripts', '.test.mjs')),
        ...(await findTests('packages/cli', '.test.mjs')),
      ];
      return runNodeTests({
        node: tools.node,
        wrapper: await findNetworkWrapper(),
        files,
        args: [`--test-timeout=${5 * MINUTE_MS}`],
        timeoutMs: 15 * MINUTE_MS,
      });
    },
  },
  {
    name: 'sdk',
    title: `the client, compiled, under ${USER_NODE}`,
    run: (tools) => runSdkTests(tools.node),
  },
  {
    name: 'e2e',
    title: 'real virtual machines',
    run: async (tools) => {
      const files = await findTests('e2e', '.test.ts');
      // In one process, one after the other: they share one service, so that images and templates are made once,
      // and timings are among what they test.
      return runNodeTests({
        node: tools.node,
        files,
        args: ['--test-isolation=none', `--test-timeout=${10 * MINUTE_MS}`],
        timeoutMs: 60 * MINUTE_MS,
      });
    },
  },
];

/**
 * @param {string} folder
 * @param {string} suffix
 */
async function findTests(folder, suffix) {
  const directory = join(REPOSITORY, folder);
  if (!existsSync(directory)) return [];
  return (await listFiles(directory, NOT_OURS)).filter((file) => file.endsWith(suffix));
}

/**
 * @param {{ node: string, wrapper?: string[], files: string[], args?: string[], timeoutMs: number }} options
 * @returns {Promise<Counts>}
 */
async function runNodeTests(options) {
  if (options.files.length === 0) return failure('there is not a single test file');
  const directory = await mkdtemp(join(tmpdir(), 'coppice-test-'));
  const recordPath = join(directory, 'record');
  const reporters = [
    '--test-reporter=spec',
    '--test-reporter-destination=stdout',
    `--test-reporter=${EVENT_REPORTER}`,
    `--test-reporter-destination=${recordPath}`,
  ];
  const args = ['--test', ...(options.args ?? []), ...reporters, ...options.files];
  const [command = options.node, ...words] = [...(options.wrapper ?? []), options.node, ...args];
  try {
    const { exitCode, expired } = await runLive(command, words, {
      timeoutMs: options.timeoutMs,
      env: { COPPICE_ASSETS_DIR: assetsDirectory() },
    });
    const text = existsSync(recordPath) ? await readFile(recordPath, 'utf8') : '';
    const { counts, unfinished } = summarizeRecord(text, options.files);
    return expired ? stopped(counts, unfinished, options.timeoutMs) : withExitCode(counts, exitCode);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/**
 * @param {Counts} counts
 * @param {readonly string[]} unfinished
 * @param {number} timeoutMs
 * @returns {Counts} one failure more, that says what had not ended
 */
function stopped(counts, unfinished, timeoutMs) {
  const lines = unfinished.map((line) => `not finished: ${line}`);
  const failures = [`stopped after ${timeoutMs / MINUTE_MS} minutes`, ...lines];
  for (const line of failures) process.stdout.write(`${line}\n`);
  return { ...counts, failed: counts.failed + 1, failures: [...counts.failures, ...failures] };
}

/**
 * @param {string} go
 * @param {string} directory of a Go module
 * @returns {Promise<Counts>}
 */
async function runGoTests(go, directory) {
  const timeoutMs = 10 * MINUTE_MS;
  const events = new GoEvents((text) => process.stdout.write(text));
  const { exitCode, expired } = await runLive(go, ['test', '-json', '-timeout', '8m', './...'], {
    timeoutMs,
    cwd: directory,
    env: GO_ENVIRONMENT,
    onLine: (line) => events.accept(line),
  });
  return expired
    ? stopped(events.counts, events.unfinished, timeoutMs)
    : withExitCode(events.counts, exitCode);
}

/**
 * The client is published for Node.js 20, which cannot run TypeScript: client and tests are compiled, and run by
 * the Node.js that npm itself was started with.
 * @param {string} node
 * @returns {Promise<Counts>}
 */
async function runSdkTests(node) {
  if (realpathSync(USER_NODE) === realpathSync(node)) {
    process.stdout.write('not run again: it is the Node.js that ran the tests beside the code\n');
    return NOTHING;
  }
  await rm(SDK_TEST_BUILD, { recursive: true, force: true });
  const project = join(REPOSITORY, 'packages', 'sdk', 'tsconfig.test.json');
  const compiler = join(REPOSITORY, 'node_modules', '.bin', 'tsc');
  const built = await runLive(node, [compiler, '-p', project], { timeoutMs: 4 * MINUTE_MS });
  if (built.exitCode !== 0) return failure('the client does not compile');
  const files = (await listFiles(SDK_TEST_BUILD)).filter((file) => file.endsWith('.test.js'));
  return runNodeTests({ node: USER_NODE, files, timeoutMs: 4 * MINUTE_MS });
}
