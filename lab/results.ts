/** What a command of the lab has done and found: told as it comes, and kept as a line of JSON each in results.ndjson. */
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

  /** Does a step and tells how long it took. A failure is told and thrown. */
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

  /** As `step`, but a failure leaves the others their turn. Undefined after one. */
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
