/** `npm run soak`: runs set-up, then random work and random kills until the time is over or an invariant fails. */
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { runMain } from './setup/entry.mjs';
import { REPOSITORY } from './setup/paths.mjs';
import { sayDone } from './setup/report.mjs';
import { setUp } from './setup/setup.mjs';
import { SetupError } from './setup/setup-error.mjs';
import { COMPILE_CACHE, compileService } from './test/jobs/compile-cache.mjs';
import { runLive } from './test/jobs/live-command.mjs';
import { toolsEnvironment } from './test/jobs/tools-environment.mjs';

const USAGE = `npm run soak -- [options]

Does random work on a real service with real virtual machines, and kills random parts of it at random steps.
Stops at the first invariant that fails, prints the seed, and exits with code 1.

  --minutes N   duration; default 5
  --seed S      repeats the choices of an earlier run: a whole number; default: random
  --disks N     instead: N cycles of synced writes to a persistent disk, SIGKILL of a random process at a random step,
                and a check that nothing is lost; each cycle takes some seconds
  --simulated   runs the control process alone with a simulated runner, over many simulated hours
`;
const SIMULATION = join(REPOSITORY, 'packages/server/src/control/testing/simulation/simulate.ts');
const SOAK = join(REPOSITORY, 'e2e', 'soak.ts');
const DISK_SOAK = join(REPOSITORY, 'e2e', 'disk-soak.ts');
const TIMEOUT_MS = 7 * 24 * 60 * 60_000;
const MAX_SEED = 2 ** 31;
const MAX_CYCLES = 1_000_000;

/** @param {string[]} args */
function parseOptions(args) {
  const { values } = parseArgs({
    args,
    options: {
      minutes: { type: 'string', default: '5' },
      seed: { type: 'string' },
      disks: { type: 'string' },
      simulated: { type: 'boolean', default: false },
    },
  });
  const minutes = Number(values.minutes);
  if (!(minutes > 0 && minutes * 60_000 <= TIMEOUT_MS))
    throw new SetupError(
      `--minutes: is "${values.minutes}", must be more than 0 and at most ${TIMEOUT_MS / 60_000}`,
    );
  const seed = values.seed === undefined ? Math.floor(Math.random() * MAX_SEED) : Number(values.seed);
  if (!Number.isInteger(seed) || seed < 0 || seed >= MAX_SEED)
    throw new SetupError(`--seed: is "${values.seed}", must be a whole number from 0 to ${MAX_SEED - 1}`);
  const words = ['--seed', String(seed)];
  if (values.disks !== undefined)
    return { program: DISK_SOAK, words: ['--cycles', String(parseCycles(values.disks)), ...words] };
  return {
    program: values.simulated ? SIMULATION : SOAK,
    words: ['--minutes', String(minutes), ...words],
  };
}

/** @param {string} text */
function parseCycles(text) {
  const cycles = Number(text);
  if (Number.isInteger(cycles) && cycles > 0 && cycles <= MAX_CYCLES) return cycles;
  throw new SetupError(`--disks: is "${text}", must be a whole number from 1 to ${MAX_CYCLES}`);
}

await runMain(async (args) => {
  const { program, words } = parseOptions(args);
  const tools = await setUp({ tests: true });
  sayDone();
  await compileService(tools);
  const env = { ...COMPILE_CACHE, ...toolsEnvironment(tools) };
  return (await runLive(tools.node, [program, ...words], { timeoutMs: TIMEOUT_MS, env })).exitCode;
}, USAGE);
