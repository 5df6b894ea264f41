/** Every operation of the API, from its own description, so that a new route is tested as soon as it is there. */
import type { ControlHarness } from '../control-harness.ts';

export interface Operation {
  method: string;
  /** With names in braces. */
  path: string;
  id: string;
  /** Of the parameters that it cannot do without. */
  query: string;
}

interface Described {
  operationId: string;
  parameters?: { in: string; name: string; required?: boolean }[];
}

/** Stands for a required parameter that is not in {@link QUERIES}. */
const ANYTHING = 'x';
/** Of a service in the guest. */
const GUEST_PATH = 'index.html';
/** `fetch` does not send it. */
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

/** The path with these ids in it: `run` or `snapshot` for `{id}`. Throws for a name that has none. */
export function fillPath({ path, query }: Operation, ids: Readonly<Record<string, string>>): string {
  const filled = path.replaceAll(/\{(\w+)\}/g, (_, name: string) => {
    if (name === 'path') return GUEST_PATH;
    const value = name === 'id' ? ids[path.startsWith('/v1/snapshots') ? 'snapshot' : 'run'] : ids[name];
    if (value === undefined) throw new Error(`${path}: there is no ${name} to ask for`);
    return value;
  });
  return query === '' ? filled : `${filled}?${query}`;
}

export const isReading = ({ method }: Operation): boolean => method === 'GET' || method === 'HEAD';

export const describeOperation = ({ method, path, id }: Operation): string => `${id}: ${method} ${path}`;
