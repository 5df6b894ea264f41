/** Builds the S3 server of the tests, versitygw, from its Go module. */
import { join } from 'node:path';
import { ensureArtefact } from '../artefact.mjs';
import { GO_ENVIRONMENT } from '../go-programs.mjs';
import { say } from '../report.mjs';
import { run } from '../run-command.mjs';

const MODULE = 'github.com/versity/versitygw/cmd/versitygw@v1.8.0';
const PROGRAM = 'versitygw';
/** The first build fetches about 100 modules. */
const BUILD_TIMEOUT_MS = 20 * 60_000;
const FLAGS = ['-trimpath', '-ldflags', '-s -w'];

/**
 * @param {() => string} getGo called only if it has to be built
 * @returns {Promise<string>} path of the program
 */
export async function ensureObjectServer(getGo) {
  const directory = await ensureArtefact({
    kind: 'object-server',
    recipe: { version: 1, module: MODULE, flags: FLAGS },
    build: async (target) => {
      say('building versitygw, an S3 server for the tests');
      await run(getGo(), ['install', ...FLAGS, MODULE], {
        step: 'building versitygw',
        timeoutMs: BUILD_TIMEOUT_MS,
        // Unlike our programs it needs Go 1.25: an older Go fetches that as a module.
        env: { ...GO_ENVIRONMENT, GOTOOLCHAIN: 'auto', GOFLAGS: '-mod=mod', GOBIN: target },
        remedy:
          'if modules cannot be fetched, make the module proxy (go env GOPROXY) reachable; without a network, copy a module cache here (go env GOMODCACHE)',
      });
    },
  });
  return join(directory, PROGRAM);
}
