import { inspect } from 'node:util';

const REDACTED = '[secret]';

/** A text that no log, error or JSON shows. Call `reveal` only where the secret is sent to its recipient. */
export class Secret {
  readonly #value: string;

  constructor(value: string) {
    this.#value = value;
  }

  reveal(): string {
    return this.#value;
  }

  toString(): string {
    return REDACTED;
  }

  toJSON(): string {
    return REDACTED;
  }

  [inspect.custom](): string {
    return REDACTED;
  }
}
