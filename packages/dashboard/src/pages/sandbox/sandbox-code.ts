import { toLiteral, toPython } from '../../ui/snippets.ts';

interface SandboxCall {
  method: string;
  /** Below the sandbox, with its query, such as `/files?path=/tmp`. */
  path: string;
  body?: unknown;
  /** The call, which follows `sandbox.`; `assign` is before it. */
  typescript: string;
  python: string;
}

/** Describes a call of one sandbox for `CopyAsCode`. */
export function describeCall(id: string, { method, path, body, typescript, python }: SandboxCall) {
  return {
    method,
    path: `/v1/runs/${id}${path}`,
    ...(body === undefined ? {} : { body }),
    typescript: `const sandbox = await client.sandboxes.get(${toLiteral(id)});\n${typescript}`,
    python: `sandbox = client.sandboxes.get(${toPython(id)})\n${python}`,
  };
}
