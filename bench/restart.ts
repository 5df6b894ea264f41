/** Measures `npm start` on a prepared machine: the time that npm and set-up add to the start of the daemon itself. */
import { fileURLToPath } from 'node:url';
import { Installation } from '../e2e/fixtures/service/installation.ts';
import { API_KEY } from '../e2e/fixtures/service/service.ts';
import { interleave } from './fixtures/measure.ts';
import { compare, report, type Figure } from './fixtures/report.ts';

const ROUNDS = 10;
const START_TIMEOUT_MS = 180_000;
const REPOSITORY = fileURLToPath(new URL('..', import.meta.url));
const NPM_START = ['npm', 'start', '--silent', '--prefix', REPOSITORY];
/** With a given key the service shows no first sandbox. */
const ENV = { COPPICE_BOOTSTRAP_KEY: API_KEY };

/** Returns the milliseconds from the command to the printed address, and then stops the service. */
async function startOnce(installation: Installation, command?: readonly string[]): Promise<number> {
  const started = performance.now();
  const start = installation.start(ENV, command);
  await start.waitForPrint(/listening on http/u, START_TIMEOUT_MS);
  const elapsedMs = performance.now() - started;
  await start.stop();
  return elapsedMs;
}

export async function benchRestart(): Promise<Figure[]> {
  await using installation = await Installation.create();
  const values = await interleave(
    [
      { name: 'npm start, again', run: () => startOnce(installation, NPM_START) },
      { name: 'the daemon alone', run: () => startOnce(installation) },
    ],
    ROUNDS,
  );
  const name = 'npm start on a machine that is set up';
  return [compare({ name, against: 'the daemon without npm and set-up', goal: '–', unit: 'ms', values })];
}

if (import.meta.main) report('restart', 'no VM is started', await benchRestart());
