/**
 * Installs the service, or one role of it, under systemd: writes unit and configuration and, where systemd runs, enables
 * and starts it.
 */
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
import { buildUnit, UNIT_NAMES, unitPath } from './unit.mjs';

/** Not copied as settings: the path of the file itself, and secrets that are written with a comment of their own. */
const NOT_KEPT = new Set(['COPPICE_CONFIG', 'COPPICE_BOOTSTRAP_KEY', 'COPPICE_BOOTSTRAP_INVITATION']);

/** Of control. Only the machines of controls get these. */
const OF_CONTROL = /^(?:DATABASE_URL|COPPICE_BOOTSTRAP_\w+|COPPICE_INTERNAL_\w+)$/u;

const STANDARD_LISTEN = '127.0.0.1:8080';
const SUFFIX = /\.service$/u;

/**
 * @typedef {import('./unit.mjs').Role} Role
 *
 * @typedef {object} InstallOptions
 * @property {string} node
 * @property {Role} role
 * @property {string} root  `/`, or a directory used in its place: systemd is then not changed
 * @property {(text: string) => void} say
 *
 * @param {InstallOptions} options
 */
export async function installService(options) {
  const { node, role, root, say } = options;
  assertInstallable(options);
  const config = join(root, CONFIGURATION_FILE);
  if (existsSync(config)) say(`kept ${config}`);
  else if (role === 'runner') await writeRunnerConfiguration(config, options);
  else await writeConfiguration(config, options);
  const path = unitPath(root, role);
  await writeWhole(path, await buildUnit(node, role), 0o644);
  say(`wrote ${path}`);
  if (root === '/') await startUnit(options);
}

/**
 * Throws SetupError if the unit may not be installed. Two units with the same role would wait for each other's locks.
 * @param {Pick<InstallOptions, 'role' | 'root'>} options
 */
export function assertInstallable({ role, root }) {
  if (root === '/' && !isRoot())
    throw new SetupError('only root can install a system service', {
      remedy: 'run it with sudo; without root, use npm start',
    });
  /** @type {readonly Role[]} */
  const others = role === 'all' ? ['control', 'runner'] : ['all'];
  const other = others.find((each) => existsSync(unitPath(root, each)));
  if (other === undefined) return;
  const name = UNIT_NAMES[other];
  throw new SetupError(
    `${unitPath(root, other)} is installed, and runs the same ${other === 'all' ? 'role' : other}`,
    {
      remedy: `to replace it, run: systemctl disable --now ${name} && rm ${unitPath(root, other)}   (sandboxes keep running)`,
    },
  );
}

/** @param {InstallOptions} options */
async function startUnit({ role, say }) {
  const unit = UNIT_NAMES[role];
  const start = role === 'runner' && needsJoin() ? 'enable' : 'enable --now';
  if (!isSystemdRunning()) {
    say(
      `systemd does not run here. On a machine where it runs: systemctl daemon-reload && systemctl ${start} ${unit}`,
    );
    return;
  }
  await systemctl('daemon-reload');
  await systemctl('enable', unit);
  const name = unit.replace(SUFFIX, '');
  if (role === 'runner' && needsJoin()) {
    say(
      `${unit} is enabled. It can start once this machine has joined (coppice admin runner join): systemctl start ${name}`,
    );
    return;
  }
  // A restart also applies the new unit to a running service. Sandboxes keep running.
  await systemctl('restart', unit);
  say(`${unit} is enabled and started: systemctl status ${name}, journalctl -u ${name}`);
}

/** Whether the settings have controls connect to this machine, which no token has admitted yet. */
function needsJoin() {
  const isListening = findSetting('COPPICE_RUNNER_LISTEN') !== undefined;
  return isListening && !existsSync(join(dataDirectory(), 'runner', 'joined.json'));
}

/**
 * @param {string} path
 * @param {InstallOptions} options
 */
async function writeRunnerConfiguration(path, { role, say }) {
  const settings = givenSettings();
  const kept = Object.entries(settings).filter(([name]) => !OF_CONTROL.test(name));
  const unit = UNIT_NAMES[role].replace(SUFFIX, '');
  await writeWhole(path, buildEnvironmentFile({ unit, settings: Object.fromEntries(kept) }), 0o640);
  say(`wrote ${path}`);
  const left = Object.keys(settings).filter((name) => OF_CONTROL.test(name));
  if (left.length > 0) say(`not written, because a runner does not need it: ${left.join(', ')}`);
}

/**
 * @param {string} path
 * @param {InstallOptions} options
 */
async function writeConfiguration(path, { role, say }) {
  // Secrets must not appear in the journal, so the service must not make and print the first key and invitation itself.
  const made = ['postgres', 'master.key'].map((name) => join(dataDirectory(), 'control', name));
  // A master key that was copied here is that of an installation with keys.
  const isNew = !made.some((path) => existsSync(path));
  const given = process.env['COPPICE_BOOTSTRAP_KEY'];
  const newKey = isNew && given === undefined ? generateKey(readSetting('COPPICE_REGION', 'us')) : undefined;
  const key = given ?? newKey;
  const givenInvitation = process.env['COPPICE_BOOTSTRAP_INVITATION'];
  const madeInvitation = isNew && givenInvitation === undefined ? generateInvitation() : undefined;
  const invitation = givenInvitation ?? madeInvitation;
  const secrets = {
    ...(key === undefined ? {} : { key }),
    ...(invitation === undefined ? {} : { invitation }),
  };
  const unit = UNIT_NAMES[role].replace(SUFFIX, '');
  await writeWhole(path, buildEnvironmentFile({ unit, settings: givenSettings(), ...secrets }), 0o640);
  say(`wrote ${path}`);
  if (newKey !== undefined) say(`API key of the organization "default", also in this file:\n\n  ${newKey}\n`);
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
