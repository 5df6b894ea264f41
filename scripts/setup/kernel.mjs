/**
 * The guest's kernel is the distribution's own cloud kernel, taken out of its package. It is never installed:
 * installing would run the hooks that make it the host's next boot.
 */
import { existsSync } from 'node:fs';
import { chmod, copyFile, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { findCandidate, unpackPackage, updateOnce } from './apt.mjs';
import { ensureArtefact } from './artefact.mjs';
import { openModuleTree, orderModules } from './kernel-modules.mjs';
import { readOperatingSystem } from './operating-system.mjs';
import { isReadable } from './paths.mjs';
import { say } from './report.mjs';
import { run } from './run-command.mjs';
import { describeError, SetupError } from './setup-error.mjs';
import { compareVersions } from './version.mjs';

const QUERY_TIMEOUT_MS = 60_000;

/**
 * What a guest needs to run, then what its user commonly wants (FUSE file systems, VPNs), and what resets its
 * connections after a fork or restore.
 */
const MODULES = {
  required: ['virtio_mmio', 'virtio_console', 'virtio_blk', 'virtio_net', 'squashfs', 'ext4', 'overlay'],
  // ext4's checksums, where the generic one is a module of its own that nothing names as a dependency.
  optional: ['crc32c_generic', 'fuse', 'tun', 'tcp_diag', 'udp_diag'],
};

/**
 * By distribution: packages that always depend on the current kernel, that for virtual machines first. Any of them
 * does; whether it has what a guest needs is looked up module by module.
 */
const META_PACKAGES = new Map([
  ['debian', ['linux-image-cloud-amd64', 'linux-image-amd64']],
  ['ubuntu', ['linux-image-virtual', 'linux-image-generic']],
]);

/**
 * @typedef {object} Kernel
 * @property {string} directory
 * @property {string} path       bzImage
 * @property {string} release
 * @property {string[]} modules  file names in load order, below `directory`/modules
 *
 * @param {{ refresh: boolean }} options
 * @returns {Promise<Kernel>}
 */
export async function ensureKernel(options) {
  const system = await readOperatingSystem();
  const metaPackages = META_PACKAGES.get(system.id);
  const [metaPackage] = metaPackages ?? [];
  if (metaPackages === undefined || metaPackage === undefined) {
    throw new SetupError(`no guest kernel package is known for ${system.name}`, {
      remedy: 'use Debian 12 or newer, or Ubuntu 24.04 or newer',
    });
  }
  const directory = await ensureArtefact({
    kind: 'kernel',
    recipe: { version: 1, metaPackage, codename: system.codename, modules: MODULES },
    refresh: options.refresh,
    build: (target) => buildKernel(metaPackages, target),
  });
  const { release, modules } = JSON.parse(await readFile(join(directory, 'kernel.json'), 'utf8'));
  return { directory, path: join(directory, 'vmlinuz'), release, modules };
}

/**
 * @param {readonly string[]} metaPackages
 * @param {string} directory
 */
async function buildKernel(metaPackages, directory) {
  const image = await findImagePackage(metaPackages);
  const unpacked = join(directory, 'unpacked');
  await mkdir(unpacked);
  try {
    if (image === undefined) throw unknownKernel(metaPackages);
    await unpackImage(image, unpacked);
    await takeKernel({ root: unpacked, release: releaseOf(image.name), origin: image }, directory);
  } catch (error) {
    const release = await findInstalledRelease();
    if (release === undefined) throw error;
    say(
      `${describeError(error)}\n  the kernel ${release}, which is installed on this machine, is taken instead`,
    );
    await takeKernel({ root: '/', release, origin: 'installed' }, directory);
  }
  await rm(unpacked, { recursive: true });
}

/**
 * @param {{ name: string, version: string }} image
 * @param {string} target
 */
async function unpackImage(image, target) {
  const release = releaseOf(image.name);
  say(`taking the guest kernel ${release} out of ${image.name}`);
  await unpackPackage(image, target);
  const separate = await findCandidate(`linux-modules-${release}`); // Ubuntu keeps modules in a package of their own
  if (separate !== undefined)
    await unpackPackage({ name: `linux-modules-${release}`, version: separate.version }, target);
}

/**
 * @param {{ root: string, release: string, origin: unknown }} source
 * @param {string} directory
 */
async function takeKernel({ root, release, origin }, directory) {
  const path = join(directory, 'vmlinuz');
  await copyFile(join(root, 'boot', `vmlinuz-${release}`), path);
  await chmod(path, 0o644); // Ubuntu's is for root alone, and each VM reads it as a user of its own
  const modules = await writeModules(await findModulesDirectory(root, release), join(directory, 'modules'));
  await writeFile(join(directory, 'kernel.json'), JSON.stringify({ release, package: origin, modules }));
}

/** @param {string} imagePackage */
function releaseOf(imagePackage) {
  return imagePackage.replace(/^linux-image-/, '');
}

/**
 * @returns {Promise<string | undefined>} the newest kernel of the distribution's whose files are all here and ours
 *   to read
 */
async function findInstalledRelease() {
  if (!existsSync('/lib/modules')) return undefined;
  const releases = (await readdir('/lib/modules')).sort((a, b) => compareVersions(b, a));
  for (const release of releases) {
    const path = `/boot/vmlinuz-${release}`;
    if (!isReadable(path) || !existsSync(`/lib/modules/${release}/modules.builtin`)) continue;
    const owner = await run('dpkg-query', ['--search', path], {
      step: `asking which package ${path} is of`,
      timeoutMs: QUERY_TIMEOUT_MS,
      allowFailure: true,
    });
    if (owner.exitCode === 0) return release;
  }
  return undefined;
}

/**
 * @param {string} unpacked
 * @param {string} release
 */
async function findModulesDirectory(unpacked, release) {
  const roots = await readdir(unpacked);
  return join(unpacked, ...(roots.includes('lib') ? ['lib'] : ['usr', 'lib']), 'modules', release);
}

/**
 * @param {string} source
 * @param {string} target
 */
async function writeModules(source, target) {
  const modules = orderModules(await openModuleTree(source), MODULES);
  await mkdir(target);
  for (const { name, content } of modules) await writeFile(join(target, `${name}.ko`), content);
  return modules.map(({ name }) => `${name}.ko`);
}

/**
 * @param {readonly string[]} metaPackages
 * @returns {Promise<{ name: string, version: string } | undefined>}
 */
async function findImagePackage(metaPackages) {
  // Old lists name a package version that the mirror no longer has.
  await updateOnce();
  for (const metaPackage of metaPackages) {
    const meta = await findCandidate(metaPackage);
    const name = /\b(linux-image-\d[^\s,(]*)/.exec(meta?.depends ?? '')?.[1];
    const image = name === undefined ? undefined : await findCandidate(name);
    if (name !== undefined && image !== undefined) return { name, version: image.version };
  }
  return undefined;
}

/** @param {readonly string[]} metaPackages */
function unknownKernel(metaPackages) {
  return new SetupError(`apt knows no package of a guest kernel (${metaPackages.join(', ')})`, {
    remedy: 'apt-get update as root, look at what it says, then run npm run setup again',
  });
}
