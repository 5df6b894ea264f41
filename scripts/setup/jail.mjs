import { join } from 'node:path';
import { GO_ENVIRONMENT } from './agent.mjs';
import { ensureArtefact } from './artefact.mjs';
import { sourceHash } from './hash.mjs';
import { REPOSITORY } from './paths.mjs';
import { say } from './report.mjs';
import { run } from './run-command.mjs';

export const JAIL_DIRECTORY = join(REPOSITORY, 'jail');

const BUILD_TIMEOUT_MS = 15 * 60_000;
const FLAGS = ['-trimpath', '-buildvcs=false', '-ldflags', '-s -w'];

/** @param {string} path relative */
function isJailSource(path) {
  const isGo = path.endsWith('.go') && !path.endsWith('_test.go') && !path.startsWith('testing/');
  return path === 'go.mod' || path === 'go.sum' || isGo;
}

/**
 * @param {() => string} getGo called only if something has to be built
 * @returns {Promise<string>} path of the static launcher that becomes QEMU
 */
export async function ensureJail(getGo) {
  const directory = await ensureArtefact({
    kind: 'jail',
    recipe: { version: 1, flags: FLAGS, source: await sourceHash(JAIL_DIRECTORY, isJailSource) },
    build: async (target) => {
      say("building QEMU's launcher");
      await run(getGo(), ['build', ...FLAGS, '-o', join(target, 'jail'), './cmd/jail'], {
        step: "building QEMU's launcher",
        timeoutMs: BUILD_TIMEOUT_MS,
        cwd: JAIL_DIRECTORY,
        env: { ...GO_ENVIRONMENT, GOOS: 'linux', GOARCH: 'amd64' },
      });
    },
  });
  return join(directory, 'jail');
}
