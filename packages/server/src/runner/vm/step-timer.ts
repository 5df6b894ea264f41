/** Measures the time of one operation, in milliseconds by step. */
export class StepTimer {
  readonly timingsMs: Record<string, number> = {};
  #stepStarted = performance.now();

  end(step: string): void {
    const now = performance.now();
    const ms = (this.timingsMs[step] ?? 0) + now - this.#stepStarted;
    this.timingsMs[step] = Math.round(ms * 10) / 10;
    this.#stepStarted = now;
  }
}
