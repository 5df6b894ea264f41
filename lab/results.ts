/** Results of a lab command: each is printed at once, and appended to results.ndjson as a line of JSON. */
import { appendFileSync } from 'node:fs';
import { join } from 'node:path';
import { describeError } from '../scripts/setup/setup-error.mjs';

export class Results {
  readonly #path: string;
  readonly #command: string;
  #passed = 0;
  #failed = 0;

  constructor(directory: string, command: string) {
    this.#path = join(directory, 'results.ndjson');
    this.#command = command;
  }

  get failed(): number {
    return this.#failed;
  }

  /** Runs a step and reports how long it took. A failure is reported and thrown. */
  async step<T>(name: string, work: () => Promise<T>): Promise<T> {
    const began = performance.now();
    try {
      const result = await work();
      this.#tell({ name, ok: true, seconds: secondsSince(began) });
      return result;
    } catch (error) {
      this.#tell({ name, ok: false, seconds: secondsSince(began), note: describeError(error) });
      throw error;
    }
  }

  /** Like `step`, but does not throw: returns undefined after a failure, so that the other steps run. */
  async attempt<T>(name: string, work: () => Promise<T>): Promise<T | undefined> {
    return this.step(name, work).catch(() => undefined);
  }

  summary(): string {
    return `${this.#passed} passed, ${this.#failed} failed`;
  }

  #tell(result: { name: string; ok: boolean; seconds?: number; note?: string }): void {
    if (result.ok) this.#passed += 1;
    else this.#failed += 1;
    const at = new Date().toISOString();
    appendFileSync(this.#path, `${JSON.stringify({ at, command: this.#command, ...result })}\n`);
    const seconds = result.seconds === undefined ? '' : ` (${result.seconds} s)`;
    const note = result.note === undefined ? '' : `: ${result.note}`;
    process.stdout.write(
      `${at.slice(11, 19)} ${result.ok ? 'ok  ' : 'FAIL'} ${result.name}${seconds}${note}\n`,
    );
  }
}

function secondsSince(began: number): number {
  return Math.round((performance.now() - began) / 100) / 10;
}
