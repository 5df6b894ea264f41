import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { installService } from './service/install.mjs';
import { runMain } from './setup/entry.mjs';
import { getNode } from './setup/node-runtime.mjs';
import { sayDone } from './setup/report.mjs';
import { setUp } from './setup/setup.mjs';

const USAGE = `npm run install-service [-- options]

Runs set-up, then installs Coppice as a systemd service.
  --root <dir>   only writes the files, below <dir>
`;

await runMain(async (args) => {
  const { values } = parseArgs({ args, options: { root: { type: 'string', default: '/' } } });
  const root = resolve(values.root);
  if (root === '/') {
    await setUp({});
    sayDone();
  }
  await installService({
    node: getNode(),
    root,
    say: (text) => process.stdout.write(`${text}\n`),
  });
  return 0;
}, USAGE);
