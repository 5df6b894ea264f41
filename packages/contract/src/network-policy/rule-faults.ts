/** Collects what is wrong with the rules of a request: all of it is looked for, only the first faults are told. */
import { AppError } from '../errors.ts';

/** An answer is read by its first 200 bytes. */
const MAX_TOLD = 3;
const MAX_SHOWN = 60;

export class RuleFaults {
  readonly #told: string[] = [];

  add(text: string): void {
    if (this.#told.length < MAX_TOLD) this.#told.push(text);
  }

  throwIfAny(): void {
    if (this.#told.length > 0) throw new AppError('invalid_request', this.#told.join('; '));
  }
}

/** `network.allow[3]: "https://a.example"`; nothing of what may hold a password. */
export function showRule(place: string, text: string): string {
  if (text.includes('@')) return `${place}:`;
  const shown = text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text;
  return `${place}: ${JSON.stringify(shown)}`;
}
