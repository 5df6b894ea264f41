/** A state that only a bug can bring about. The message is for developers; callers receive a generic error. */
export class InvariantError extends Error {
  constructor(message: string) {
    super(`invariant broken: ${message}`);
    this.name = 'InvariantError';
  }
}

/** Throws {@link InvariantError} unless `condition` holds. For errors of callers or of the world use AppError. */
export function invariant(condition: unknown, message: string): asserts condition {
  if (condition === false || condition === undefined || condition === null) throw new InvariantError(message);
}
