import { existsSync } from 'node:fs';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { findSuite, formatDeb822, readAptSources } from './apt-sources.mjs';
import { findExecutable, isRoot } from '../paths.mjs';
import { run } from '../run-command.mjs';
import { say } from '../report.mjs';
import { SetupError } from '../setup-error.mjs';
import { compareVersions, upstreamVersion } from '../version.mjs';

export const BACKPORTS_FILE = '/etc/apt/sources.list.d/coppice-backports.sources';
const QUERY_TIMEOUT_MS = 60_000;
const UPDATE_TIMEOUT_MS = 10 * 60_000;
const INSTALL_TIMEOUT_MS = 40 * 60_000;

/** Another apt (unattended upgrades) may hold the lock for a while: apt then waits instead of failing. */
const LOCK_OPTIONS = ['-o', 'DPkg::Lock::Timeout=900', '-o', 'Acquire::Retries=3'];
const QUIET_ENVIRONMENT = {
  DEBIAN_FRONTEND: 'noninteractive',
  DEBCONF_NONINTERACTIVE_SEEN: 'true',
  NEEDRESTART_SUSPEND: '1',
};

/** @type {Promise<string> | undefined} */
let updated;

/**
 * Runs `apt-get update` once per run of set-up. An unreachable source of the owner must not stop set-up: the failure
 * matters only if a package is missing later, and the output then becomes part of that error.
 * @returns {Promise<string>} output of apt
 */
export function updateOnce() {
  updated ??= runUpdate();
  return updated;
}

async function runUpdate() {
  if (!isRoot()) return ''; // only root may update the lists; every user may download the packages in them
  say("updating apt's package lists");
  const result = await run('apt-get', [...LOCK_OPTIONS, '-q', 'update'], {
    step: 'apt-get update',
    timeoutMs: UPDATE_TIMEOUT_MS,
    allowFailure: true,
    env: QUIET_ENVIRONMENT,
  });
  return result.output;
}

/**
 * @param {{ packages: string[], release?: string }} request
 */
export async function installPackages(request) {
  if (request.packages.length === 0) return;
  say(
    `installing ${request.packages.join(', ')}${request.release === undefined ? '' : ` from ${request.release}`}`,
  );
  await finishInterruptedInstallation();
  const release = request.release === undefined ? [] : ['--target-release', request.release];
  const kept = ['-o', 'Dpkg::Options::=--force-confdef', '-o', 'Dpkg::Options::=--force-confold'];
  await run(
    'apt-get',
    [
      ...LOCK_OPTIONS,
      ...kept,
      '-y',
      '-q',
      '--no-install-recommends',
      ...release,
      'install',
      ...request.packages,
    ],
    {
      step: `installing ${request.packages.join(' ')}`,
      timeoutMs: INSTALL_TIMEOUT_MS,
      env: QUIET_ENVIRONMENT,
    },
  );
}

/** Completes an installation that was killed: until then apt refuses to work and asks for this to be done by hand. */
async function finishInterruptedInstallation() {
  if ((await readdir('/var/lib/dpkg/updates')).length === 0) return;
  await configurePending();
}

/** Configures packages that are unpacked. */
export async function configurePending() {
  say('finishing an installation that was interrupted');
  await run('dpkg', ['--force-confdef', '--force-confold', '--configure', '--pending'], {
    step: 'finishing an interrupted installation',
    timeoutMs: INSTALL_TIMEOUT_MS,
    env: QUIET_ENVIRONMENT,
  });
}

/**
 * @param {string} name
 * @returns {Promise<{ version: string, depends: string } | undefined>} the version that apt would install
 */
export async function findCandidate(name) {
  const shown = await run('apt-cache', ['--quiet', '--no-all-versions', 'show', name], {
    step: `looking up ${name}`,
    timeoutMs: QUERY_TIMEOUT_MS,
    allowFailure: true,
  });
  const version = /^Version: (.*)$/m.exec(shown.stdout)?.[1];
  return version === undefined
    ? undefined
    : { version, depends: /^Depends: (.*)$/m.exec(shown.stdout)?.[1] ?? '' };
}

/**
 * @param {string} codename
 * @returns {Promise<string>} the suite, with its source configured and its lists fetched
 */
export async function ensureBackports(codename) {
  const suite = `${codename}-backports`;
  const sources = readAptSources();
  if (findSuite(sources, suite) === undefined) {
    const archive = findSuite(sources, codename);
    if (archive === undefined) {
      throw new SetupError(
        `no apt source for ${codename} is configured, so the source of ${suite} cannot be derived from it`,
        {
          remedy: `add your Debian mirror with suite ${codename} to /etc/apt/sources.list.d`,
        },
      );
    }
    say(`adding ${suite} in ${BACKPORTS_FILE}, from the mirror that is already configured`);
    await writeFile(BACKPORTS_FILE, formatDeb822(archive, { suites: [suite], components: ['main'] }), {
      mode: 0o644,
    });
    updated = undefined;
  }
  await updateOnce();
  return suite;
}

/**
 * @param {string} name
 * @param {string} minimum
 * @returns {Promise<boolean>} whether the version in the distribution's own release is new enough
 */
export async function candidateIsAtLeast(name, minimum) {
  const candidate = await findCandidate(name);
  return candidate !== undefined && compareVersions(upstreamVersion(candidate.version), minimum) >= 0;
}

/**
 * Downloads a package and unpacks it, without installing it.
 * @param {{ name: string, version: string }} wanted
 * @param {string} directory target of its files
 * @param {{ timeoutMs?: number }} [options]
 */
export async function unpackPackage(wanted, directory, { timeoutMs = INSTALL_TIMEOUT_MS } = {}) {
  const scratch = await mkdtemp(join(directory, '.deb-'));
  const download = () =>
    run(
      'apt-get',
      [
        ...LOCK_OPTIONS,
        '-q',
        '-o',
        'APT::Sandbox::User=root',
        'download',
        `${wanted.name}=${wanted.version}`,
      ],
      {
        step: `downloading ${wanted.name}`,
        timeoutMs,
        cwd: scratch,
        remedy:
          'make the package mirror reachable (apt-get update as root shows whether it is), then run this again',
      },
    );
  try {
    await download();
    const archive = (await readdir(scratch)).find((file) => file.endsWith('.deb'));
    if (archive === undefined)
      throw new SetupError(`apt-get download left no package file of ${wanted.name}`);
    await run('dpkg-deb', ['--extract', join(scratch, archive), directory], {
      step: `unpacking ${wanted.name}`,
      timeoutMs: UPDATE_TIMEOUT_MS,
    });
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

/**
 * Throws SetupError if this machine has no apt.
 * @param {string[]} wanted names for the error message
 */
export function assertApt(wanted) {
  if (findExecutable('apt-get') !== undefined && existsSync('/etc/apt')) return;
  throw new SetupError(
    `missing: ${wanted.join(', ')}; set-up can install packages only with apt (Debian 12 or newer, Ubuntu 24.04 or newer)`,
    {
      remedy: 'install them with your own package manager, then run npm run setup again',
    },
  );
}
