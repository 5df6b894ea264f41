/** Measures a create with its first exec, against `podman run --rm` with runc, the same image and the same command. */
import { execFile, execFileSync } from 'node:child_process';
import { promisify } from 'node:util';
import { IMAGE, startBenchService, type BenchService } from './fixtures/bench-service.ts';
import { interleave, timeMs } from './fixtures/measure.ts';
import { PODMAN_RUN } from './fixtures/podman.ts';
import { compare, report, type Figure } from './fixtures/report.ts';

const ROUNDS = 15;
const RIVAL_IMAGE = 'localhost/coppice-bench:1';
const COMMAND = 'echo hello';
async function createAndExec({ api, nextWarm }: BenchService): Promise<number> {
  await nextWarm();
  let id = '';
  const elapsedMs = await timeMs(async () => {
    ({ id } = await api.create({ image: IMAGE }));
    await api.exec(id, COMMAND);
  });
  await api.destroy(id);
  return elapsedMs;
}

async function podmanRun(): Promise<number> {
  return timeMs(() => promisify(execFile)('podman', [...PODMAN_RUN, RIVAL_IMAGE, '/bin/sh', '-c', COMMAND]));
}

export async function benchFirstExec(bench: BenchService): Promise<Figure[]> {
  const layout = `oci:${bench.layoutDirectory}:${bench.tag}`;
  const id = execFileSync('podman', ['pull', '--quiet', layout], { encoding: 'utf8' }).trim();
  execFileSync('podman', ['tag', id, RIVAL_IMAGE]);
  const values = await interleave(
    [
      { name: 'create (warm pool) + first exec', run: () => createAndExec(bench) },
      { name: 'podman run --rm (runc)', run: podmanRun },
    ],
    ROUNDS,
  );
  execFileSync('podman', ['rmi', '--force', id]);
  const against = 'podman run with runc, same image';
  return [compare({ name: 'create (warm pool) + first exec', against, goal: '< 1', unit: 'ms', values })];
}

if (import.meta.main) {
  await using bench = await startBenchService(2);
  report('first-exec', bench.accelerator, await benchFirstExec(bench));
}
