import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { GO_ENVIRONMENT } from '../setup/go-programs.mjs';
import { isExecutable, REPOSITORY } from '../setup/paths.mjs';
import { run } from '../setup/run-command.mjs';
import { compareVersions } from '../setup/version.mjs';

const MODULE = 'honnef.co/go/tools/cmd/staticcheck';
const BUILD_TIMEOUT_MS = 10 * 60_000;
const QUERY_TIMEOUT_MS = 20_000;
/** The build needs two public servers, which may fail for a while: the module proxy and the checksum database. */
const WAITS_BEFORE_RETRY_MS = [5_000, 30_000];

/** @type {Promise<string> | undefined} */
let made;

/**
 * Returns the release for a version of Go. A release reads export data of its own Go version and of older ones.
 * @param {string} goVersion
 */
function releaseFor(goVersion) {
  if (compareVersions(goVersion, '1.26') >= 0) return 'v0.8.2';
  return compareVersions(goVersion, '1.25') >= 0 ? 'v0.7.0' : 'v0.6.1';
}

/**
 * Builds staticcheck once for each Go version and keeps it, so that the next check needs no network. The checks of all
 * modules share one build.
 * @param {string} go
 * @returns {Promise<string>} its path
 */
export function ensureStaticcheck(go) {
  return (made ??= makeStaticcheck(go));
}

/** @param {string} go */
async function makeStaticcheck(go) {
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
  const install = (/** @type {boolean} */ mayFail) =>
    run(go, ['install', `${MODULE}@${release}`], {
      step: 'building staticcheck',
      timeoutMs: BUILD_TIMEOUT_MS,
      env: { ...GO_ENVIRONMENT, GOFLAGS: '', GOBIN: directory },
      allowFailure: mayFail,
    });
  for (const waitMs of WAITS_BEFORE_RETRY_MS) {
    const { exitCode, output } = await install(true);
    if (exitCode === 0) return path;
    process.stdout.write(`${output}staticcheck could not be built; retrying in ${waitMs / 1000} s\n`);
    await sleep(waitMs);
  }
  await install(false);
  return path;
}
