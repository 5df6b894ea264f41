/** Hibernated sandboxes without a driver here that this control may take: others must be asked for the rest. */
import { AppError } from '@coppice/contract';
import type { RunnerClaims } from '../../ownership/runner-claims.ts';
import type { Runners } from '../../runners/runners.ts';
import type { SandboxRow } from '../record/sandbox-tables.ts';
import type { SandboxStore } from '../record/sandbox-store.ts';
import type { LiveDrivers } from './live-drivers.ts';
import type { SandboxDriver } from './sandbox-driver.ts';

export interface LeftSandboxesParts {
  drivers: Pick<LiveDrivers, 'take'>;
  runners: Pick<Runners, 'listConnected'>;
  claims: Pick<RunnerClaims, 'isOwned'>;
  store: Pick<SandboxStore, 'move'>;
  /** Id of this control. */
  control: string;
}

export class LeftSandboxes {
  readonly #parts: LeftSandboxesParts;

  constructor(parts: LeftSandboxesParts) {
    this.#parts = parts;
  }

  /** Returns undefined if another control has the sandbox, or will have it, or if it is only at its runner. */
  async take(row: SandboxRow): Promise<SandboxDriver | undefined> {
    const { drivers, claims } = this.#parts;
    if (row.status !== 'hibernated' || row.runner_id === null) return undefined;
    const own = await drivers.take(row);
    if (own !== undefined || row.is_resuming || (await claims.isOwned(row.runner_id))) return own;
    const moved = await this.#move(row, row.runner_id);
    return moved && (await drivers.take(moved));
  }

  /** The runner is of the machine of a control that is gone: no other control reaches it. */
  async #move(row: SandboxRow, from: string): Promise<SandboxRow | undefined> {
    const { runners, store, control } = this.#parts;
    const [heir] = runners.listConnected().toSorted((a, b) => b.freeShare - a.freeShare);
    if (heir === undefined) return undefined;
    const to = { id: heir.id, epoch: heir.client.epoch };
    try {
      return await store.move(row, { kind: 'take', control, from, to });
    } catch (error) {
      if (error instanceof AppError && error.code === 'unavailable') return undefined;
      throw error;
    }
  }
}
