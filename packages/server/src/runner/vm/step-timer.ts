import { findStepRecorder } from '../../lib/tracing/tracing.ts';

/** Measures the time of one operation, in milliseconds by step. In a traced request each step is also a span. */
export class StepTimer {
  readonly timingsMs: Record<string, number> = {};
  readonly #recorder;
  #stepStarted = performance.now();

  /** `operation`: prefix of the spans. */
  constructor(operation: string) {
    this.#recorder = findStepRecorder(operation);
  }

  end(step: string): void {
    const now = performance.now();
    this.#recorder?.record(step, this.#stepStarted, now);
    const ms = (this.timingsMs[step] ?? 0) + now - this.#stepStarted;
    this.timingsMs[step] = Math.round(ms * 10) / 10;
    this.#stepStarted = now;
  }
}
