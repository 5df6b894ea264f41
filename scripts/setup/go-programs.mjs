/** Our Go programs: static, one module each. */
import { join } from 'node:path';
import { ensureArtefact } from './artefact.mjs';
import { sourceHash } from './hash.mjs';
import { REPOSITORY } from './paths.mjs';
import { say } from './report.mjs';
import { run } from './run-command.mjs';

/** Names of the programs, which are also their folders and commands, and what each build is called. */
const PROGRAMS = {
  agent: 'the guest agent',
  jail: "QEMU's launcher",
  capture: 'the program that saves the memory of VMs',
  hostctl: 'the program that asks the kernel for the runner',
  blocks: 'the block server',
};
/** @typedef {keyof typeof PROGRAMS} GoProgram */

export const GO_PROGRAMS = /** @type {GoProgram[]} */ (Object.keys(PROGRAMS));

/** The first build fetches modules and compiles the standard library. */
const BUILD_TIMEOUT_MS = 15 * 60_000;
const FLAGS = ['-trimpath', '-buildvcs=false', '-ldflags', '-s -w'];

/** Environment of all Go commands here: static programs, built with the installed Go and not with a downloaded one. */
export const GO_ENVIRONMENT = { CGO_ENABLED: '0', GOTOOLCHAIN: 'local', GOFLAGS: '-mod=readonly' };

/** @param {GoProgram} name */
export function goDirectory(name) {
  return join(REPOSITORY, name);
}

/** @param {string} path relative */
function isSource(path) {
  const isGo = /\.(?:go|s)$/u.test(path) && !path.endsWith('_test.go') && !path.startsWith('testing/');
  return path === 'go.mod' || path === 'go.sum' || isGo;
}

/**
 * @param {GoProgram} name
 * @param {() => string} getGo called only if something has to be built
 * @returns {Promise<string>} path of the program
 */
export async function ensureGoProgram(name, getGo) {
  const directory = await ensureArtefact({
    kind: name,
    recipe: { version: 1, flags: FLAGS, source: await sourceHash(goDirectory(name), isSource) },
    build: async (target) => {
      const step = `building ${PROGRAMS[name]}`;
      say(step);
      await run(getGo(), ['build', ...FLAGS, '-o', join(target, name), `./cmd/${name}`], {
        step,
        timeoutMs: BUILD_TIMEOUT_MS,
        cwd: goDirectory(name),
        env: { ...GO_ENVIRONMENT, GOOS: 'linux', GOARCH: 'amd64' },
        remedy:
          'if modules cannot be fetched, make the module proxy (go env GOPROXY) reachable; without a network, copy a module cache here (go env GOMODCACHE)',
      });
    },
  });
  return join(directory, name);
}
