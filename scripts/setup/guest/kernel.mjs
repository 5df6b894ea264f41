/**
 * Takes the guest's kernel, the distribution's own cloud kernel, out of its package. The package is never installed:
 * its installation would run hooks that make it the kernel of the host's next boot.
 */
import { existsSync } from 'node:fs';
import { chmod, copyFile, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { findCandidate, unpackPackage, updateOnce } from '../packages/apt.mjs';
import { ensureArtefact } from '../artefact.mjs';
import { openModuleTree, orderModules } from './kernel-modules.mjs';
import { chooseOnDemand, ON_DEMAND, writeOnDemand } from './on-demand-modules.mjs';
import { readOperatingSystem } from '../operating-system.mjs';
import { isReadable } from '../paths.mjs';
import { say } from '../report.mjs';
import { run } from '../run-command.mjs';
import { describeError, SetupError } from '../setup-error.mjs';
import { compareVersions } from '../version.mjs';

const QUERY_TIMEOUT_MS = 60_000;

/**
 * `required`: modules that a guest needs to run. `optional`: modules for common uses (FUSE file systems, VPNs), and
 * those by which the agent resets connections after a fork or restore.
 */
const MODULES = {
  required: ['virtio_mmio', 'virtio_console', 'virtio_blk', 'virtio_net', 'squashfs', 'ext4', 'overlay'],
  // crc32c_generic: checksums of ext4, for kernels that have it as a module and declare no dependency on it.
  optional: ['crc32c_generic', 'fuse', 'tun', 'tcp_diag', 'udp_diag'],
};

/**
 * By distribution: packages that always depend on the current kernel, the one for VMs first. Each of them will do; its
 * modules are then checked one by one.
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
 * @property {string[]} onDemand file names below `directory`/on-demand
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
    recipe: { version: 2, metaPackage, codename: system.codename, modules: MODULES, onDemand: ON_DEMAND },
    refresh: options.refresh,
    build: (target) => buildKernel(metaPackages, target),
  });
  const { release, modules } = JSON.parse(await readFile(join(directory, 'kernel.json'), 'utf8'));
  const onDemand = (await readdir(join(directory, 'on-demand'))).sort();
  return { directory, path: join(directory, 'vmlinuz'), release, modules, onDemand };
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
      `${describeError(error)}\n  using the kernel ${release}, which is installed on this machine, instead`,
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
  const separate = await findCandidate(`linux-modules-${release}`); // Ubuntu has the modules in a separate package
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
  await chmod(path, 0o644); // on Ubuntu only root may read it, but each VM reads it under its own user id
  const modules = await writeModules(await findModulesDirectory(root, release), directory);
  await writeFile(join(directory, 'kernel.json'), JSON.stringify({ release, package: origin, modules }));
}

/** @param {string} imagePackage */
function releaseOf(imagePackage) {
  return imagePackage.replace(/^linux-image-/, '');
}

/**
 * @returns {Promise<string | undefined>} the newest of the distribution's kernels whose files are all here and readable
 */
async function findInstalledRelease() {
  if (!existsSync('/lib/modules')) return undefined;
  const releases = (await readdir('/lib/modules')).sort((a, b) => compareVersions(b, a));
  for (const release of releases) {
    const path = `/boot/vmlinuz-${release}`;
    if (!isReadable(path) || !existsSync(`/lib/modules/${release}/modules.builtin`)) continue;
    const owner = await run('dpkg-query', ['--search', path], {
      step: `looking up which package ${path} belongs to`,
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
 * @param {string} directory
 * @returns {Promise<string[]>} file names of the modules that are loaded at boot, in order
 */
async function writeModules(source, directory) {
  const tree = await openModuleTree(source);
  const modules = orderModules(tree, MODULES);
  const target = join(directory, 'modules');
  await mkdir(target);
  for (const { name, content } of modules) await writeFile(join(target, `${name}.ko`), content);
  const names = modules.map(({ name }) => name);
  await writeOnDemand(chooseOnDemand(tree, names), join(directory, 'on-demand'));
  return names.map((name) => `${name}.ko`);
}

/**
 * @param {readonly string[]} metaPackages
 * @returns {Promise<{ name: string, version: string } | undefined>}
 */
async function findImagePackage(metaPackages) {
  // Old package lists may name a version that the mirror no longer has.
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
  return new SetupError(`apt knows no guest kernel package (${metaPackages.join(', ')})`, {
    remedy: 'run apt-get update as root, resolve what it reports, then run npm run setup again',
  });
}
