import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { choosePaths, CONFIGURATION_FILE } from '../packages/server/src/config/default-paths.mjs';
import { uninstall } from './service/uninstall.mjs';
import { runMain } from './setup/entry.mjs';
import { findSetting } from './setup/paths.mjs';

const USAGE = `npm run uninstall [-- options]

Stops the service, destroys its sandboxes, and removes the service from this machine.
  --purge        also removes data, assets, configuration and account
  --root <dir>   uses <dir> in place of / in all paths that no setting names; leaves systemd and accounts alone
`;

/**
 * Moves the configuration file, and all paths that no setting names, below `root`: they must not fall back to the
 * machine's own directories.
 * @param {string} root
 */
function settleIn(root) {
  process.env['COPPICE_CONFIG'] = join(root, CONFIGURATION_FILE);
  const nothing = { dataDir: undefined, runDir: undefined, assetsDir: undefined };
  const { dataDir, runDir, assetsDir } = choosePaths(nothing, 0, {});
  const hasDataDir = findSetting('COPPICE_DATA_DIR') !== undefined;
  const defaults = {
    COPPICE_DATA_DIR: dataDir,
    COPPICE_ASSETS_DIR: assetsDir,
    // With a configured data directory, the run directory is derived from it.
    ...(hasDataDir ? {} : { COPPICE_RUN_DIR: runDir }),
  };
  for (const [name, path] of Object.entries(defaults))
    process.env[name] = findSetting(name) ?? join(root, path);
}

await runMain(async (args) => {
  const { values } = parseArgs({
    args,
    options: { purge: { type: 'boolean', default: false }, root: { type: 'string', default: '/' } },
  });
  const root = resolve(values.root);
  if (root !== '/') settleIn(root);
  const report = await uninstall({ purge: values.purge, root });
  process.stdout.write(report.format());
  return 0;
}, USAGE);
