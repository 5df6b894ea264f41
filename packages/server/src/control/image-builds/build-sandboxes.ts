/** Creates and destroys the sandboxes of builds. */
import { AppError, isFinal } from '@coppice/contract';
import { untilAborted } from '../../lib/waiting/deadline.ts';
import type { ImageBuildTable } from '../images/built-image-tables.ts';
import type { CreateSandbox, Sandboxes } from '../sandbox/sandboxes.ts';

export class BuildSandboxes {
  readonly #sandboxes: Pick<Sandboxes, 'create' | 'find' | 'getDriver'>;
  /** Ids whose creates have not settled. */
  readonly #creating = new Set<string>();

  constructor(sandboxes: Pick<Sandboxes, 'create' | 'find' | 'getDriver'>) {
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
    const reach = { organizationId, onlyTeamId: null };
    try {
      const driver = await this.#sandboxes.getDriver(reach, id, 'destroy');
      await untilAborted(signal, driver.destroy());
    } catch (error) {
      const isGone = error instanceof AppError && ['not_found', 'invalid_state'].includes(error.code);
      if (!isGone) throw error;
      const record = await this.#sandboxes.find(reach, id);
      // It is at a runner that this control does not have.
      if (record !== undefined && !isFinal(record.status)) throw stillThere(id, error);
    }
    if (isSettled) return;
    throw new AppError('unavailable', `the create of the sandbox ${id} has not ended yet`);
  }
}

function stillThere(id: string, cause: unknown): AppError {
  return new AppError('unavailable', `the sandbox ${id} has not ended yet`, { cause });
}
