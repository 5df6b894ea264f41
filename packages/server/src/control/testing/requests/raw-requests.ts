/**
 * Requests as bytes, each valid except for up to three changes. They are made from the description of the API, so that
 * a new endpoint is attacked, too. A request is a text of which each character is a byte.
 */
import fc from 'fast-check';
import {
  CHUNKED,
  HEADERS,
  NASTY_BODIES,
  NASTY_TEXTS,
  NASTY_VALUES,
  ODD_METHODS,
  TAILS,
  TARGETS,
  VERSIONS,
} from './nasty-input.ts';

/** The part of the document that is read here. */
export interface ApiDocument {
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, Schema> };
}

interface Operation {
  parameters?: { name: string; in: string }[];
  requestBody?: { content: Record<string, { schema: Schema }> };
}

interface Schema {
  $ref?: string;
  properties?: Record<string, Schema>;
}

export interface Attacked {
  document: ApiDocument;
  host: string;
  /** Values of a valid request, by the name of the field or parameter; read when a request is made. */
  known: Record<string, unknown>;
  /** Header lines that authenticate a caller, below `/v1` and below `/account`. */
  credentials: { key: string[]; session: string[] };
}

/** A request before it becomes bytes. */
interface Draft {
  method: string;
  path: string;
  params: Record<string, string>;
  query: [name: string, value: string][];
  /** Replaces path, parameters and query. */
  target?: string;
  version: string;
  headers: string[];
  fields: Record<string, unknown> | undefined;
  /** Replaces the fields. */
  body?: string;
  tail: string;
}

type Change = (draft: Draft) => Draft;

const text = fc.constantFrom(...NASTY_TEXTS);
const escaped = text.map(escapeText);
const value = fc.constantFrom(...NASTY_VALUES);
const at = fc.nat({ max: 12 });

/** Escapes a text for a URL. Lone surrogates, which UTF-8 cannot encode, become U+FFFD. */
function escapeText(one: string): string {
  return encodeURIComponent(one.toWellFormed());
}

const change: fc.Arbitrary<Change> = fc.oneof(
  {
    weight: 1,
    arbitrary: fc.constantFrom(...ODD_METHODS).map((method): Change => (draft) => ({ ...draft, method })),
  },
  {
    weight: 1,
    arbitrary: fc.constantFrom(...TARGETS).map((target): Change => (draft) => ({ ...draft, target })),
  },
  {
    weight: 1,
    arbitrary: fc.constantFrom(...VERSIONS).map((version): Change => (draft) => ({ ...draft, version })),
  },
  {
    weight: 3,
    arbitrary: fc.tuple(at, fc.oneof(escaped, text)).map(([index, one]): Change => (draft) => ({
      ...draft,
      params: replaceAt(draft.params, index, one),
    })),
  },
  {
    weight: 2,
    arbitrary: fc.tuple(at, fc.oneof(escaped, text)).map(([index, one]): Change => (draft) => ({
      ...draft,
      query: replaceQuery(draft.query, index, one),
    })),
  },
  {
    weight: 3,
    arbitrary: fc
      .array(fc.constantFrom(...HEADERS), { minLength: 1, maxLength: 3 })
      .map((more): Change => (draft) => ({ ...draft, headers: [...draft.headers, ...more] })),
  },
  {
    weight: 1,
    arbitrary: at.map(
      (index): Change =>
        (draft) =>
          withoutHeader(draft, index),
    ),
  },
  {
    weight: 4,
    arbitrary: fc.tuple(at, value).map(([index, one]): Change => (draft) => ({
      ...draft,
      fields: replaceAt(draft.fields ?? {}, index, one),
    })),
  },
  {
    weight: 1,
    arbitrary: fc.tuple(text, value).map(([name, one]): Change => (draft) => ({
      ...draft,
      fields: { ...draft.fields, [name]: one },
    })),
  },
  {
    weight: 1,
    arbitrary: fc.constantFrom(...NASTY_BODIES).map((body): Change => (draft) => ({ ...draft, body })),
  },
  {
    weight: 1,
    arbitrary: fc.constantFrom(...CHUNKED).map(
      (tail): Change =>
        (draft) =>
          inChunks(draft, tail),
    ),
  },
  {
    weight: 1,
    arbitrary: fc.constantFrom(...TAILS).map((tail): Change => (draft) => ({ ...draft, tail })),
  },
);

function replaceAt<T>(named: Record<string, T>, index: number, one: T): Record<string, T> {
  const names = Object.keys(named);
  const name = names[index % Math.max(1, names.length)];
  return name === undefined ? named : { ...named, [name]: one };
}

function replaceQuery(query: Draft['query'], index: number, one: string): Draft['query'] {
  const [name] = query[index % Math.max(1, query.length)] ?? ['x\0'];
  return [...query.filter(([other]) => other !== name), [name, one]];
}

function withoutHeader(draft: Draft, index: number): Draft {
  const dropped = index % Math.max(1, draft.headers.length);
  return { ...draft, headers: draft.headers.filter((_, other) => other !== dropped) };
}

function inChunks(draft: Draft, tail: string): Draft {
  return { ...draft, body: '', tail, headers: [...draft.headers, 'Transfer-Encoding: chunked'] };
}

/** Makes requests of any operation, with or without credentials, with up to three changes. */
export function rawRequest(attacked: Attacked): fc.Arbitrary<string> {
  return fc
    .tuple(fc.constantFrom(...listDrafts(attacked)), fc.boolean(), fc.array(change, { maxLength: 3 }))
    .map(([draft, isKnown, changes]) => {
      const valid = isKnown ? draft() : withoutCredentials(draft(), attacked);
      return toBytes(changes.reduce((made, one) => one(made), valid));
    });
}

/** Lists each operation with each of its parameters, query fields and body fields replaced by `wrong` in turn. */
export function listWithOneWrong(attacked: Attacked, wrong: string): string[] {
  const inTarget = escapeText(wrong);
  const inBody = [wrong, [wrong], { [wrong]: wrong }, { a: wrong }];
  const requests: string[] = [];
  for (const make of listDrafts(attacked)) {
    const draft = make();
    const add = (change: Partial<Draft>): void => void requests.push(toBytes({ ...draft, ...change }));
    for (const name of Object.keys(draft.params)) add({ params: { ...draft.params, [name]: inTarget } });
    for (const index of draft.query.keys()) add({ query: replaceQuery(draft.query, index, inTarget) });
    for (const name of Object.keys(draft.fields ?? {}))
      for (const value of inBody) add({ fields: { ...draft.fields, [name]: value } });
  }
  return requests;
}

function withoutCredentials(draft: Draft, { credentials }: Attacked): Draft {
  const known = new Set([...credentials.key, ...credentials.session]);
  return { ...draft, headers: draft.headers.filter((line) => !known.has(line)) };
}

function listDrafts({ document, host, known, credentials }: Attacked): (() => Draft)[] {
  return Object.entries(document.paths).flatMap(([path, operations]) =>
    Object.entries(operations).map(([method, operation]) => (): Draft => {
      const schema = operation.requestBody?.content['application/json']?.schema;
      const ofKind = (kind: string): [string, string][] =>
        (operation.parameters ?? [])
          .filter(({ in: where }) => where === kind)
          .map(({ name }) => [name, asText(known[name])]);
      return {
        method: method.toUpperCase(),
        path,
        params: Object.fromEntries(ofKind('path')),
        query: ofKind('query').filter(([name]) => known[name] !== undefined),
        version: 'HTTP/1.1',
        headers: [
          `Host: ${host}`,
          'Connection: close',
          ...(path.startsWith('/account') ? credentials.session : credentials.key),
          ...(schema === undefined ? [] : ['Content-Type: application/json']),
        ],
        fields: schema === undefined ? undefined : pickFields(resolve(schema, document), known),
        tail: '',
      };
    }),
  );
}

/** Returns the text of a parameter; an unknown one is any text. */
function asText(value: unknown): string {
  return typeof value === 'string' ? value : 'x';
}

function resolve(schema: Schema, { components }: ApiDocument): Schema {
  const name = schema.$ref?.split('/').at(-1);
  return name === undefined ? schema : (components.schemas[name] ?? {});
}

function pickFields({ properties = {} }: Schema, known: Attacked['known']): Record<string, unknown> {
  const names = Object.keys(properties).filter((name) => known[name] !== undefined);
  return Object.fromEntries(names.map((name) => [name, known[name]]));
}

function toBytes({ method, version, headers, fields, body, tail, ...draft }: Draft): string {
  const json = fields === undefined ? '' : Buffer.from(JSON.stringify(fields)).toString('latin1');
  const content = body ?? json;
  const isFramed = headers.some((line) => /^(?:content-length|transfer-encoding)/iu.test(line));
  const framing = content === '' || isFramed ? [] : [`Content-Length: ${content.length}`];
  const line = Buffer.from(`${method} ${draft.target ?? toTarget(draft)} ${version}`).toString('latin1');
  return `${[line, ...headers, ...framing].join('\r\n')}\r\n\r\n${content}${tail}`;
}

function toTarget({ path, params, query }: Pick<Draft, 'path' | 'params' | 'query'>): string {
  const filled = path.replaceAll(/\{(\w+)\}/gu, (_, name: string) => params[name] ?? 'x');
  return query.length === 0 ? filled : `${filled}?${query.map((pair) => pair.join('=')).join('&')}`;
}
