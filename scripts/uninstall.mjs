import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { ENVIRONMENT_PATH } from './service/environment-file.mjs';
import { uninstall } from './service/uninstall.mjs';
import { runMain } from './setup/entry.mjs';
import { readSetting, SYSTEM_ASSETS } from './setup/paths.mjs';

const USAGE = `npm run uninstall [-- options]

Stops the service, ends its sandboxes, and takes away what it holds on this machine.
  --purge        data, assets, configuration and account as well
  --root <dir>   <dir> stands for / in all paths that no setting names; leaves systemd and accounts alone
`;

const SYSTEM_PATHS = {
  COPPICE_DATA_DIR: '/var/lib/coppice',
  COPPICE_RUN_DIR: '/run/coppice',
  COPPICE_ASSETS_DIR: SYSTEM_ASSETS,
};

/**
 * What is not set there must not fall back to the machine's own directories.
 * @param {string} root
 */
function settleIn(root) {
  process.env['COPPICE_CONFIG'] = join(root, ENVIRONMENT_PATH);
  for (const [name, path] of Object.entries(SYSTEM_PATHS))
    process.env[name] = readSetting(name, join(root, path));
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
