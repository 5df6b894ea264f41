import { join } from 'node:path';
import { sourceHash } from '../setup/hash.mjs';
import { REPOSITORY } from '../setup/paths.mjs';
import { CASES } from './cases.mjs';

const HELM = join(REPOSITORY, 'deploy', 'helm');
export const CHART = join(HELM, 'coppice');
export const CHECKER = join(HELM, 'check');
const RENDERED = join(HELM, 'rendered');

/** @param {string} name */
export function renderedPath(name) {
  return join(RENDERED, `${name}.json`);
}

/**
 * Returns what the rendered manifests depend on. It is stored with them.
 * @returns {Promise<{ chart: string, checker: string, cases: typeof CASES }>}
 */
export async function describeSources() {
  const every = () => true;
  return {
    chart: await sourceHash(CHART, every),
    checker: await sourceHash(CHECKER, every),
    cases: CASES,
  };
}
