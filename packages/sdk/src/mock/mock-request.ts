/** A request to the mocked service, its checks by the schemas of the contract, and the answers. */
import { AppError, ERRORS, invalidRequest } from '@coppice/contract';
import type { MockState } from './mock-state.ts';
import type { ExecHandler } from './mock-types.ts';

/** A request with its parts. */
export interface MockRequest {
  state: MockState;
  onExec: ExecHandler | undefined;
  method: string;
  path: string;
  query: URLSearchParams;
  body: Uint8Array<ArrayBuffer>;
  signal: AbortSignal | undefined;
  /** The variable segments of the path. */
  ids: string[];
}

type Issues = Parameters<typeof invalidRequest>[0];
/** The part of a schema that the mock uses. */
interface Schema<Value> {
  safeParse(input: unknown): { success: true; data: Value } | { success: false; error: Issues };
}

/** Parses the JSON body. Throws `invalid_request`, with the message of the service. */
export function parseBody<Value>({ body }: MockRequest, schema: Schema<Value>): Value {
  return check(schema, readJson(body), 'body');
}

/** Parses the query. Throws `invalid_request`, with the message of the service. */
export function parseQuery<Value>({ query }: MockRequest, schema: Schema<Value>): Value {
  const input: Record<string, string | string[]> = {};
  for (const name of new Set(query.keys())) {
    const values = query.getAll(name);
    input[name] = values.length === 1 ? (values[0] ?? '') : values;
  }
  return check(schema, input, 'query');
}

function check<Value>(schema: Schema<Value>, input: unknown, where: string): Value {
  const parsed = schema.safeParse(input);
  if (parsed.success) return parsed.data;
  throw invalidRequest(parsed.error, { where, input });
}

function readJson(body: Uint8Array): unknown {
  if (body.length === 0) return {};
  try {
    return JSON.parse(new TextDecoder().decode(body));
  } catch (cause) {
    throw new AppError('invalid_request', 'body: is not valid JSON', { cause });
  }
}

export function answerJson(status: number, body: unknown, headers: Record<string, string> = {}): Response {
  return new Response(JSON.stringify(body), {
    status,
    headers: { 'content-type': 'application/json', ...headers },
  });
}

export function answerEmpty(): Response {
  return new Response(null, { status: 204 });
}

/** As the service does, asks for a retry in a second after 429 and 503. */
export function answerError({ code, message }: AppError): Response {
  const { status } = ERRORS[code];
  const headers: Record<string, string> = status === 429 || status === 503 ? { 'retry-after': '1' } : {};
  return answerJson(status, { error: { code, message, request_id: 'req-mock' } }, headers);
}

/** Answers one page of a list. The cursor is the position of the page. */
export function answerPage(
  { path, query }: MockRequest,
  items: readonly unknown[],
  { limit, cursor }: { limit: number; cursor: string | undefined },
): Response {
  const start = cursor === undefined ? 0 : Number(cursor);
  const end = start + limit;
  if (end >= items.length) return answerJson(200, items.slice(start));
  const next = new URLSearchParams(query);
  next.set('cursor', String(end));
  return answerJson(200, items.slice(start, end), { link: `<${path}?${next.toString()}>; rel="next"` });
}
