/**
 * The guest's kernel is the distribution's own cloud kernel, taken out of its package. It is never installed:
 * installing would run the hooks that make it the host's next boot.
 */
import { copyFile, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { findCandidate, unpackPackage, updateOnce } from './apt.mjs';
import { ensureArtefact } from './artefact.mjs';
import { openModuleTree, orderModules } from './kernel-modules.mjs';
import { readOperatingSystem } from './operating-system.mjs';
import { say } from './report.mjs';
import { SetupError } from './setup-error.mjs';

/** What a guest needs to run, then what its user commonly wants (FUSE file systems, VPNs). */
const MODULES = {
  required: ['virtio_mmio', 'virtio_console', 'virtio_blk', 'virtio_net', 'squashfs', 'ext4', 'overlay'],
  // ext4's checksums, where the generic one is a module of its own that nothing names as a dependency.
  optional: ['crc32c_generic', 'fuse', 'tun'],
};

/** By distribution: the package that always depends on the current kernel for virtual machines. */
const META_PACKAGES = new Map([
  ['debian', 'linux-image-cloud-amd64'],
  ['ubuntu', 'linux-image-virtual'],
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
  const metaPackage = META_PACKAGES.get(system.id);
  if (metaPackage === undefined) {
    throw new SetupError(`no guest kernel package is known for ${system.name}`, {
      remedy: 'use Debian 12 or newer, or Ubuntu 24.04 or newer',
    });
  }
  const directory = await ensureArtefact({
    kind: 'kernel',
    recipe: { version: 1, metaPackage, codename: system.codename, modules: MODULES },
    refresh: options.refresh,
    build: (target) => buildKernel(metaPackage, target),
  });
  const { release, modules } = JSON.parse(await readFile(join(directory, 'kernel.json'), 'utf8'));
  return { directory, path: join(directory, 'vmlinuz'), release, modules };
}

/**
 * @param {string} metaPackage
 * @param {string} directory
 */
async function buildKernel(metaPackage, directory) {
  const image = await resolveImagePackage(metaPackage);
  const release = image.name.replace(/^linux-image-/, '');
  say(`taking the guest kernel ${release} out of ${image.name}`);
  const unpacked = join(directory, 'unpacked');
  await mkdir(unpacked);
  await unpackPackage(image, unpacked);
  const separate = await findCandidate(`linux-modules-${release}`); // Ubuntu keeps modules in a package of their own
  if (separate !== undefined)
    await unpackPackage({ name: `linux-modules-${release}`, version: separate.version }, unpacked);
  await copyFile(join(unpacked, 'boot', `vmlinuz-${release}`), join(directory, 'vmlinuz'));
  const names = await writeModules(await findModulesDirectory(unpacked, release), join(directory, 'modules'));
  await writeFile(
    join(directory, 'kernel.json'),
    JSON.stringify({ release, package: image, modules: names }),
  );
  await rm(unpacked, { recursive: true });
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
 * @param {string} metaPackage
 * @returns {Promise<{ name: string, version: string }>}
 */
async function resolveImagePackage(metaPackage) {
  // Old lists name a package version that the mirror no longer has.
  await updateOnce();
  const meta = await findCandidate(metaPackage);
  const name = /\b(linux-image-\d[^\s,(]*)/.exec(meta?.depends ?? '')?.[1];
  const image = name === undefined ? undefined : await findCandidate(name);
  if (name === undefined || image === undefined) {
    throw new SetupError(`apt does not know the guest kernel's package ${metaPackage}`, {
      remedy: 'check apt-get update, then run npm run setup again',
    });
  }
  return { name, version: image.version };
}
