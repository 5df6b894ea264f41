import { join } from 'node:path';
import { GO_ENVIRONMENT } from './agent.mjs';
import { ensureArtefact } from './artefact.mjs';
import { sourceHash } from './hash.mjs';
import { REPOSITORY } from './paths.mjs';
import { say } from './report.mjs';
import { run } from './run-command.mjs';

export const CAPTURE_DIRECTORY = join(REPOSITORY, 'capture');

const BUILD_TIMEOUT_MS = 15 * 60_000;
const FLAGS = ['-trimpath', '-buildvcs=false', '-ldflags', '-s -w'];

/** @param {string} path relative */
function isCaptureSource(path) {
  const isGo = path.endsWith('.go') && !path.endsWith('_test.go') && !path.startsWith('testing/');
  return path === 'go.mod' || path === 'go.sum' || isGo;
}

/**
 * @param {() => string} getGo called only if something has to be built
 * @returns {Promise<string>} path of the static program that writes the memory of VMs to files
 */
export async function ensureCapture(getGo) {
  const directory = await ensureArtefact({
    kind: 'capture',
    recipe: { version: 1, flags: FLAGS, source: await sourceHash(CAPTURE_DIRECTORY, isCaptureSource) },
    build: async (target) => {
      const step = 'building the program that saves the memory of VMs';
      say(step);
      await run(getGo(), ['build', ...FLAGS, '-o', join(target, 'capture'), './cmd/capture'], {
        step,
        timeoutMs: BUILD_TIMEOUT_MS,
        cwd: CAPTURE_DIRECTORY,
        env: { ...GO_ENVIRONMENT, GOOS: 'linux', GOARCH: 'amd64' },
      });
    },
  });
  return join(directory, 'capture');
}
