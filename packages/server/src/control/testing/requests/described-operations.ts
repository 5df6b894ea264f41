/** Lists every operation of the API from its own description, so that a new route is tested as soon as it exists. */
import type { ControlHarness } from '../control-harness.ts';

export interface Operation {
  method: string;
  /** Path with parameter names in braces. */
  path: string;
  id: string;
  /** Query with the required parameters. */
  query: string;
}

interface Described {
  operationId: string;
  parameters?: { in: string; name: string; required?: boolean }[];
}

/** Value of a required parameter that is not in {@link QUERIES}. */
const ANYTHING = 'x';
/** Path of a service in the guest. */
const GUEST_PATH = 'index.html';
/** A method that `fetch` does not send. */
const NOT_SENT = 'trace';
const QUERIES: Record<string, string> = { path: '/etc/hostname' };

export async function listOperations(harness: ControlHarness): Promise<Operation[]> {
  const { body } = await harness.call('GET', '/openapi.json', { apiKey: null });
  const paths = body.paths as Record<string, Record<string, Described>>;
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods)
      .filter(([method]) => method !== NOT_SENT)
      .map(([method, operation]) => readOperation(method, path, operation)),
  );
}

function readOperation(method: string, path: string, { operationId, parameters = [] }: Described): Operation {
  const required = parameters.filter((parameter) => parameter.in === 'query' && parameter.required);
  const query = required.map(({ name }) => `${name}=${QUERIES[name] ?? ANYTHING}`).join('&');
  return { method: method.toUpperCase(), path, id: operationId, query };
}

/** Fills these ids into the path: `run` or `snapshot` for `{id}`. Throws for a name without an id. */
export function fillPath({ path, query }: Operation, ids: Readonly<Record<string, string>>): string {
  const filled = path.replaceAll(/\{(\w+)\}/g, (_, name: string) => {
    if (name === 'path') return GUEST_PATH;
    const value = name === 'id' ? ids[path.startsWith('/v1/snapshots') ? 'snapshot' : 'run'] : ids[name];
    if (value === undefined) throw new Error(`${path}: the parameter ${name} has no value`);
    return value;
  });
  return query === '' ? filled : `${filled}?${query}`;
}

export const isReading = ({ method }: Operation): boolean => method === 'GET' || method === 'HEAD';

export const describeOperation = ({ method, path, id }: Operation): string => `${id}: ${method} ${path}`;
