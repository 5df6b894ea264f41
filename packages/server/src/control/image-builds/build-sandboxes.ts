/** Creates and destroys the sandboxes of builds. */
import { AppError } from '@coppice/contract';
import { untilAborted } from '../../lib/waiting/deadline.ts';
import type { ImageBuildTable } from '../images/built-image-tables.ts';
import type { CreateSandbox, Sandboxes } from '../sandbox/sandboxes.ts';

export class BuildSandboxes {
  readonly #sandboxes: Pick<Sandboxes, 'create' | 'getDriver'>;
  /** Ids whose creates have not settled. */
  readonly #creating = new Set<string>();

  constructor(sandboxes: Pick<Sandboxes, 'create' | 'getDriver'>) {
    this.#sandboxes = sandboxes;
  }

  /** Rejects as soon as `signal` fires. The create then continues until it is destroyed. */
  async create(create: CreateSandbox, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    this.#creating.add(create.id);
    const creating = this.#sandboxes.create(create).finally(() => this.#creating.delete(create.id));
    creating.catch(() => undefined);
    await untilAborted(signal, creating);
  }

  /** Resolves when the sandbox of a build is gone and no create can bring it back. Rejects if it is not before `signal` fires. */
  async destroy(
    {
      sandbox_id: id,
      organization_id: organizationId,
    }: Pick<ImageBuildTable, 'sandbox_id' | 'organization_id'>,
    signal: AbortSignal,
  ): Promise<void> {
    // A create that has just begun may have no record yet.
    const isSettled = !this.#creating.has(id);
    try {
      const reach = { organizationId, onlyTeamId: null };
      const driver = await this.#sandboxes.getDriver(reach, id, 'destroy');
      await untilAborted(signal, driver.destroy());
    } catch (error) {
      const isGone = error instanceof AppError && ['not_found', 'invalid_state'].includes(error.code);
      if (!isGone) throw error;
    }
    if (isSettled) return;
    throw new AppError('unavailable', `the create of the sandbox ${id} has not ended yet`);
  }
}
