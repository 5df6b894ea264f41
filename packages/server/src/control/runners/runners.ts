/** The runners that this control owns, and which of them gets a new VM. */
import { AppError, type ErrorCode } from '@coppice/contract';
import type { VmShape } from '../../lib/protocol/runner-protocol.ts';
import { ElsewhereError } from '../placement/elsewhere.ts';
import type { OwnedRunner } from './owned-runner.ts';

/** Of the runners that are asked for room after the first one has refused. */
const MAX_WITH_ROOM = 16;
const MAX_WITHOUT_ROOM = 8;

/** A runner with room that is reserved for a VM until this is disposed. */
export interface Place extends Disposable {
  readonly runner: OwnedRunner;
}

/** Finds a runner of another control with room for a VM. */
export type FindElsewhere = (shape: VmShape) => Promise<string | undefined>;

export class Runners {
  readonly #runners = new Map<string, OwnedRunner>();
  readonly #findElsewhere: FindElsewhere;

  constructor(findElsewhere: FindElsewhere = async () => undefined) {
    this.#findElsewhere = findElsewhere;
  }

  add(runner: OwnedRunner): void {
    this.#runners.set(runner.id, runner);
  }

  delete(id: string): void {
    this.#runners.delete(id);
  }

  find(id: string): OwnedRunner | undefined {
    return this.#runners.get(id);
  }

  /** Throws an {@link ElsewhereError} if this control does not own the runner. */
  get(id: string | null): OwnedRunner {
    const runner = this.#runners.get(id ?? '');
    if (runner !== undefined) return runner;
    if (id !== null) throw new ElsewhereError(id);
    throw new AppError('unavailable', 'the runner of the sandbox is not connected; try again');
  }

  list(): OwnedRunner[] {
    return [...this.#runners.values()];
  }

  /** Returns the runners whose events arrive. */
  listConnected(): OwnedRunner[] {
    return this.list().filter((runner) => runner.isConnected);
  }

  /** Returns a runner for work that any of them can do. Throws `unavailable` without one. */
  any(): OwnedRunner {
    const runner = findBest(this.list(), rank);
    if (runner === undefined) throw noRunner();
    return runner;
  }

  /** Returns why sandboxes have no network; undefined if they have one. */
  async findNetworkAbsence(): Promise<string | undefined> {
    const { network, network_reason: reason } = await this.any().client.status();
    return network === 'filtered' ? undefined : reason;
  }

  /**
   * Reserves room for a VM: the runner with the largest share of free memory is asked first, and the next ones if it refuses or
   * does not answer. Of many runners only some are asked. Throws an {@link ElsewhereError} if another control has a runner with room, else the refusal of the last one:
   * `invalid_request` for a shape that none can ever have, else `capacity` or `unavailable`.
   */
  async admit(vmId: string, shape: VmShape, among?: readonly OwnedRunner[]): Promise<Place> {
    let refusal: AppError = noRunner();
    const open = (among ?? this.list()).filter((runner) => !runner.isCordoned && runner.hasReported);
    for (const runner of listCandidates(open, shape)) {
      try {
        const admission = await runner.admit(vmId, shape);
        return { runner, [Symbol.dispose]: () => admission[Symbol.dispose]() };
      } catch (error) {
        if (!(error instanceof AppError) || !isRefusal(error)) throw error;
        refusal = choose(refusal, error);
      }
    }
    const elsewhere = among === undefined ? await this.#findElsewhere(shape) : undefined;
    throw elsewhere === undefined ? refusal : new ElsewhereError(elsewhere, refusal);
  }
}

/** Those that are connected come first: the others may be restarting. */
function rank(runner: OwnedRunner): number {
  return (runner.isConnected ? 4 : 0) + runner.freeShare;
}

/** Yields the runners to ask, the best one first. Usually it accepts, so only then are the others put in order. */
function* listCandidates(among: readonly OwnedRunner[], shape: VmShape): Generator<OwnedRunner> {
  const rankFor = (runner: OwnedRunner): number => rank(runner) + (runner.hasRoom(shape) ? 2 : 0);
  const best = findBest(among, rankFor);
  if (best === undefined) return;
  yield best;
  const ranked = among.map((runner) => ({ runner, rank: rankFor(runner) }));
  const others = ranked.toSorted((a, b) => b.rank - a.rank).map(({ runner }) => runner);
  const next = others.filter((runner) => runner !== best && runner.hasRoom(shape));
  yield* next.slice(0, MAX_WITH_ROOM);
  // A runner without room when it last reported may have some now, but not each of a thousand can be asked.
  yield* others.filter((runner) => runner !== best && !runner.hasRoom(shape)).slice(0, MAX_WITHOUT_ROOM);
}

function findBest(
  among: readonly OwnedRunner[],
  rankOf: (runner: OwnedRunner) => number,
): OwnedRunner | undefined {
  let best: OwnedRunner | undefined;
  let highest = -Infinity;
  for (const runner of among) {
    const ranked = rankOf(runner);
    if (best !== undefined && ranked <= highest) continue;
    best = runner;
    highest = ranked;
  }
  return best;
}

const TRIED_ELSEWHERE: ReadonlySet<ErrorCode> = new Set([
  'capacity',
  'invalid_request',
  'unavailable',
  'outcome_unknown',
]);

/** Returns whether another runner may accept what this one has refused. */
export function isRefusal(error: AppError): boolean {
  return TRIED_ELSEWHERE.has(error.code);
}

/** A runner that is only full now says more than one that is too small or away. */
function choose(first: AppError, next: AppError): AppError {
  return first.code === 'capacity' ? first : next;
}

function noRunner(): AppError {
  return new AppError('unavailable', 'no runner is connected; try again');
}
