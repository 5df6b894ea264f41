/**
 * Keeps packages from starting services. Debian's packages start their services on installation, but a person who runs
 * set-up did not request a registry on port 5000. During the installation a policy-rc.d (the documented hook of
 * invoke-rc.d) refuses every start. New units are disabled afterwards; otherwise the next boot would start them.
 */
import { existsSync } from 'node:fs';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { findExecutable } from '../paths.mjs';
import { run } from '../run-command.mjs';

const POLICY_PATH = '/usr/sbin/policy-rc.d';
const POLICY_MARK = '# Written by the Coppice set-up for the time of one installation; safe to delete.';
const POLICY = `#!/bin/sh\n${POLICY_MARK}\nexit 101\n`;
const TIMEOUT_MS = 60_000;

/**
 * Runs an installation during which no package may start a service.
 * @template T
 * @param {() => Promise<T>} install
 * @returns {Promise<T>}
 */
export async function withoutServiceStarts(install) {
  const owned = !existsSync(POLICY_PATH) || (await readFile(POLICY_PATH, 'utf8')).includes(POLICY_MARK);
  if (!owned) return install(); // the machine has a policy of its owner, which applies instead
  await writeFile(POLICY_PATH, POLICY, { mode: 0o755 });
  try {
    return await install();
  } finally {
    await rm(POLICY_PATH, { force: true });
  }
}

/** @param {readonly string[]} services units of packages that set-up has just installed */
export async function disableServices(services) {
  const systemctl = findExecutable('systemctl');
  const updateRc = findExecutable('update-rc.d');
  for (const service of services) {
    if (systemctl !== undefined)
      await disable(systemctl, ['--quiet', 'disable', '--now', `${service}.service`], service);
    if (updateRc !== undefined && existsSync(`/etc/init.d/${service}`))
      await disable(updateRc, [service, 'disable'], service);
  }
}

/**
 * Disables a service. A failure is ignored: `--now` fails where systemd does not run, and there no unit runs either.
 * @param {string} command
 * @param {string[]} args
 * @param {string} service
 */
async function disable(command, args, service) {
  await run(command, args, {
    step: `disabling the service ${service}`,
    timeoutMs: TIMEOUT_MS,
    allowFailure: true,
  });
}
