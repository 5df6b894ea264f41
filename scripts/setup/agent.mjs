import { join } from 'node:path';
import { ensureArtefact } from './artefact.mjs';
import { sourceHash } from './hash.mjs';
import { REPOSITORY } from './paths.mjs';
import { say } from './report.mjs';
import { run } from './run-command.mjs';

export const AGENT_DIRECTORY = join(REPOSITORY, 'agent');

/** The first build fetches modules and compiles the standard library. */
const BUILD_TIMEOUT_MS = 15 * 60_000;
const FLAGS = ['-trimpath', '-buildvcs=false', '-ldflags', '-s -w'];

/** Environment of all Go commands here: static programs, built with the installed Go and not with a downloaded one. */
export const GO_ENVIRONMENT = { CGO_ENABLED: '0', GOTOOLCHAIN: 'local', GOFLAGS: '-mod=readonly' };

/** @param {string} path relative */
function isAgentSource(path) {
  return path === 'go.mod' || path === 'go.sum' || (path.endsWith('.go') && !path.endsWith('_test.go'));
}

/**
 * @param {() => string} getGo called only if something has to be built
 * @returns {Promise<string>} path of the static guest agent
 */
export async function ensureAgent(getGo) {
  const directory = await ensureArtefact({
    kind: 'agent',
    recipe: { version: 1, flags: FLAGS, source: await sourceHash(AGENT_DIRECTORY, isAgentSource) },
    build: async (target) => {
      const go = getGo();
      say('building the guest agent');
      await run(go, ['build', ...FLAGS, '-o', join(target, 'agent'), './cmd/agent'], {
        step: 'building the guest agent',
        timeoutMs: BUILD_TIMEOUT_MS,
        cwd: AGENT_DIRECTORY,
        env: { ...GO_ENVIRONMENT, GOOS: 'linux', GOARCH: 'amd64' },
        remedy:
          'if modules cannot be fetched, make the module proxy (go env GOPROXY) reachable; without a network, copy a module cache here (go env GOMODCACHE)',
      });
    },
  });
  return join(directory, 'agent');
}
