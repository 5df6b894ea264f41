import { toLiteral, toPython, type writeSnippet } from '../../ui/snippets.ts';

type Code = Parameters<typeof writeSnippet>[0];

interface SandboxCall {
  id: string;
  method: string;
  /** Below the path of the sandbox, for example `/fork`. */
  path?: string;
  body?: unknown;
  /** Statements that have the sandbox as `sandbox`. */
  typescript: string;
  python: string;
}

/** Returns a call of one sandbox as code. */
export function codeOf({ id, method, path = '', body, typescript, python }: SandboxCall): Code {
  return {
    method,
    path: `/v1/runs/${id}${path}`,
    ...(body === undefined ? {} : { body }),
    typescript: `const sandbox = await client.sandboxes.get(${toLiteral(id)});\n${typescript}`,
    python: `sandbox = client.sandboxes.get(${toPython(id)})\n${python}`,
  };
}
