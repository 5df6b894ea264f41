/**
 * The table of everything that must be installed. Set-up installs missing entries; `coppice admin doctor` lists all.
 *
 * @typedef {'run' | 'tests' | 'bench'} Scope
 *
 * @typedef {object} Prerequisite
 * @property {string} name
 * @property {string} purpose
 * @property {Scope} scope
 * @property {string} [executable]
 * @property {string} [file]       instead of an executable
 * @property {() => Promise<Omit<Finding, 'prerequisite'>>} [inspect]  instead of an executable or a file
 * @property {string[]} [searchPatterns]  directories outside PATH where Debian keeps it; one `*` for a version
 * @property {string[]} [versionArguments]
 * @property {RegExp} [versionPattern]
 * @property {string} [minimum]
 * @property {string[]} packages
 * @property {string[]} [newerPackages]  alternatives where `packages` are too old; the first one available is installed
 * @property {() => Promise<string[]>} [choosePackages]  what root's set-up installs instead of `packages`
 * @property {boolean} [dispensable]  needed only by some builds or only by the network: without root, set-up continues
 *   without it until it is needed
 * @property {{ below: string, text: string }} [note]  limitation of an old but sufficient version
 * @property {string[]} [services] systemd units that the packages would start; set-up disables them
 *
 * @typedef {object} Finding
 * @property {Prerequisite} prerequisite
 * @property {boolean} ok
 * @property {string} [path]
 * @property {string} [version]
 * @property {string} detail  what was found, or why it is not usable
 * @property {string} [remedy]  for a fault that no package corrects
 * @property {string} [note]  limitation of this version
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { expandPattern } from './expand-pattern.mjs';
import { findExecutable, isExecutable } from './paths.mjs';
import { choosePostgresPackages } from './packages/postgres-packages.mjs';
import { inspectPostgres, MINIMUM_MAJOR } from './postgres.mjs';
import { run } from './run-command.mjs';
import { compareVersions } from './version.mjs';

const VERSION_TIMEOUT_MS = 20_000;

/** @type {Prerequisite[]} */
export const PREREQUISITES = [
  {
    name: 'qemu',
    purpose: 'runs the sandboxes',
    scope: 'run',
    executable: 'qemu-system-x86_64',
    versionArguments: ['--version'],
    versionPattern: /version (\d+(?:\.\d+)+)/,
    minimum: '8.2', // private mappings of a read-only RAM file
    packages: ['qemu-system-x86'],
    note: {
      below: '9.0',
      text: 'QEMU before 9.0 cannot be handed an open /dev/kvm: sandboxes are emulated, several times slower',
    },
  },
  {
    name: 'qemu-img',
    purpose: "checks sandboxes' disks in tests",
    scope: 'tests',
    executable: 'qemu-img',
    versionArguments: ['--version'],
    versionPattern: /version (\d+(?:\.\d+)+)/,
    minimum: '8.2',
    packages: ['qemu-utils'],
  },
  {
    name: 'nft',
    purpose: "guests' firewall",
    scope: 'run',
    executable: 'nft',
    packages: ['nftables'],
    dispensable: true,
  },
  {
    name: 'ip',
    purpose: "guests' network",
    scope: 'run',
    executable: 'ip',
    packages: ['iproute2'],
    dispensable: true,
  },
  {
    name: 'tar2sqfs',
    purpose: 'packs images',
    scope: 'run',
    executable: 'tar2sqfs',
    packages: ['squashfs-tools-ng'],
  },
  {
    name: 'mke2fs',
    purpose: 'formats scratch disks',
    scope: 'run',
    executable: 'mke2fs',
    packages: ['e2fsprogs'],
  },
  {
    name: 'postgres',
    purpose: "the service's database",
    scope: 'run',
    inspect: inspectPostgres,
    minimum: String(MINIMUM_MAJOR),
    packages: ['postgresql'],
    choosePackages: choosePostgresPackages,
  },
  {
    name: 'setpriv',
    purpose: 'drops privileges',
    scope: 'run',
    executable: 'setpriv',
    packages: ['util-linux'],
  },
  {
    name: 'mmdebstrap',
    purpose: 'builds the base image',
    scope: 'run',
    executable: 'mmdebstrap',
    packages: ['mmdebstrap'],
    dispensable: true,
  },
  {
    name: 'xz',
    purpose: "unpacks the guest kernel's modules",
    scope: 'run',
    executable: 'xz',
    packages: ['xz-utils'],
    dispensable: true,
  },
  {
    name: 'zstd',
    purpose: "unpacks the guest kernel's modules",
    scope: 'run',
    executable: 'zstd',
    packages: ['zstd'],
    dispensable: true,
  },
  {
    name: 'certificates',
    purpose: 'HTTPS to registries',
    scope: 'run',
    file: '/etc/ssl/certs/ca-certificates.crt',
    packages: ['ca-certificates'],
  },
  {
    name: 'go',
    purpose: "builds the guest agent and QEMU's launcher",
    scope: 'run',
    executable: 'go',
    searchPatterns: ['/usr/local/go/bin', '/usr/lib/go-*/bin'],
    versionArguments: ['version'],
    versionPattern: /go(\d+(?:\.\d+)+)/,
    minimum: '1.23',
    packages: ['golang-go'],
    newerPackages: ['golang-1.24-go', 'golang-1.23-go'],
    dispensable: true,
  },
  {
    name: 'docker-registry',
    purpose: 'a real registry for the tests',
    scope: 'tests',
    executable: 'docker-registry',
    packages: ['docker-registry'],
    services: ['docker-registry'],
  },
  { name: 'curl', purpose: 'a client for the tests', scope: 'tests', executable: 'curl', packages: ['curl'] },
  {
    name: 'openssl',
    purpose: 'certificates for the tests',
    scope: 'tests',
    executable: 'openssl',
    packages: ['openssl'],
  },
  {
    name: 'ssh',
    purpose: 'a client for the tests, with scp and sftp',
    scope: 'tests',
    executable: 'ssh',
    packages: ['openssh-client'],
  },
  {
    name: 'rsync',
    purpose: 'a client for the tests',
    scope: 'tests',
    executable: 'rsync',
    packages: ['rsync'],
  },
  { name: 'git', purpose: 'a client for the tests', scope: 'tests', executable: 'git', packages: ['git'] },
  {
    name: 'busybox',
    purpose: 'a static program for the images of the tests',
    scope: 'tests',
    executable: 'busybox',
    packages: ['busybox-static'],
  },
  {
    name: 'wrk',
    purpose: 'many requests at once, for the tests',
    scope: 'tests',
    executable: 'wrk',
    packages: ['wrk'],
  },
  {
    name: 'chromium',
    purpose: 'a browser for the tests',
    scope: 'tests',
    executable: 'chromium',
    packages: ['chromium'],
  },
  {
    name: 'python',
    purpose: 'checks the API against its description, and the Python client, in the tests',
    scope: 'tests',
    executable: 'python3',
    // A venv needs ensurepip, which Debian has in a separate package.
    versionArguments: ['-c', 'import ensurepip, sys; print("version", sys.version)'],
    versionPattern: /version (\d+(?:\.\d+)+)/,
    minimum: '3.10',
    packages: ['python3-venv'],
  },
  {
    name: 'podman',
    purpose: 'comparison in the benchmark',
    scope: 'bench',
    executable: 'podman',
    packages: ['podman'],
  },
  {
    name: 'runc',
    purpose: 'comparison in the benchmark',
    scope: 'bench',
    executable: 'runc',
    packages: ['runc'],
  },
];

/** @param {Prerequisite} prerequisite */
export function remedyFor(prerequisite) {
  const option = { run: '', tests: ' -- --tests', bench: ' -- --bench' }[prerequisite.scope];
  const minimum = prerequisite.minimum === undefined ? '' : ` (${prerequisite.minimum} or newer)`;
  return `npm run setup${option} as root   or: ${installLine([prerequisite])}${minimum}`;
}

/**
 * @param {readonly Prerequisite[]} prerequisites
 * @returns {string} the command for a person to run
 */
export function installLine(prerequisites) {
  const packages = prerequisites.flatMap((prerequisite) => prerequisite.packages);
  return `apt-get install --no-install-recommends ${[...new Set(packages)].join(' ')}`;
}

/**
 * @param {Prerequisite} prerequisite
 * @returns {Promise<Finding>}
 */
export async function inspect(prerequisite) {
  if (prerequisite.inspect !== undefined) return { prerequisite, ...(await prerequisite.inspect()) };
  if (prerequisite.file !== undefined) {
    const ok = existsSync(prerequisite.file);
    return {
      prerequisite,
      ok,
      path: prerequisite.file,
      detail: ok ? prerequisite.file : `${prerequisite.file} does not exist`,
    };
  }
  /** @type {Finding} */
  let best = { prerequisite, ok: false, detail: 'not installed' };
  for (const path of candidatePaths(prerequisite)) {
    const finding = await inspectExecutable(prerequisite, path);
    if (finding.ok) return finding;
    best = finding;
  }
  return best;
}

/** @param {Prerequisite} prerequisite */
function candidatePaths(prerequisite) {
  const name = prerequisite.executable ?? prerequisite.name;
  const elsewhere = (prerequisite.searchPatterns ?? [])
    .flatMap(expandPattern)
    .map((directory) => join(directory, name));
  const paths = [findExecutable(name), ...elsewhere].filter((path) => path !== undefined);
  return [...new Set(paths)].filter(isExecutable);
}

/**
 * @param {Prerequisite} prerequisite
 * @param {string} path
 * @returns {Promise<Finding>}
 */
async function inspectExecutable(prerequisite, path) {
  const { versionArguments, versionPattern, minimum } = prerequisite;
  if (versionArguments === undefined || versionPattern === undefined)
    return { prerequisite, ok: true, path, detail: path };
  const result = await run(path, versionArguments, {
    step: `asking ${path} for its version`,
    timeoutMs: VERSION_TIMEOUT_MS,
    allowFailure: true,
    env: { GOTOOLCHAIN: 'local' },
  });
  const version = versionPattern.exec(result.stdout)?.[1];
  if (version === undefined)
    return { prerequisite, ok: false, path, detail: `${path} does not print its version` };
  const ok = minimum === undefined || compareVersions(version, minimum) >= 0;
  return {
    prerequisite,
    ok,
    path,
    version,
    ...noteOf(prerequisite, version),
    detail: ok ? `${version} (${path})` : `${version} (${path}) is older than ${minimum}`,
  };
}

/**
 * @param {Prerequisite} prerequisite
 * @param {string} version
 */
function noteOf({ note }, version) {
  return note !== undefined && compareVersions(version, note.below) < 0 ? { note: note.text } : {};
}

/**
 * @param {readonly Scope[]} scopes
 * @returns {Promise<Finding[]>}
 */
export async function inspectAll(scopes) {
  return Promise.all(
    PREREQUISITES.filter((prerequisite) => scopes.includes(prerequisite.scope)).map(inspect),
  );
}
