/** Examples of values, made from their schemas. */
import {
  alternatives,
  nameOf,
  resolveSchema,
  type OpenApiDocument,
  type Schema,
} from './openapi-document.ts';

/** Values that say more than their schema. A schema that cannot hold the value does without it. */
const BY_NAME: Readonly<Record<string, unknown>> = {
  allow: ['api.example.com', '*.example.org'],
  command: 'python3 answer.py',
  content: 'print(6 * 7)',
  cpu_ms: 1500,
  credentials: { openai: 'sk-example' },
  cwd: '/workspace',
  digest: `sha256:${'0123456789abcdef'.repeat(4)}`,
  disk_mib: 4096,
  email: 'ada@example.com',
  expires_at: '2030-01-31T12:00:00.000Z',
  from: '/workspace/draft.txt',
  image: 'coppice/base:1',
  mode: '755',
  month: '2026-11',
  owner: '1000:1000',
  password: 'a long passphrase',
  path: '/workspace/answer.py',
  port: 3000,
  region: 'us',
  registry: 'ghcr.io',
  signal: 'TERM',
  snapshot_id: 'snap0123456789abcdef0123',
  status: 'running',
  team_id: 'team0123456789abcdef0123',
  timeout: 300,
  to: '/workspace/final.txt',
  url: 'https://example.com/hook',
  user: '1000',
  username: 'robot',
  vcpus: 2,
  mem_mib: 2048,
};
const MAX_DEPTH = 6;
const TIME = '2026-11-21T06:30:00.000Z';

export interface ExampleOptions {
  document: OpenApiDocument;
  /** Whether only required properties are shown; of a body without any, the first one. */
  onlyRequired: boolean;
}

/** Returns an example of a value. */
export function exampleOf(schema: Schema, options: ExampleOptions, name = '', depth = 0): unknown {
  const target = resolveSchema(schema, options.document);
  const known = BY_NAME[name];
  if (known !== undefined && canHold(target, known)) return known;
  if (target.example !== undefined) return target.example;
  if (target.const !== undefined) return target.const;
  if (target.enum !== undefined) return target.enum[0];
  const [first] = alternatives(target);
  // In an answer most of what may be null is null.
  if (first !== undefined && !options.onlyRequired && mayBeNull(target)) return null;
  if (first !== undefined) return exampleOf(first, options, name, depth);
  return exampleOfType(target, options, name, depth);
}

// oxlint-disable-next-line max-params -- the same parameters as exampleOf
function exampleOfType(schema: Schema, options: ExampleOptions, name: string, depth: number): unknown {
  switch (firstType(schema)) {
    case 'object':
      return exampleOfObject(schema, options, depth);
    case 'array':
      return schema.items === undefined || depth > MAX_DEPTH
        ? []
        : [exampleOf(schema.items, options, name, depth + 1)];
    case 'integer':
    case 'number':
      return schema.default ?? Math.max(schema.minimum ?? 1, 1);
    case 'boolean':
      return schema.default ?? true;
    case 'string':
      return schema.default ?? exampleOfString(schema, name);
    default:
      return schema.default ?? null;
  }
}

/** `null` is an alternative. */
function mayBeNull({ anyOf = [] }: Schema): boolean {
  return anyOf.some(({ type }) => type === 'null');
}

function exampleOfObject(schema: Schema, options: ExampleOptions, depth: number): Record<string, unknown> {
  const { properties = {}, required = [], additionalProperties } = schema;
  if (depth > MAX_DEPTH) return {};
  const names = Object.keys(properties);
  const wanted = options.onlyRequired ? names.filter((each) => required.includes(each)) : names;
  const shown = wanted.length === 0 && depth === 0 ? names.slice(0, 1) : wanted;
  const entries = shown.map((each) => [each, exampleOf(properties[each] ?? {}, options, each, depth + 1)]);
  if (names.length > 0 || typeof additionalProperties !== 'object') return Object.fromEntries(entries);
  return { key: exampleOf(additionalProperties, options, '', depth + 1) };
}

function exampleOfString({ format, minLength = 0 }: Schema, name: string): string {
  if (format === 'date-time') return TIME;
  if (format === 'binary') return '…';
  const text = name === '' || name === 'name' ? 'example' : name.replaceAll('_', '-');
  return text.padEnd(minLength, 'x');
}

function firstType({ type, properties, items }: Schema): string | undefined {
  if (properties !== undefined) return 'object';
  if (items !== undefined) return 'array';
  return Array.isArray(type) ? type.find((each) => each !== 'null') : type;
}

/** Whether the schema could have this value. */
function canHold(schema: Schema, value: unknown): boolean {
  if (schema.enum !== undefined) return schema.enum.includes(value);
  if (schema.const !== undefined) return schema.const === value;
  const parts = alternatives(schema);
  if (parts.length > 0) return parts.some((part) => nameOf(part) === undefined && canHold(part, value));
  const type = firstType(schema);
  if (Array.isArray(value)) return type === 'array' && schema.items?.type === 'string';
  if (typeof value === 'object') return type === 'object' && schema.properties === undefined;
  if (typeof value === 'number') return type === 'integer' || type === 'number';
  return type === 'string' && typeof value === 'string' && fitsPattern(schema, value);
}

function fitsPattern({ pattern, maxLength = Infinity, minLength = 0 }: Schema, value: string): boolean {
  if (value.length > maxLength || value.length < minLength) return false;
  return pattern === undefined || new RegExp(pattern, 'u').test(value);
}
