/** Reads an environment variable. Node, Bun and Deno provide `process.env`; in a browser the result is undefined. */
export function readEnvironment(name: string): string | undefined {
  const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } };
  return process?.env?.[name];
}
