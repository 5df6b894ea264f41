/** Installs the service under systemd: writes unit and configuration and, where systemd runs, enables and starts it. */
import { existsSync } from 'node:fs';
import { chmod, mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { CONFIGURATION_FILE } from '../../packages/server/src/config/default-paths.mjs';
import { findManifest } from '../setup/manifest.mjs';
import { dataDirectory, findSetting, isRoot, readSetting } from '../setup/paths.mjs';
import { SetupError } from '../setup/setup-error.mjs';
import { buildEnvironmentFile, generateInvitation, generateKey } from './environment-file.mjs';
import { buildSignUpLink } from './sign-up-link.mjs';
import { isSystemdRunning, systemctl } from './systemd.mjs';
import { buildUnit, UNIT_NAME, UNIT_PATH } from './unit.mjs';

/** Not copied as settings: the path of the file itself, and secrets that are written with a comment of their own. */
const NOT_KEPT = new Set(['COPPICE_CONFIG', 'COPPICE_BOOTSTRAP_KEY', 'COPPICE_BOOTSTRAP_INVITATION']);

const STANDARD_LISTEN = '127.0.0.1:8080';

/**
 * @typedef {object} InstallOptions
 * @property {string} node
 * @property {string} root  `/`, or a directory used in its place: systemd is then not changed
 * @property {(text: string) => void} say
 *
 * @param {InstallOptions} options
 */
export async function installService(options) {
  if (options.root === '/' && !isRoot())
    throw new SetupError('only root can install a system service', {
      remedy: 'run it with sudo; without root, use npm start',
    });
  await writeConfiguration(options);
  const unitPath = join(options.root, UNIT_PATH);
  await writeWhole(unitPath, await buildUnit(options.node), 0o644);
  options.say(`wrote ${unitPath}`);
  if (options.root !== '/') return;
  if (!isSystemdRunning()) {
    options.say(
      `systemd does not run here. On a machine where it runs: systemctl daemon-reload && systemctl enable --now ${UNIT_NAME}`,
    );
    return;
  }
  await systemctl('daemon-reload');
  await systemctl('enable', UNIT_NAME);
  // A restart also applies the new unit to a running service. Sandboxes keep running.
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
  // Secrets must not appear in the journal, so the service must not make and print the first key and invitation itself.
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
  if (made !== undefined) say(`API key of the organization "default", also in this file:\n\n  ${made}\n`);
  else if (given === undefined) say('the API keys in the data directory remain valid');
  if (madeInvitation === undefined) return;
  say(`invitation for its first owner, also in this file:\n\n  ${madeInvitation}\n`);
  if ((await findManifest())?.dashboard === undefined) return;
  const link = buildSignUpLink({
    listen: readSetting('COPPICE_LISTEN', STANDARD_LISTEN),
    hasTls: findSetting('COPPICE_TLS_CERT') !== undefined,
    invitation: madeInvitation,
  });
  if (link !== undefined) say(`once the service runs, the owner accepts it in a browser:\n\n  ${link}\n`);
}

/** Settings from the environment of this process: the configuration file keeps them for the service. */
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
  await chmod(temporary, mode); // independent of the umask
  await rename(temporary, path);
}
