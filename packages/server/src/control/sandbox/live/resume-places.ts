/**
 * Where a hibernated sandbox resumes. Its own runner has the files, and comes first. If its capture is in the object store,
 * any other runner with room will do:
 *
 *     own runner ─► another one of this control ─► one of another control ─► own runner, although it is cordoned
 *        │ away, cordoned, or it refuses   │ none, or they refuse   │ none
 *
 * While a VM may exist, as the outcome of a resume is not known, only its own runner may resume it.
 */
import { AppError } from '@coppice/contract';
import type { OwnedRunner } from '../../runners/owned-runner.ts';
import {
  isRefusal,
  type FindElsewhere,
  type Place,
  type Runners,
  type WantedPlace,
} from '../../runners/runners.ts';
import type { CaptureObjectStore } from '../../snapshots/capture-object-store.ts';
import type { SandboxRow } from '../record/sandbox-tables.ts';

/** Of one resume; each of them may fetch the capture first. */
const MAX_ATTEMPTS = 4;

export interface ResumePlacesParts {
  runners: Pick<Runners, 'listConnected' | 'admit'>;
  findElsewhere: FindElsewhere;
  captureObjects: Pick<CaptureObjectStore, 'isStored'>;
  /** Whether other runners and controls may exist. */
  isShared: boolean;
}

/** A resume that is being placed. */
export interface Placing {
  row: Readonly<SandboxRow>;
  /** That of the sandbox now. */
  home: OwnedRunner;
  /** Why runners did not resume it, by their ids. */
  failures: ReadonlyMap<string, unknown>;
  /** Whether a VM may exist there. */
  isPinned: boolean;
}

export class ResumePlaces {
  readonly #parts: ResumePlacesParts;

  constructor(parts: ResumePlacesParts) {
    this.#parts = parts;
  }

  /** Returns the runner, or the id of one of another control. Throws the last failure if there is none. */
  async find(placing: Placing): Promise<Place | string> {
    const { row, home, failures, isPinned } = placing;
    const isFirst = failures.size === 0;
    if (isFirst && (isPinned || (home.isConnected && !home.isCordoned))) return at(home);
    if (isPinned || failures.size >= MAX_ATTEMPTS || !(await this.#isStored(row))) {
      if (isFirst) return at(home);
      throw [...failures.values()].at(-1);
    }
    const place = await this.#findOther(placing);
    if (place !== undefined) return place;
    if (!failures.has(home.id)) return at(home);
    throw [...failures.values()].at(-1);
  }

  /** Explains a resume that failed because its runner does not answer. */
  async explain({ row, home, isPinned }: Placing, error: unknown): Promise<unknown> {
    const isAway = this.#parts.isShared && !home.isConnected;
    if (!isAway || !(error instanceof AppError) || error.code !== 'unavailable') return error;
    const reason = isPinned
      ? 'may have begun to resume the sandbox, so no other runner does it before that one is back or revoked'
      : (await this.#isStored(row))
        ? 'has the sandbox, and no other runner has room for it'
        : 'has the only copy of the saved sandbox, which is not in the object store yet';
    const message = `the runner ${home.id} does not answer; it ${reason}; start that machine again`;
    return new AppError('unavailable', message, { cause: error, details: { runner_id: home.id } });
  }

  async #findOther({ row, home, failures }: Placing): Promise<Place | string | undefined> {
    const others = this.#parts.runners
      .listConnected()
      .filter((runner) => runner !== home && !failures.has(runner.id));
    const { vcpus, mem_mib, disk_mib, image } = row;
    const shape: WantedPlace = { vcpus, mem_mib, disk_mib, image };
    if (others.length > 0)
      try {
        return await this.#parts.runners.admit(row.id, shape, others);
      } catch (error) {
        if (!(error instanceof AppError) || !isRefusal(error)) throw error;
      }
    return this.#parts.findElsewhere(shape);
  }

  async #isStored({ hibernation_id: id }: Pick<SandboxRow, 'hibernation_id'>): Promise<boolean> {
    return this.#parts.isShared && id !== null && (await this.#parts.captureObjects.isStored(id));
  }
}

/** Its runner makes sure itself that there is room. */
function at(runner: OwnedRunner): Place {
  return { runner, [Symbol.dispose]: () => undefined };
}
