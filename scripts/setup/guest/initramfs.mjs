import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ensureArtefact } from '../artefact.mjs';
import { buildCpio, DIRECTORY, EXECUTABLE, REGULAR } from './cpio.mjs';
import { fileHash } from '../hash.mjs';
import { say } from '../report.mjs';

/**
 * Builds the initramfs: the agent as /init, the modules that the agent loads at boot, and those that it loads on demand. It
 * is not compressed, because the emulated CPU of a machine without KVM would have to unpack it at every cold boot. Only
 * the modules for later are, because they stay in the guest's memory.
 * @param {{ kernel: import('./kernel.mjs').Kernel, agentPath: string }} parts
 * @returns {Promise<string>} path of the archive
 */
export async function ensureInitramfs({ kernel, agentPath }) {
  const directory = await ensureArtefact({
    kind: 'initramfs',
    recipe: { version: 2, kernel: kernel.directory, agent: await fileHash(agentPath) },
    build: async (target) => {
      say('making the initramfs');
      await writeFile(join(target, 'initramfs.cpio'), await buildInitramfs(kernel, agentPath));
    },
  });
  return join(directory, 'initramfs.cpio');
}

/**
 * @param {import('./kernel.mjs').Kernel} kernel
 * @param {string} agentPath
 */
async function buildInitramfs(kernel, agentPath) {
  const readFiles = (/** @type {string} */ folder, /** @type {readonly string[]} */ names) =>
    Promise.all(
      names.map(async (name) => ({
        name: `${folder}/${name}`,
        mode: REGULAR,
        content: await readFile(join(kernel.directory, folder, name)),
      })),
    );
  return buildCpio([
    ...['proc', 'sys', 'dev', 'run', 'modules', 'on-demand'].map((name) => ({ name, mode: DIRECTORY })),
    { name: 'init', mode: EXECUTABLE, content: await readFile(agentPath) },
    {
      name: 'modules/order',
      mode: REGULAR,
      content: Buffer.from(kernel.modules.map((name) => `${name}\n`).join('')),
    },
    ...(await readFiles('modules', kernel.modules)),
    ...(await readFiles('on-demand', kernel.onDemand)),
  ]);
}
