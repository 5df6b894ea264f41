import { existsSync, realpathSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { AGENT_DIRECTORY, GO_ENVIRONMENT } from '../setup/agent.mjs';
import { CAPTURE_DIRECTORY } from '../setup/capture.mjs';
import { listFiles } from '../setup/hash.mjs';
import { JAIL_DIRECTORY } from '../setup/jail.mjs';
import { REPOSITORY } from '../setup/paths.mjs';
import { addCounts, failure, NOTHING, withExitCode } from './counts.mjs';
import { runEndToEnd } from './e2e-suite.mjs';
import { longestFirst } from './file-times.mjs';
import { GoEvents } from './go-events.mjs';
import { runLive } from './live-command.mjs';
import { MINUTE_MS, runNodeTests, stopped } from './node-tests.mjs';
import { findNetworkWrapper } from './private-network.mjs';

/** npm puts its packages' Node.js first in PATH and says here which one it runs in itself: the user's own. */
const USER_NODE = process.env['npm_node_execpath'] ?? process.execPath;
/** Where packages/sdk/tsconfig.test.json puts its output. */
const SDK_TEST_BUILD = join(REPOSITORY, '.cache', 'sdk-test');
/** Run on a second PostgreSQL as well: what leans on its SQL, its catalogue or its errors. */
const DATABASE_TESTS =
  /\/control\/(?:db\/(?!postgres-child)|backup\/(?!backup\.)|(?:accounts|audit|billing)\/|auth\/bootstrap|snapshots\/snapshots\.|sandbox\/(?:lost-commit|idempotency|family)\.|http\/(?:registries|previews)\.)/;
/** Most of them wait some of the time: for servers that start, for timers, for a disk. */
const AT_ONCE = { concurrency: 4, timeoutMs: 5 * MINUTE_MS };
const NOT_OURS = new Set(['node_modules', 'dist', '.git']);

/**
 * @typedef {import('./counts.mjs').Counts} Counts
 * @typedef {import('../setup/setup.mjs').SetupResult} Tools
 * @typedef {{ recordTimes: boolean }} SuiteOptions
 * @typedef {{ name: string, title: string, run: (tools: Tools, options: SuiteOptions) => Promise<Counts> }} Suite
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
    run: async (tools, { recordTimes }) => {
      const files = [
        ...(await findTests('packages', '.test.ts')),
        ...(await findTests('lab', '.test.ts')),
        ...(await findTests('scripts', '.test.mjs')),
        ...(await findTests('packages/cli', '.test.mjs')),
      ];
      return runNodeTests({
        node: tools.node,
        wrapper: await findNetworkWrapper(),
        files: longestFirst(files),
        ordered: AT_ONCE,
        timeoutMs: 20 * MINUTE_MS,
        isRecorded: recordTimes,
        env: { COPPICE_TEST_API_PYTHON: tools.apiTests },
      });
    },
  },
  {
    name: 'postgres',
    title: 'the newest PostgreSQL, shared by DATABASE_URL',
    run: async (tools) =>
      runNodeTests({
        node: tools.node,
        wrapper: await findNetworkWrapper(),
        files: longestFirst(await findDatabaseTests()),
        ordered: AT_ONCE,
        timeoutMs: 10 * MINUTE_MS,
        env: { COPPICE_TEST_DATABASE: 'shared', COPPICE_TEST_POSTGRES_BIN: tools.packagedPostgres },
      }),
  },
  {
    name: 'sdk',
    title: `the client, compiled, under ${USER_NODE}`,
    run: (tools) => runSdkTests(tools.node),
  },
  {
    name: 'e2e',
    title: 'real virtual machines',
    run: async (tools, { recordTimes }) =>
      runEndToEnd({
        node: tools.node,
        files: await findTests('e2e', '.test.ts'),
        env: { COPPICE_TEST_POSTGRES_BIN: tools.packagedPostgres },
        isRecorded: recordTimes,
      }),
  },
];

/** The tests beside the code that lean on SQL. */
async function findDatabaseTests() {
  const files = await findTests('packages/server/src/control', '.test.ts');
  return files.filter((file) => DATABASE_TESTS.test(file));
}

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
 * @param {string} go
 * @param {string} directory of a Go module
 * @returns {Promise<Counts>}
 */
async function runGoTests(go, directory) {
  const timeoutMs = 10 * MINUTE_MS;
  const events = new GoEvents((text) => process.stdout.write(text));
  // -count=1: what they find out of a kernel is no part of what Go remembers a result by.
  const { exitCode, expired } = await runLive(go, ['test', '-json', '-count=1', '-timeout', '8m', './...'], {
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
