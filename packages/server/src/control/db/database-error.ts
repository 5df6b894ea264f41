/**
 * Classifies database errors: the database is unreachable and may come back, a value is taken, or the query is wrong.
 */

/**
 * Connection errors of the system, and of PostgreSQL (class 08; 57P01–57P03: shutting down or starting; class 28 and
 * 3D000: a server that does not know this account or database is not the one that the service started with).
 */
const AWAY_CODES = /^(ECONNREFUSED|ECONNRESET|ENOENT|EPIPE|ETIMEDOUT|08\w{3}|28\w{3}|3D000|57P0[1-5]|53300)$/;
const AWAY_MESSAGES =
  /^(Connection terminated|timeout exceeded when trying to connect|Client has encountered|Query read timeout)/;

/** Returns whether the same query may succeed later. */
export function isDatabaseAway(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const code: unknown = Reflect.get(error, 'code');
  if (typeof code === 'string' && AWAY_CODES.test(code)) return true;
  return AWAY_MESSAGES.test(error.message);
}

const UNIQUE_VIOLATION = '23505';

/** Returns whether another row already has a value that must be unique: that of `index`, if it is given. */
export function isTaken(error: unknown, index?: string): boolean {
  if (!(error instanceof Error) || Reflect.get(error, 'code') !== UNIQUE_VIOLATION) return false;
  return index === undefined || Reflect.get(error, 'constraint') === index;
}
