/** Counts and times the starts of sandboxes: by way, outcome, and step in the runner. */
import { Counter, Histogram, type Registry } from 'prom-client';
import type { StartNote } from '../sandbox/live/start-note.ts';

/** Steps that the runner times (runner/vm/step-timer.ts). Others count as one, which bounds the labels. */
const STEPS: ReadonlySet<string> = new Set([
  'image',
  'admission',
  'template',
  'turn',
  'network',
  'disk',
  'cgroup',
  'restore',
  'egress',
  'agent',
  'workspace',
  'resume',
]);
const OTHER = 'other';
const BUCKETS_S = [0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];
const STEP_BUCKETS_S = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 300];

export class StartMetrics {
  readonly #starts: Counter<'kind' | 'outcome'>;
  readonly #durations: Histogram<'kind'>;
  readonly #steps: Histogram<'kind' | 'step'>;

  constructor(registry: Registry) {
    const registers = [registry];
    this.#starts = new Counter({
      name: 'coppice_sandbox_starts_total',
      help: 'Starts of sandboxes. outcome is "ok" or the code of the error.',
      labelNames: ['kind', 'outcome'],
      registers,
    });
    this.#durations = new Histogram({
      name: 'coppice_sandbox_start_duration_seconds',
      help: 'Time of a successful start.',
      labelNames: ['kind'],
      buckets: BUCKETS_S,
      registers,
    });
    this.#steps = new Histogram({
      name: 'coppice_sandbox_start_step_duration_seconds',
      help: 'Time of each step of a successful start in the runner. "turn" is the wait for a start slot.',
      labelNames: ['kind', 'step'],
      buckets: STEP_BUCKETS_S,
      registers,
    });
  }

  note({ kind, outcome, durationMs, timingsMs }: StartNote): void {
    this.#starts.inc({ kind, outcome });
    if (outcome !== 'ok') return;
    this.#durations.observe({ kind }, durationMs / 1000);
    for (const [step, ms] of Object.entries(timingsMs))
      this.#steps.observe({ kind, step: STEPS.has(step) ? step : OTHER }, ms / 1000);
  }
}
