import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { GO_ENVIRONMENT } from '../setup/agent.mjs';
import { isExecutable, REPOSITORY } from '../setup/paths.mjs';
import { run } from '../setup/run-command.mjs';
import { describeError } from '../setup/setup-error.mjs';
import { compareVersions } from '../setup/version.mjs';

const MODULE = 'honnef.co/go/tools/cmd/staticcheck';
const BUILD_TIMEOUT_MS = 10 * 60_000;
const QUERY_TIMEOUT_MS = 20_000;

/**
 * A release reads the export data of the Go that it was made for and of older ones.
 * @param {string} goVersion
 */
function releaseFor(goVersion) {
  if (compareVersions(goVersion, '1.26') >= 0) return 'v0.8.2';
  return compareVersions(goVersion, '1.25') >= 0 ? 'v0.7.0' : 'v0.6.1';
}

/**
 * Built once for each Go version, and then kept: the next check needs no network.
 * @param {string} go
 * @returns {Promise<string | undefined>} nothing when it cannot be had; the reason is printed
 */
export async function ensureStaticcheck(go) {
  const shown = await run(go, ['env', 'GOVERSION'], {
    step: 'asking Go for its version',
    timeoutMs: QUERY_TIMEOUT_MS,
    env: GO_ENVIRONMENT,
  });
  const goVersion = shown.stdout.trim().replace(/^go/, '');
  const release = releaseFor(goVersion);
  const directory = join(REPOSITORY, '.cache', 'tools', `staticcheck-${release}-go${goVersion}`);
  const path = join(directory, 'staticcheck');
  if (isExecutable(path)) return path;
  await mkdir(directory, { recursive: true });
  try {
    await run(go, ['install', `${MODULE}@${release}`], {
      step: 'building staticcheck',
      timeoutMs: BUILD_TIMEOUT_MS,
      env: { ...GO_ENVIRONMENT, GOFLAGS: '', GOBIN: directory },
    });
    return path;
  } catch (error) {
    process.stdout.write(`${describeError(error)}\n`);
    return undefined;
  }
}
