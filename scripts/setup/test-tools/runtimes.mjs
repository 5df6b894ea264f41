/** Installs the runtimes in which the client is tested, from npm: two older Node.js, Deno and Bun. */
import { chmod, cp, mkdir, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { ensureArtefact } from '../artefact.mjs';
import { findNpm, npmVariables } from '../packages/npm-packages.mjs';
import { REPOSITORY } from '../paths.mjs';
import { say } from '../report.mjs';
import { run } from '../run-command.mjs';

const PROJECT = join(REPOSITORY, 'scripts', 'setup', 'test-tools', 'runtimes');
const INSTALL_TIMEOUT_MS = 10 * 60_000;

/** The program of each package. */
const PROGRAMS = {
  node20: 'node20/bin/node',
  node22: 'node22/bin/node',
  deno: '@deno/linux-x64-glibc/deno',
  bun: '@oven/bun-linux-x64-baseline/bin/bun',
};

/** @returns {Promise<string>} a directory with the programs `node20`, `node22`, `deno` and `bun` */
export async function ensureRuntimes() {
  return ensureArtefact({
    kind: 'runtimes',
    // Each has 400 MB.
    kept: 1,
    recipe: {
      version: 1,
      lock: await readFile(join(PROJECT, 'package-lock.json'), 'utf8'),
      programs: PROGRAMS,
    },
    build: async (target) => {
      say('installing Node.js 20 and 22, Deno and Bun, in which the client is tested');
      const project = join(target, 'project');
      await mkdir(project);
      for (const name of ['package.json', 'package-lock.json'])
        await cp(join(PROJECT, name), join(project, name));
      await install(project);
      for (const [name, path] of Object.entries(PROGRAMS)) {
        await rename(join(project, 'node_modules', path), join(target, name));
        await chmod(join(target, name), 0o755);
      }
      await rm(project, { recursive: true });
    },
  });
}

/** @param {string} project */
async function install(project) {
  const npm = findNpm();
  await run(
    npm.command,
    [...npm.args, 'ci', '--prefer-offline', '--ignore-scripts', '--no-audit', '--no-fund'],
    {
      step: 'installing the runtimes with npm',
      timeoutMs: INSTALL_TIMEOUT_MS,
      cwd: project,
      remedy: 'npm must reach its registry (npm config get registry) or have the packages in its cache',
      env: Object.fromEntries(npmVariables().map((name) => [name, undefined])),
    },
  );
}
