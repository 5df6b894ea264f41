/**
 * Measures the first sandbox of an image of about 300 MB, step by step, against `podman pull` and `podman run` of the
 * same image from the same registry.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { pushApplication } from './fixtures/application-image.ts';
import { startBenchService, type BenchService } from './fixtures/bench-service.ts';
import { interleave, summarize, timeMs } from './fixtures/measure.ts';
import { PODMAN_RUN } from './fixtures/podman.ts';
import { compare, report, type Figure } from './fixtures/report.ts';

const ROUNDS = 4;
const COMMAND = 'echo hello';
const STEPS = ['resolve', 'pull', 'flatten', 'template', 'create and first exec'] as const;

/** Milliseconds spent in each step. */
type Steps = Map<string, number[]>;

interface ProgressEvent {
  type: string;
  step?: string;
  elapsed_ms?: number;
}

/** Prepares the image and records how long each step took, as the service reports it. */
async function build({ api }: BenchService, image: string, steps: Steps): Promise<number> {
  const started = performance.now();
  const answer = await api.fetch('POST', '/v1/images/build', {
    body: { image },
    headers: { accept: 'text/event-stream' },
  });
  const text = await answer.text();
  const elapsedMs = performance.now() - started;
  const events = text
    .split('\n')
    .filter((line) => line.startsWith('data: '))
    .map((line) => JSON.parse(line.slice('data: '.length)) as ProgressEvent);
  if (events.at(-1)?.type !== 'done') throw new Error(`${image}: ${text.slice(-500)}`);
  const marks = events.filter((event) => event.type === 'step');
  for (const [index, mark] of marks.entries()) {
    const endsAtMs = marks[index + 1]?.elapsed_ms ?? elapsedMs;
    steps.get(mark.step ?? '')?.push(endsAtMs - (mark.elapsed_ms ?? 0));
  }
  return elapsedMs;
}

async function ours(bench: BenchService, image: string, steps: Steps): Promise<number> {
  const { api } = bench;
  const buildMs = await build(bench, image, steps);
  let id = '';
  const createMs = await timeMs(async () => {
    ({ id } = await api.create({ image }));
    await api.exec(id, COMMAND);
  });
  steps.get('create and first exec')?.push(createMs);
  await api.destroy(id);
  return buildMs + createMs;
}

async function podman(image: string): Promise<number> {
  const run = promisify(execFile);
  const elapsedMs = await timeMs(async () => {
    await run('podman', ['pull', '--quiet', '--tls-verify=false', image]);
    await run('podman', [...PODMAN_RUN, image, '/bin/sh', '-c', COMMAND]);
  });
  await run('podman', ['rmi', '--force', image]);
  return elapsedMs;
}

export async function benchFirstPreparation(bench: BenchService): Promise<Figure[]> {
  const { registry } = bench;
  const source = { layoutDirectory: bench.layoutDirectory, tag: bench.tag };
  const image = await pushApplication(registry, source, ROUNDS + 1);
  const steps: Steps = new Map(STEPS.map((step) => [step, []]));
  let variant = 0;
  const contenders = [
    {
      name: 'first sandbox, to its first exec',
      run: () => ours(bench, `${registry.name}/app:${(variant += 1)}`, steps),
    },
    { name: 'podman pull and run (runc)', run: () => podman(`${registry.name}/app:1`) },
  ];
  const values = await interleave(contenders, ROUNDS);
  const size = `${image.sizeMB.toFixed(0)} MB (${image.compressedMB.toFixed(0)} MB compressed)`;
  const name = `first sandbox of an image of ${size}`;
  const figure = compare({ name, against: 'podman pull and run', goal: '–', unit: 'ms', values });
  const details = [...steps].map(([step, list]) => summarize(`  of it ${step}`, 'ms', list));
  return [{ ...figure, samples: [...figure.samples, ...details] }];
}

if (import.meta.main) {
  await using bench = await startBenchService(0);
  report('first-preparation', bench.accelerator, await benchFirstPreparation(bench));
}
