/** Where the time of one operation goes, in milliseconds by step. */
export class StepTimer {
  readonly timingsMs: Record<string, number> = {};
  #stepStarted = performance.now();

  end(step: string): void {
    const now = performance.now();
    this.timingsMs[step] = Math.round((now - this.#stepStarted) * 10) / 10;
    this.#stepStarted = now;
  }
}
