/** Installs what tests, checks and packages the Python client: a venv, and the wheels from which it was made. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ensureArtefact } from '../artefact.mjs';
import { withLock } from '../lock.mjs';
import { REPOSITORY } from '../paths.mjs';
import { inspect, PREREQUISITES, remedyFor } from '../prerequisites.mjs';
import { say } from '../report.mjs';
import { run } from '../run-command.mjs';
import { SetupError } from '../setup-error.mjs';

export const PYTHON_CLIENT = join(REPOSITORY, 'clients', 'python');
/** Every package with its version, as `pip freeze` writes them. */
const REQUIREMENTS = join(REPOSITORY, 'scripts', 'setup', 'python', 'client-tests.txt');
const VENV_TIMEOUT_MS = 2 * 60_000;
const INSTALL_TIMEOUT_MS = 10 * 60_000;

/**
 * Neither root nor set-up is needed, so that the checks can use it, too.
 * @returns {Promise<string>} path of a Python interpreter that has the client's requirements, pytest, mypy and ruff
 */
export async function ensurePythonClientTools() {
  const python = await findPython();
  const requirements = await readFile(REQUIREMENTS, 'utf8');
  const directory = await withLock({ path: REQUIREMENTS, flags: 'r' }, () =>
    ensureArtefact({
      parent: join(REPOSITORY, '.cache', 'tools', 'python-client'),
      // A test run of the former requirements may still use the venv before this one.
      kept: 2,
      recipe: { version: 1, python, requirements },
      build: (target) => install(python.path, target),
    }),
  );
  return join(directory, 'venv', 'bin', 'python');
}

/**
 * @param {string} path of Python
 * @param {string} target
 */
async function install(path, target) {
  say('installing what tests and checks the Python client');
  const venv = join(target, 'venv');
  const wheels = join(target, 'wheels');
  await run(path, ['-m', 'venv', venv], { step: 'making a venv', timeoutMs: VENV_TIMEOUT_MS });
  const pip = (/** @type {string[]} */ ...args) =>
    run(
      join(venv, 'bin', 'python'),
      ['-m', 'pip', ...args, '--quiet', '--no-deps', '--requirement', REQUIREMENTS],
      {
        step: `pip ${args[0]} for the Python client`,
        timeoutMs: INSTALL_TIMEOUT_MS,
        env: { PIP_DISABLE_PIP_VERSION_CHECK: '1' },
        remedy: 'pip must reach a package index; set PIP_INDEX_URL if yours is not the public one',
      },
    );
  // Tests install the client from these wheels into an empty venv, without a network.
  await pip('wheel', '--wheel-dir', wheels);
  await pip('install', '--no-index', '--find-links', wheels);
}

async function findPython() {
  const prerequisite = PREREQUISITES.find(({ name }) => name === 'python');
  if (prerequisite === undefined) throw new Error('python is not in the table of prerequisites');
  const { ok, path, version = '', detail } = await inspect(prerequisite);
  if (ok && path !== undefined) return { path, version };
  throw new SetupError(`python (${prerequisite.purpose}): ${detail}`, { remedy: remedyFor(prerequisite) });
}
