import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { assertInstallable, installService } from './service/install.mjs';
import { ROLES } from './service/unit.mjs';
import { runMain } from './setup/entry.mjs';
import { getNode } from './setup/node-runtime.mjs';
import { sayDone } from './setup/report.mjs';
import { setUp } from './setup/setup.mjs';
import { SetupError } from './setup/setup-error.mjs';

const USAGE = `npm run install-service [-- options]

Runs set-up, then installs Coppice as a systemd service.
  --role <role>  control: only the API. runner: only the virtual machines. all (standard): both, on one machine
  --root <dir>   only writes the files, below <dir>
`;

await runMain(async (args) => {
  const { values } = parseArgs({
    args,
    options: { role: { type: 'string', default: 'all' }, root: { type: 'string', default: '/' } },
  });
  const root = resolve(values.root);
  const role = ROLES.find((each) => each === values.role);
  if (role === undefined)
    throw new SetupError(`--role: "${values.role}" is no role`, { remedy: `use one of ${ROLES.join(', ')}` });
  assertInstallable({ role, root });
  if (root === '/') {
    await setUp({});
    sayDone();
  }
  await installService({
    node: getNode(),
    role,
    root,
    say: (text) => process.stdout.write(`${text}\n`),
  });
  return 0;
}, USAGE);
