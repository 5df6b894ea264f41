import { DASHBOARD } from './dashboard.mjs';
import { DOCUMENTATION } from './documentation.mjs';
import { ensureSite } from './site.mjs';

/**
 * Builds the sites that control serves. Returns their part of the manifest, without those that could not be built.
 * @param {string} node
 * @param {{ isRequired: boolean }} options  `isRequired`: a build that fails is an error
 * @returns {Promise<Pick<import('../manifest.mjs').Manifest, 'docs' | 'dashboard'>>}
 */
export async function ensureSites(node, options) {
  const docs = await ensureSite(DOCUMENTATION, node, options);
  const dashboard = await ensureSite(DASHBOARD, node, options);
  return {
    ...(docs === undefined ? {} : { docs: { path: docs } }),
    ...(dashboard === undefined ? {} : { dashboard: { path: dashboard } }),
  };
}
