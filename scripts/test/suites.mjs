import { existsSync, realpathSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { GO_ENVIRONMENT, GO_PROGRAMS, goDirectory } from '../setup/go-programs.mjs';
import { listFiles } from '../setup/hash.mjs';
import { REPOSITORY } from '../setup/paths.mjs';
import { PYTHON_CLIENT } from '../setup/test-tools/python-client.mjs';
import { failure, NOTHING, withExitCode } from './results/counts.mjs';
import { GoEvents } from './results/go-events.mjs';
import { PytestLines } from './results/pytest-lines.mjs';
import { runLive } from './jobs/live-command.mjs';
import { planBatches, planMachineJobs } from './jobs/node-jobs.mjs';
import { MINUTE_MS, runNodeTests, stopped } from './jobs/node-tests.mjs';
import { findNetworkWrapper } from './jobs/private-network.mjs';
import { toolsEnvironment, unitEnvironment } from './jobs/tools-environment.mjs';

/** The user's own Node.js: npm puts its packages' Node.js first in PATH, but names the one it runs in itself here. */
const USER_NODE = process.env['npm_node_execpath'] ?? process.execPath;
/** Output directory of packages/sdk/tsconfig.test.json. */
const SDK_TEST_BUILD = join(REPOSITORY, '.cache', 'sdk-test');
/** Tests that also run on a second PostgreSQL: they depend on its catalogue, its errors, its locks or its plans. */
const DATABASE_TESTS =
  /\/control\/(?:db\/(?!postgres\/)|schema\/|backup\/(?!backup\.)|billing\/|snapshots\/snapshots\.|sandbox\/(?:lost-commit|idempotency|family)\.)/;
/** Assumed for jobs that mostly wait for a compiler. */
const COMPILED_SECONDS = 20;
/** Most of them wait for an HTTP server on loopback. */
const PYTHON_SECONDS = 80;
const NOT_OURS = new Set(['node_modules', 'dist', '.git']);

/**
 * @typedef {import('./jobs/run-jobs.mjs').Job} Job
 * @typedef {import('./jobs/run-jobs.mjs').JobContext} JobContext
 * @typedef {import('./jobs/run-jobs.mjs').JobResult} JobResult
 * @typedef {import('../setup/setup.mjs').SetupResult} Tools
 * @typedef {ReadonlyMap<string, number>} Times  seconds of an earlier run, by path in the repository
 * @typedef {(file: string) => boolean} IsLeftOut  by path in the repository
 * @typedef {{ name: string, title: string, plan: (tools: Tools, times: Times, isLeftOut: IsLeftOut) => Promise<Job[]> }} Suite
 */

/** @type {Suite[]} */
export const SUITES = [
  {
    name: 'go',
    title: 'tests of the Go programs',
    plan: async (tools) =>
      GO_PROGRAMS.map(goDirectory).map((directory) => ({
        suite: 'go',
        title: `go: ${relative(REPOSITORY, directory)}`,
        place: 'beside',
        seconds: COMPILED_SECONDS,
        run: (context) => runGoTests(tools, directory, context),
      })),
  },
  {
    name: 'unit',
    title: 'unit tests',
    plan: async (tools, times, isLeftOut) =>
      planBatches({
        suite: 'unit',
        node: tools.node,
        wrapper: await findNetworkWrapper(),
        files: without(isLeftOut, [
          ...(await findTests('packages', '.test.ts')),
          ...(await findTests('lab', '.test.ts')),
          ...(await findTests('scripts', '.test.mjs')),
          ...(await findTests('packages/cli', '.test.mjs')),
        ]),
        times,
        env: unitEnvironment(tools),
      }),
  },
  {
    name: 'postgres',
    title: 'tests that depend on SQL, on the newest PostgreSQL',
    plan: async (tools, times, isLeftOut) =>
      planBatches({
        suite: 'postgres',
        node: tools.node,
        wrapper: await findNetworkWrapper(),
        files: without(isLeftOut, await findDatabaseTests()),
        times,
        env: { COPPICE_TEST_POSTGRES_BIN: tools.packagedPostgres },
      }),
  },
  {
    name: 'sdk',
    title: `the client, compiled, under ${USER_NODE}`,
    plan: async (tools) => [
      {
        suite: 'sdk',
        title: 'sdk',
        place: 'beside',
        seconds: COMPILED_SECONDS,
        run: (context) => runSdkTests(tools.node, context),
      },
    ],
  },
  {
    name: 'python',
    title: 'tests of the Python client',
    plan: async (tools) => [
      {
        suite: 'python',
        title: 'python',
        place: 'beside',
        seconds: PYTHON_SECONDS,
        run: (context) => runPythonTests(tools, context),
      },
    ],
  },
  {
    name: 'e2e',
    title: 'tests on real virtual machines',
    plan: async (tools, times, isLeftOut) =>
      planMachineJobs({
        suite: 'e2e',
        node: tools.node,
        files: without(isLeftOut, await findTests('e2e', '.test.ts')),
        times,
        env: toolsEnvironment(tools),
      }),
  },
];

/**
 * @param {IsLeftOut} isLeftOut
 * @param {string[]} files
 */
function without(isLeftOut, files) {
  return files.filter((file) => !isLeftOut(relative(REPOSITORY, file)));
}

/** Finds the unit tests that depend on SQL. */
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
 * @param {Tools} tools
 * @param {string} directory of a Go module
 * @param {JobContext} context
 * @returns {Promise<JobResult>}
 */
async function runGoTests(tools, directory, { print }) {
  const timeoutMs = 10 * MINUTE_MS;
  const events = new GoEvents((text) => print(text.replace(/\n$/u, '')));
  // -vet=off: the checks run vet. -count=1: results depend on the kernel, which Go's test cache does not consider.
  const { exitCode, expired } = await runLive(
    tools.getGo(),
    ['test', '-json', '-vet=off', '-count=1', '-timeout', '8m', './...'],
    {
      timeoutMs,
      cwd: directory,
      env: { ...GO_ENVIRONMENT, ...unitEnvironment(tools) },
      onLine: (line) => events.accept(line),
    },
  );
  return {
    counts: expired
      ? stopped(events.counts, events.unfinished, timeoutMs)
      : withExitCode(events.counts, exitCode),
  };
}

/**
 * Runs the tests of the Python client that need no service.
 * @param {Tools} tools
 * @param {JobContext} context
 * @returns {Promise<JobResult>}
 */
async function runPythonTests({ pythonClient }, { print }) {
  if (pythonClient === undefined) throw new Error('set-up has not installed the tools of the Python client');
  const timeoutMs = 10 * MINUTE_MS;
  const lines = new PytestLines(print);
  const { exitCode, expired } = await runLive(pythonClient, ['-m', 'pytest', '-v', 'tests'], {
    timeoutMs,
    cwd: PYTHON_CLIENT,
    env: { PYTHONDONTWRITEBYTECODE: '1' },
    onLine: (line) => lines.accept(line),
  });
  return {
    counts: expired ? stopped(lines.counts, [], timeoutMs) : withExitCode(lines.counts, exitCode),
  };
}

/**
 * Runs the tests of the client. The client is published for Node.js 20, which cannot run TypeScript: client and tests
 * are compiled, and run by the Node.js that runs npm itself.
 * @param {string} node
 * @param {JobContext} context
 * @returns {Promise<JobResult>}
 */
async function runSdkTests(node, { print }) {
  if (realpathSync(USER_NODE) === realpathSync(node)) {
    print('skipped: the unit tests have already run them with this Node.js');
    return { counts: NOTHING };
  }
  await rm(SDK_TEST_BUILD, { recursive: true, force: true });
  const project = join(REPOSITORY, 'packages', 'sdk', 'tsconfig.test.json');
  const compiler = join(REPOSITORY, 'node_modules', '.bin', 'tsc');
  const built = await runLive(node, [compiler, '-p', project], { timeoutMs: 4 * MINUTE_MS, onLine: print });
  if (built.exitCode !== 0) return { counts: failure('the client does not compile') };
  const files = (await listFiles(SDK_TEST_BUILD)).filter((file) => file.endsWith('.test.js'));
  return runNodeTests({ node: USER_NODE, files, timeoutMs: 4 * MINUTE_MS, onLine: print });
}
