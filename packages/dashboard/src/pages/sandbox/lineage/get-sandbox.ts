import type { Coppice, Sandbox } from '../../../../../sdk/src/index.ts';

export async function getSandbox(client: Coppice, id: string, signal?: AbortSignal): Promise<Sandbox> {
  const sandbox = await client.sandboxes.get(id, { signal });
  if (sandbox === null) throw new Error(`The sandbox ${id} no longer exists.`);
  return sandbox;
}
