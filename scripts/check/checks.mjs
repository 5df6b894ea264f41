import { delimiter, dirname, join } from 'node:path';
import { ensurePythonClientTools, PYTHON_CLIENT } from '../setup/test-tools/python-client.mjs';
import { GO_ENVIRONMENT, GO_PROGRAMS, goDirectory } from '../setup/go-programs.mjs';
import { getNode } from '../setup/node-runtime.mjs';
import { completePath, REPOSITORY } from '../setup/paths.mjs';
import { inspect, PREREQUISITES } from '../setup/prerequisites.mjs';
import { describeError, SetupError } from '../setup/setup-error.mjs';
import { addCounts, failure, NOTHING, PASS } from '../test/results/counts.mjs';
import { runLive } from '../test/jobs/live-command.mjs';
import { ensureStaticcheck } from './staticcheck.mjs';

const TIMEOUT_MS = 15 * 60_000;
/** The client and the examples, seen from the client. */
const PYTHON_FILES = ['.', '../../examples'];

/**
 * @typedef {import('../test/results/counts.mjs').Counts} Counts
 * @typedef {{ name: string, run: () => Promise<boolean> }} Check
 */

/**
 * Runs all checks, also after one has failed, so that a person sees all failures at once.
 * @returns {Promise<Counts>}
 */
export async function runChecks() {
  let counts = NOTHING;
  for (const check of await listChecks()) {
    const startedAt = performance.now();
    const result = await runCheck(check);
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
    process.stdout.write(`${result.failed === 0 ? 'ok  ' : 'FAIL'}  ${check.name} (${seconds} s)\n`);
    counts = addCounts(counts, result);
  }
  const { failures } = counts;
  process.stdout.write(failures.length === 0 ? 'all checks passed\n' : `failed:\n${failures.join('\n')}\n`);
  return counts;
}

/**
 * @param {Check} check
 * @returns {Promise<Counts>}
 */
async function runCheck(check) {
  try {
    return (await check.run()) ? PASS : failure(check.name);
  } catch (error) {
    return failure(check.name, describeError(error));
  }
}

/** @returns {Promise<Check[]>} */
async function listChecks() {
  const go = await findGo();
  const node = getNode();
  const tool = (/** @type {string} */ name) => join(REPOSITORY, 'node_modules', '.bin', name);
  const nodeCheck = (
    /** @type {string} */ name,
    /** @type {string} */ program,
    /** @type {string[]} */ args,
  ) => ({
    name,
    run: async () =>
      (await runLive(node, [tool(program), ...args], { timeoutMs: TIMEOUT_MS })).exitCode === 0,
  });
  return [
    nodeCheck('format (oxfmt)', 'oxfmt', ['--check', '.']),
    nodeCheck('lint (oxlint)', 'oxlint', ['--type-aware', '--deny-warnings', '.']),
    nodeCheck('types (tsc)', 'tsc', ['--noEmit', '-p', '.']),
    nodeCheck('types of the client (tsc)', 'tsc', ['--noEmit', '-p', 'packages/sdk']),
    nodeCheck('types of the client’s tests (tsc)', 'tsc', [
      '--noEmit',
      '-p',
      'packages/sdk/tsconfig.test.json',
    ]),
    nodeCheck('types of the client’s mock (tsc)', 'tsc', [
      '--noEmit',
      '-p',
      'packages/sdk/tsconfig.mock.json',
    ]),
    nodeCheck('types of the command line (tsc)', 'tsc', ['--noEmit', '-p', 'packages/cli']),
    nodeCheck('types of the documentation (tsc)', 'tsc', ['--noEmit', '-p', 'packages/docs-site']),
    nodeCheck('types of the dashboard (tsc)', 'tsc', ['--noEmit', '-p', 'packages/dashboard']),
    nodeCheck('types of the scripts (tsc)', 'tsc', ['--noEmit', '-p', 'scripts']),
    nodeCheck('types of the examples (tsc)', 'tsc', ['--noEmit', '-p', 'examples']),
    nodeCheck('unused exports and dependencies (knip)', 'knip', ['--no-progress']),
    { name: 'layers of folders', run: checkAllLayers },
    ...GO_PROGRAMS.flatMap((name) => goChecks(go, name, goDirectory(name))),
    pythonCheck('format (ruff)', ['-m', 'ruff', 'format', '--check', '--quiet', ...PYTHON_FILES]),
    pythonCheck('lint (ruff)', ['-m', 'ruff', 'check', '--quiet', '--no-cache', ...PYTHON_FILES]),
    pythonCheck('types (mypy)', ['-m', 'mypy', '--no-error-summary']),
    pythonCheck('generated records', ['scripts/generate_models.py', '--check']),
    pythonCheck('generated synchronous client', ['scripts/generate_sync.py', '--check']),
  ];
}

/** Its modules come with the npm packages, which a new checkout does not have when this file is loaded. */
async function checkAllLayers() {
  const [{ checkLayers, checkSecluded }, { LAYERS, SECLUDED }] = await Promise.all([
    import('./folder-layers.mjs'),
    import('./layers.mjs'),
  ]);
  const faults = [...LAYERS.flatMap(checkLayers), ...SECLUDED.flatMap(checkSecluded)];
  for (const fault of faults) process.stdout.write(`${fault}\n`);
  return faults.length === 0;
}

/**
 * @param {string} go
 * @param {string} name
 * @param {string} directory of a Go module
 * @returns {Check[]}
 */
function goChecks(go, name, directory) {
  return [
    { name: `${name} (gofmt)`, run: () => checkGofmt(join(go, '..', 'gofmt'), directory) },
    { name: `${name} (go vet)`, run: () => runInModule(go, ['vet', './...'], directory) },
    { name: `${name} (staticcheck)`, run: () => checkStatically(go, directory) },
  ];
}

/**
 * @param {string} name
 * @param {string[]} args of the interpreter that has the tools of the Python client
 * @returns {Check}
 */
function pythonCheck(name, args) {
  return {
    name: `Python client: ${name}`,
    run: async () => {
      const python = await ensurePythonClientTools();
      const { exitCode } = await runLive(python, args, { timeoutMs: TIMEOUT_MS, cwd: PYTHON_CLIENT });
      return exitCode === 0;
    },
  };
}

async function findGo() {
  const prerequisite = PREREQUISITES.find(({ name }) => name === 'go');
  if (prerequisite === undefined) throw new Error('go is not in the table of prerequisites');
  const finding = await inspect(prerequisite);
  if (finding.ok && finding.path !== undefined) return finding.path;
  throw new SetupError(`go: ${finding.detail}`, { remedy: 'npm run setup' });
}

/**
 * @param {string} command
 * @param {string[]} args
 * @param {string} cwd
 */
async function runInModule(command, args, cwd) {
  return (await runLive(command, args, { timeoutMs: TIMEOUT_MS, cwd, env: GO_ENVIRONMENT })).exitCode === 0;
}

/**
 * Returns whether all files are formatted. gofmt lists the files that it would change, and still exits with 0.
 * @param {string} gofmt
 * @param {string} cwd
 */
async function checkGofmt(gofmt, cwd) {
  /** @type {string[]} */
  const files = [];
  const { exitCode } = await runLive(gofmt, ['-l', '.'], {
    timeoutMs: TIMEOUT_MS,
    cwd,
    onLine: (line) => files.push(line),
  });
  for (const file of files) process.stdout.write(`${join(cwd, file)} is not formatted: run gofmt -w on it\n`);
  return exitCode === 0 && files.length === 0;
}

/**
 * @param {string} go
 * @param {string} cwd
 */
async function checkStatically(go, cwd) {
  // It runs the Go that PATH has, and the Go of set-up may be elsewhere.
  const env = { ...GO_ENVIRONMENT, PATH: [dirname(go), completePath()].join(delimiter) };
  const program = await ensureStaticcheck(go);
  return (await runLive(program, ['./...'], { timeoutMs: TIMEOUT_MS, cwd, env })).exitCode === 0;
}
