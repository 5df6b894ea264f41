import type { SandboxClient } from './definition/tool.ts';

/** Sandboxes that a session created. */
export class CreatedSandboxes {
  readonly #client: SandboxClient;
  readonly #ids = new Set<string>();

  constructor(client: SandboxClient) {
    this.#client = client;
  }

  add(ids: readonly string[]): void {
    for (const id of ids) this.#ids.add(id);
  }

  /** Destroys those that still exist, within the deadline. Returns the ids of those that could not be destroyed. */
  async destroyAll(deadlineMs: number): Promise<string[]> {
    const signal = AbortSignal.timeout(deadlineMs);
    const failed: string[] = [];
    const destroy = async (id: string): Promise<void> => {
      const sandbox = await this.#client.sandboxes.get(id, { signal });
      if (sandbox?.status === 'running' || sandbox?.status === 'hibernated')
        await sandbox.destroy({ signal });
    };
    await Promise.all([...this.#ids].map((id) => destroy(id).catch(() => failed.push(id))));
    this.#ids.clear();
    return failed;
  }
}
