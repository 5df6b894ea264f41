/** A call of the API as a person would write it: for curl, and with both clients. */
export interface Snippet {
  curl: string;
  typescript: string;
  python: string;
}

interface Call {
  method: string;
  /** Path with its query, such as `/v1/runs?limit=10`. */
  path: string;
  body?: unknown;
  /** Name of a file that is sent as the body. */
  file?: string;
  /** Name of a file for the body of the answer. */
  output?: string;
  /** Statements after the client has been made. */
  typescript: string;
  python: string;
}

const PLACEHOLDER = '$SANDBOX_API_KEY';

/** Writes a call in the three languages. The key is a variable: a copied text must not contain a secret. */
export function writeSnippet(call: Call, origin: string): Snippet {
  const { method, path, body, file, output, typescript, python } = call;
  const lines = [`curl ${method === 'GET' ? '' : `-X ${method} `}${quote(origin + path)}`];
  lines.push(`  -H "Authorization: Bearer ${PLACEHOLDER}"`);
  if (body !== undefined)
    lines.push(`  -H 'Content-Type: application/json'`, `  -d ${quote(JSON.stringify(body))}`);
  if (file !== undefined) lines.push(`  -T ${quote(file)}`);
  if (output !== undefined) lines.push(`  -o ${quote(output)}`);
  return {
    curl: lines.join(' \\\n'),
    typescript: [
      `import { Coppice } from '@coppice/sdk';`,
      '',
      `const client = new Coppice({ baseUrl: ${toLiteral(origin)}, apiKey: process.env.SANDBOX_API_KEY });`,
      typescript,
    ].join('\n'),
    python: [
      'import os',
      'from coppice import Coppice',
      '',
      `client = Coppice(base_url=${toPython(origin)}, api_key=os.environ["SANDBOX_API_KEY"])`,
      python,
    ].join('\n'),
  };
}

/** Quotes a text for a POSIX shell. */
export function quote(text: string): string {
  return /^[\w@%+=:,./-]+$/u.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** Writes a value as TypeScript, on one line. Names without need for quotes have none. */
export function toLiteral(value: unknown): string {
  if (typeof value === 'string')
    return `'${JSON.stringify(value).slice(1, -1).replaceAll('\\"', '"').replaceAll("'", "\\'")}'`;
  if (Array.isArray(value)) return `[${value.map(toLiteral).join(', ')}]`;
  if (value !== null && typeof value === 'object') {
    const fields = Object.entries(value)
      .filter(([, field]) => field !== undefined)
      .map(
        ([name, field]) =>
          `${/^[A-Za-z_$][\w$]*$/u.test(name) ? name : toLiteral(name)}: ${toLiteral(field)}`,
      );
    return fields.length === 0 ? '{}' : `{ ${fields.join(', ')} }`;
  }
  return String(value);
}

/** Writes a value as Python, on one line. */
export function toPython(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value);
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  if (value === null || value === undefined) return 'None';
  if (Array.isArray(value)) return `[${value.map(toPython).join(', ')}]`;
  if (typeof value === 'object')
    return `{${Object.entries(value)
      .filter(([, field]) => field !== undefined)
      .map(([name, field]) => `${toPython(name)}: ${toPython(field)}`)
      .join(', ')}}`;
  return JSON.stringify(value);
}

/** Writes keyword arguments of a Python call, with a comma between; names in snake_case. */
export function toPythonArguments(options: Readonly<Record<string, unknown>>): string {
  return Object.entries(options)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${toSnakeCase(name)}=${toPython(value)}`)
    .join(', ');
}

function toSnakeCase(name: string): string {
  return name.replaceAll(/MiB|[A-Z]/gu, (word) => `_${word.toLowerCase()}`);
}
