/** The process of `Programs.run()`: runs each program of plan.json in a state of its own and writes results.json. */
import { readFile, writeFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { prepare, type Given, type Place } from './given.ts';
import type { Program, Result } from './programs.ts';

/** Some start several programs in an emulated guest. */
const EXAMPLE_TIMEOUT_MS = 120_000;
/** After this time an example that waits for a change, or for the end of a log, gets it. */
const CHANGE_AFTER_MS = 500;

const plan = JSON.parse(await readFile('plan.json', 'utf8')) as { place: Place; programs: Program[] };
const results: Result[] = [];
for (const program of plan.programs) results.push(await runOne(program));
await writeFile('results.json', JSON.stringify(results));
process.exit(0);

async function runOne({ place, file, code }: Program): Promise<Result> {
  const controller = new AbortController();
  const { signal } = controller;
  try {
    const given = await prepare(plan.place, code);
    const { run } = (await import(file)) as { run: (given: Given) => Promise<void> };
    const expire = sleep(EXAMPLE_TIMEOUT_MS, undefined, { signal }).then(() => {
      throw new Error(`it did not end within ${EXAMPLE_TIMEOUT_MS} ms`);
    });
    if (code.includes('.watch(')) void later(signal, () => given.sandbox.upload('/workspace/done', ''));
    if (code.includes('follow: true')) void later(signal, () => given.sandbox.destroy());
    await Promise.race([run(given), expire]);
    return { place };
  } catch (error) {
    return { place, error: error instanceof Error ? (error.stack ?? error.message) : String(error) };
  } finally {
    controller.abort();
  }
}

async function later(signal: AbortSignal, work: () => Promise<unknown>): Promise<void> {
  await sleep(CHANGE_AFTER_MS, undefined, { signal }).then(work, () => undefined);
}
