/**
 * Finds text that no part of the service can store. PostgreSQL stores no NUL and no half of a surrogate pair, a log
 * entry with one cannot be hashed, and no program can be started with a NUL in an argument. The edge checks for all of
 * them: anywhere else, such text would cause a fault of the service.
 */
import { z } from 'zod';

/** Body fields with bytes for a program to read, where a NUL is allowed. */
const MAY_HAVE_NUL = new Set(['stdin']);

interface Place {
  value: unknown;
  path: readonly PropertyKey[];
}

/** Returns an error with the path of the first such text, or undefined when there is none. */
export function findBadText(parsed: unknown): z.ZodError | undefined {
  const places: Place[] = [{ value: parsed, path: [] }];
  for (let place = places.pop(); place !== undefined; place = places.pop()) {
    const { value, path } = place;
    const fault = typeof value === 'string' ? describeFault(value, path) : undefined;
    if (fault !== undefined) return toError(fault, path);
    if (typeof value !== 'object' || value === null) continue;
    for (const [name, inner] of Object.entries(value)) {
      // The error does not show the name itself.
      if (describeFault(name, []) !== undefined) return toError('has a name that is not valid text', path);
      places.push({ value: inner, path: [...path, Array.isArray(value) ? Number(name) : name] });
    }
  }
  return undefined;
}

function describeFault(text: string, path: readonly PropertyKey[]): string | undefined {
  const mayHaveNul = path.length === 1 && MAY_HAVE_NUL.has(String(path[0]));
  if (!mayHaveNul && text.includes('\0')) return 'must not contain a NUL character';
  return text.isWellFormed() ? undefined : 'must be valid Unicode';
}

function toError(message: string, path: readonly PropertyKey[]): z.ZodError {
  return new z.ZodError([{ code: 'custom', message, path: [...path], input: undefined }]);
}
