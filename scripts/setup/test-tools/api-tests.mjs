/** Installs the Python programs that test the API description: schemathesis and a validator of OpenAPI documents. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ensureArtefact } from '../artefact.mjs';
import { REPOSITORY } from '../paths.mjs';
import { say } from '../report.mjs';
import { run } from '../run-command.mjs';

/** Every package with its version, as `pip freeze` writes them. */
const REQUIREMENTS = join(REPOSITORY, 'scripts', 'setup', 'python', 'api-tests.txt');
const VENV_TIMEOUT_MS = 2 * 60_000;
const INSTALL_TIMEOUT_MS = 10 * 60_000;

/**
 * @param {{ path: string, version: string }} python
 * @returns {Promise<string>} path of a Python interpreter that has both
 */
export async function ensureApiTests({ path, version }) {
  const directory = await ensureArtefact({
    kind: 'api-tests',
    recipe: { version: 1, python: { path, version }, requirements: await readFile(REQUIREMENTS, 'utf8') },
    build: async (target) => {
      say('installing schemathesis, which checks the API against its description');
      await run(path, ['-m', 'venv', target], { step: 'making a venv', timeoutMs: VENV_TIMEOUT_MS });
      const pip = ['-m', 'pip', 'install', '--quiet', '--no-deps', '--disable-pip-version-check'];
      await run(join(target, 'bin', 'python'), [...pip, '--requirement', REQUIREMENTS], {
        step: 'installing schemathesis with pip',
        timeoutMs: INSTALL_TIMEOUT_MS,
        remedy: 'pip must reach a package index; set PIP_INDEX_URL if yours is not the public one',
      });
    },
  });
  return join(directory, 'bin', 'python');
}
