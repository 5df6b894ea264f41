/** Makes the service one of systemd's: unit, configuration, and, where systemd runs, enabled and started. */
import { existsSync } from 'node:fs';
import { chmod, mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { CONFIGURATION_FILE } from '../../packages/server/src/config/default-paths.mjs';
import { dataDirectory, isRoot, readSetting } from '../setup/paths.mjs';
import { SetupError } from '../setup/setup-error.mjs';
import { buildEnvironmentFile, generateInvitation, generateKey } from './environment-file.mjs';
import { isSystemdRunning, systemctl } from './systemd.mjs';
import { buildUnit, UNIT_NAME, UNIT_PATH } from './unit.mjs';

/** Where the settings stand, and what is written apart from them. */
const NOT_KEPT = new Set(['COPPICE_CONFIG', 'COPPICE_BOOTSTRAP_KEY', 'COPPICE_BOOTSTRAP_INVITATION']);

/**
 * @typedef {object} InstallOptions
 * @property {string} node
 * @property {string} root  `/`, or a directory that stands for it: then systemd is left alone
 * @property {(text: string) => void} say
 *
 * @param {InstallOptions} options
 */
export async function installService(options) {
  if (options.root === '/' && !isRoot())
    throw new SetupError('a service of the system can be installed by root alone', {
      remedy: 'run it with sudo; an ordinary user starts the service with npm start',
    });
  await writeConfiguration(options);
  const unitPath = join(options.root, UNIT_PATH);
  await writeWhole(unitPath, await buildUnit(options.node), 0o644);
  options.say(`wrote ${unitPath}`);
  if (options.root !== '/') return;
  if (!isSystemdRunning()) {
    options.say(
      `systemd does not run here. Where it does: systemctl daemon-reload && systemctl enable --now ${UNIT_NAME}`,
    );
    return;
  }
  await systemctl('daemon-reload');
  await systemctl('enable', UNIT_NAME);
  // Also when it runs: with the new unit. Sandboxes run on.
  await systemctl('restart', UNIT_NAME);
  options.say(`${UNIT_NAME} is enabled and started: systemctl status coppice, journalctl -u coppice`);
}

/** @param {InstallOptions} options */
async function writeConfiguration({ root, say }) {
  const path = join(root, CONFIGURATION_FILE);
  if (existsSync(path)) {
    say(`kept ${path}`);
    return;
  }
  // The journal is no place for them, so first key and invitation are not left to the service to make and print.
  const isNew = !existsSync(join(dataDirectory(), 'control', 'postgres'));
  const given = process.env['COPPICE_BOOTSTRAP_KEY'];
  const made = isNew && given === undefined ? generateKey(readSetting('COPPICE_REGION', 'us')) : undefined;
  const key = given ?? made;
  const givenInvitation = process.env['COPPICE_BOOTSTRAP_INVITATION'];
  const madeInvitation = isNew && givenInvitation === undefined ? generateInvitation() : undefined;
  const invitation = givenInvitation ?? madeInvitation;
  const secrets = {
    ...(key === undefined ? {} : { key }),
    ...(invitation === undefined ? {} : { invitation }),
  };
  await writeWhole(path, buildEnvironmentFile({ settings: givenSettings(), ...secrets }), 0o640);
  say(`wrote ${path}`);
  if (made !== undefined) say(`API key of the organization "default", also in that file:\n\n  ${made}\n`);
  else if (given === undefined) say('the API keys that the data directory knows hold');
  if (madeInvitation !== undefined)
    say(`invitation for its first owner, also in that file:\n\n  ${madeInvitation}\n`);
}

/** Settings given in the environment of the installation are the service's from then on. */
function givenSettings() {
  const entries = Object.entries(process.env).filter(
    ([name]) => /^(COPPICE_|DATABASE_URL$)/.test(name) && !NOT_KEPT.has(name),
  );
  return Object.fromEntries(entries.map(([name, value]) => [name, value ?? '']));
}

/**
 * @param {string} path
 * @param {string} text
 * @param {number} mode
 */
async function writeWhole(path, text, mode) {
  await mkdir(dirname(path), { recursive: true, mode: 0o755 });
  const temporary = `${path}.new`;
  await rm(temporary, { force: true });
  await writeFile(temporary, text, { mode, flush: true });
  await chmod(temporary, mode); // whatever the umask
  await rename(temporary, path);
}
