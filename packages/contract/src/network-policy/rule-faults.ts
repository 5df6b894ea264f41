/** Collects the faults in the rules of a request. All rules are checked, but only the first faults are reported. */
import { AppError } from '../errors.ts';

/** Clients show only the first 200 bytes of an answer. */
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

/** Formats `network.allow[3]: "https://a.example"`; omits text that may hold a password. */
export function showRule(place: string, text: string): string {
  if (text.includes('@')) return `${place}:`;
  const shown = text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text;
  return `${place}: ${JSON.stringify(shown)}`;
}
