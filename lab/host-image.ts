/**
 * Builds the disk of an emulated host: a fresh Debian with systemd, a kernel that has KVM for AMD, ssh, and the
 * README's requirements. It gets this machine's settings for package registries, which fit its network.
 */
import {
  appendFile,
  chmod,
  copyFile,
  mkdir,
  mkdtemp,
  readdir,
  rename,
  rm,
  truncate,
  writeFile,
} from 'node:fs/promises';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { readAptSources } from '../scripts/setup/packages/apt-sources.mjs';
import { assetsDirectory, REPOSITORY } from '../scripts/setup/paths.mjs';
import { GUARD_PATH, GUARD_TEXT } from '../scripts/setup/packages/postgres-packages.mjs';
import { PREREQUISITES } from '../scripts/setup/prerequisites.mjs';
import { say } from '../scripts/setup/report.mjs';
import { run } from '../scripts/setup/run-command.mjs';
import { SetupError } from '../scripts/setup/setup-error.mjs';

const BUILD_TIMEOUT_MS = 60 * 60_000;
const TOOL_TIMEOUT_MS = 10 * 60_000;
const DISK_GIB = 24;
export type Debian = 12 | 13;

const SUITES: Record<Debian, string> = { 12: 'bookworm', 13: 'trixie' };
const PACKAGES = [
  'systemd-sysv',
  'systemd-timesyncd',
  'dbus',
  'udev',
  'zstd',
  'linux-image-amd64',
  'openssh-server',
  'iproute2',
  'ca-certificates',
  'nodejs',
  'npm',
  'git',
  'curl',
  'kmod',
  'procps',
];
/** A machine without internet access may use an old copy of the archive. */
const APT_OPTIONS = ['Acquire::Check-Valid-Until "false"', 'Acquire::Check-Date "false"'];
/** Built parts that do not depend on the release of Debian. */
const BUILT_PARTS = ['agent', 'base-image', 'capture', 'jail'];
/** Installs PostgreSQL as set-up does: without a database of its own. */
const WITHOUT_CLUSTER = `mkdir -p "$1${dirname(GUARD_PATH)}" && printf '%s' '${GUARD_TEXT}' > "$1${GUARD_PATH}"`;
/** Directory of Coppice on the host. */
export const CHECKOUT = '/opt/coppice';
/** DNS server of the network that QEMU provides for the host. */
const RESOLVER = '10.0.2.3';
const CERTIFICATES = '/usr/local/share/ca-certificates';
const CLIENT_SETTINGS =
  /^(?:NODE_EXTRA_CA_CERTS|SSL_CERT_FILE|SSL_CERT_DIR|CURL_CA_BUNDLE|GIT_SSL_CAINFO|GOPROXY|GOFLAGS|GONOSUMDB|GOSUMDB|[A-Za-z_]*_proxy|[A-Z_]*_PROXY|npm_config_[a-z_]*)$/u;

export interface HostImageOptions {
  /** Directory of all files of the host. */
  home: string;
  debian: Debian;
  /** Includes packages and built parts that set-up would otherwise download, unpack and build under emulation. */
  quick: boolean;
}

export interface HostImage {
  disk: string;
  kernel: string;
  initrd: string;
  /** Private key for root's ssh. */
  key: string;
}

/** Builds the image unless it exists. */
export async function ensureHostImage({ home, debian, quick }: HostImageOptions): Promise<HostImage> {
  const image = nameHostImage(home);
  if (existsSync(image.disk)) return image;
  await mkdir(home, { recursive: true });
  const root = await mkdtemp(join(home, 'root-'));
  try {
    await chmod(root, 0o755);
    await bootstrap(root, debian, quick ? findPreparedPackages(debian) : []);
    await configure(root, image);
    if (quick) await copyBuiltParts(root);
    for (const name of await readdir(join(root, 'boot'))) {
      if (name.startsWith('vmlinuz-')) await copyFile(join(root, 'boot', name), image.kernel);
      if (name.startsWith('initrd.img-')) await copyFile(join(root, 'boot', name), image.initrd);
    }
    const draft = `${image.disk}.new`;
    await writeFile(draft, '', { mode: 0o600 });
    await truncate(draft, DISK_GIB * 1024 ** 3);
    const step = "making the host's disk";
    await run('mke2fs', ['-q', '-F', '-t', 'ext4', '-d', root, draft], { step, timeoutMs: TOOL_TIMEOUT_MS });
    await rename(draft, image.disk);
    return image;
  } finally {
    await rm(root, { recursive: true, force: true });
  }
}

export function nameHostImage(home: string): HostImage {
  return {
    disk: join(home, 'fresh.img'),
    kernel: join(home, 'vmlinuz'),
    initrd: join(home, 'initrd'),
    key: join(home, 'key'),
  };
}

/**
 * Finds the packages to include. Those that are too old in Debian 12 come from its backports, which set-up adds itself.
 */
function findPreparedPackages(debian: Debian): string[] {
  return PREREQUISITES.filter(
    ({ scope, minimum }) => scope === 'run' && (debian > 12 || minimum === undefined),
  ).flatMap(({ packages }) => packages);
}

async function bootstrap(root: string, debian: Debian, prepared: string[]): Promise<void> {
  const archive = findDebianArchive();
  say(`building a host with Debian ${debian}: this takes some minutes`);
  const options = APT_OPTIONS.map((option) => `--aptopt=${option}`);
  const include = `--include=${[...PACKAGES, ...prepared].join(',')}`;
  const words = [
    'mmdebstrap',
    '--quiet',
    '--variant=apt',
    include,
    `--essential-hook=${WITHOUT_CLUSTER}`,
    ...options,
    SUITES[debian],
    root,
    archive,
  ];
  // In a mount namespace of its own, the bind mounts that mmdebstrap makes in the tree end with it.
  await run('unshare', ['--mount', '--propagation', 'private', ...words], {
    step: `installing Debian ${debian}`,
    timeoutMs: BUILD_TIMEOUT_MS,
  });
}

function findDebianArchive(): string {
  const sources = readAptSources().filter(({ suites }) =>
    suites.some((suite) => Object.values(SUITES).includes(suite)),
  );
  const archive = sources.find(({ components }) => components.includes('main'));
  if (archive !== undefined) return archive.uri;
  throw new SetupError(`no apt source of Debian is configured (${Object.values(SUITES).join(', ')})`, {
    remedy: 'run the lab on Debian 12 or 13',
  });
}

async function configure(root: string, { key }: HostImage): Promise<void> {
  const at = (path: string): string => join(root, path);
  const chroot = (...command: string[]) =>
    run('chroot', [root, ...command], { step: command.join(' '), timeoutMs: TOOL_TIMEOUT_MS });
  await mkdir(at(CERTIFICATES), { recursive: true });
  for (const name of existsSync(CERTIFICATES) ? await readdir(CERTIFICATES) : [])
    await copyFile(join(CERTIFICATES, name), at(join(CERTIFICATES, name)));
  await chroot('update-ca-certificates');
  await writeFile(at('etc/apt/apt.conf.d/99lab'), APT_OPTIONS.map((option) => `${option};\n`).join(''));
  await appendFile(at('etc/environment'), findClientSettings());
  const npmrc = join(process.env['HOME'] ?? '/root', '.npmrc');
  if (existsSync(npmrc)) {
    const lines = readFileSync(npmrc, 'utf8').split('\n');
    await writeFile(at('root/.npmrc'), lines.filter((line) => !line.startsWith('nodedir')).join('\n'));
  }
  await writeFile(at('etc/systemd/network/20-lab.network'), '[Match]\nName=en* eth*\n[Network]\nDHCP=yes\n');
  await rm(at('etc/resolv.conf'), { force: true });
  await writeFile(at('etc/resolv.conf'), `nameserver ${RESOLVER}\n`);
  await chroot('systemctl', 'enable', 'systemd-networkd', 'ssh', 'serial-getty@ttyS0');
  await rm(key, { force: true });
  const makeKey = ['-q', '-t', 'ed25519', '-N', '', '-f', key];
  await run('ssh-keygen', makeKey, { step: 'making a key', timeoutMs: TOOL_TIMEOUT_MS });
  await mkdir(at('root/.ssh'), { recursive: true, mode: 0o700 });
  await copyFile(`${key}.pub`, at('root/.ssh/authorized_keys'));
  await chmod(at('root/.ssh/authorized_keys'), 0o600);
  await writeFile(at('etc/hostname'), 'lab\n');
  await writeFile(at('etc/hosts'), '127.0.0.1 localhost lab\n');
  await writeFile(at('etc/fstab'), '/dev/vda / ext4 defaults 0 1\n');
  await writeFile(at('etc/modules-load.d/kvm.conf'), 'kvm_amd\n');
  await writeFile(at('etc/modprobe.d/kvm.conf'), 'options kvm_amd nested=0\n');
}

/**
 * Copies parts that set-up would build or download on the host, as far as this machine has them. Set-up still builds a
 * part whose recipe differs.
 */
async function copyBuiltParts(root: string): Promise<void> {
  const assets = join(root, 'var/lib/coppice/assets');
  await mkdir(assets, { recursive: true });
  const parts = BUILT_PARTS.map((kind) => join(assetsDirectory(), kind));
  await copyWhole(parts, assets);
  const cache = join(process.env['HOME'] ?? '/root', '.npm', '_cacache');
  await mkdir(join(root, 'root/.npm'), { recursive: true });
  await copyWhole([cache], join(root, 'root/.npm'));
  const checkout = join(root, CHECKOUT);
  await mkdir(checkout, { recursive: true });
  await copyWhole([join(REPOSITORY, 'node_modules')], checkout);
}

async function copyWhole(directories: string[], to: string): Promise<void> {
  const found = directories.filter((directory) => existsSync(directory));
  if (found.length === 0) return;
  const step = "copying this machine's built parts";
  await run('cp', ['-a', ...found, to], { step, timeoutMs: TOOL_TIMEOUT_MS });
}

/** Returns the settings of this machine's package clients, for /etc/environment. */
function findClientSettings(): string {
  return Object.entries(process.env)
    .filter(([name, value]) => CLIENT_SETTINGS.test(name) && value !== undefined)
    .map(([name, value]) => `${name}=${value}\n`)
    .join('');
}
