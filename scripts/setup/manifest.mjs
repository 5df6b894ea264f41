import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { writeJson } from './json-file.mjs';
import { manifestPath } from './paths.mjs';

/**
 * The paths that set-up passes on to the server.
 * @typedef {object} Manifest
 * @property {1} version
 * @property {{ path: string, release: string }} kernel
 * @property {{ path: string }} initramfs
 * @property {{ path: string }} jail  the launcher that becomes QEMU
 * @property {{ path: string }} capture  the program that writes the memory of VMs to files
 * @property {{ path: string }} hostctl  the program that asks the kernel for the runner
 * @property {{ path: string }} blocks  the server of persistent disks
 * @property {{ path: string }} [docs]  the documentation: a directory; absent if it could not be built
 * @property {{ path: string }} [dashboard]  likewise
 * @property {{ layout_path: string, reference: string }} base_image
 * @property {{ path: string, version: string }} qemu
 * @property {{ path: string }} tar2sqfs
 * @property {{ path: string }} nft
 * @property {{ path: string }} ip
 * @property {{ path: string }} mke2fs
 * @property {{ path: string }} setpriv
 * @property {{ path: string }} [postgres_bin]  a directory; absent if DATABASE_URL makes it unnecessary
 * @property {{ path: string }} node
 */

/** @param {Manifest} manifest */
export async function writeManifest(manifest) {
  await writeJson(manifestPath(), manifest);
}

/** @returns {Promise<Manifest | undefined>} */
export async function findManifest() {
  const path = manifestPath();
  return existsSync(path) ? JSON.parse(await readFile(path, 'utf8')) : undefined;
}
