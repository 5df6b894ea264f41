/** The runners that this control owns, and which of them gets a new VM. */
import { AppError, type ErrorCode } from '@coppice/contract';
import type { Accelerator, VmShape } from '../../lib/protocol/runner-protocol.ts';
import type { RunnerElsewhere } from '../ownership/runner-claims.ts';
import { ElsewhereError } from '../placement/elsewhere.ts';
import { nameOf, type Locality } from './local-images.ts';
import type { OwnedRunner } from './owned-runner.ts';

/** Of the runners that are asked for room after the first one has refused. */
const MAX_WITH_ROOM = 16;
const MAX_WITHOUT_ROOM = 8;
/** Each counts more than the shares of memory, which are below two, and those before it. */
const ROOM_RANK = 2;
const CONNECTED_RANK = 4;
const LEAVING_RANK = 8;

/** A runner with room that is reserved for a VM until this is disposed. */
export interface Place extends Disposable {
  readonly runner: OwnedRunner;
}

/** A VM that is to be placed. `image`: its image, if runners that have it are to be preferred. */
export type WantedPlace = VmShape & { image?: string };

/**
 * An image or a template that a runner has counts like this part of its memory. So a popular image fills a runner only until another
 * one has so much more room, which then prepares the image, too.
 */
const LOCAL_SHARE: Record<Locality, number> = { none: 0, image: 0.15, template: 0.25 };

interface Rated {
  runner: OwnedRunner;
  /** As far as is known here. */
  hasRoom: boolean;
  rank: number;
}

/** Finds a runner of another control with room for a VM. */
export type FindElsewhere = (shape: VmShape) => Promise<string | undefined>;

export class Runners {
  readonly #runners = new Map<string, OwnedRunner>();
  readonly #findElsewhere: FindElsewhere;
  /** A runner of another control that answers; looked for only while none is connected here. */
  elsewhere: RunnerElsewhere | undefined;

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

  /**
   * Returns a runner for work that any of them can do. Without one, throws an {@link ElsewhereError} if another control has one,
   * else `unavailable`.
   */
  any(): OwnedRunner {
    const runner = findBest(this.list().map((one) => ({ runner: one, rank: rankOf(one) })))?.runner;
    if (runner !== undefined) return runner;
    throw this.elsewhere === undefined ? noRunner() : new ElsewhereError(this.elsewhere.id, noRunner());
  }

  /** Throws an {@link ElsewhereError} if only another control has a runner that answers. */
  assertHere(): void {
    if (this.elsewhere !== undefined) throw new ElsewhereError(this.elsewhere.id, noRunner());
  }

  /** Returns the accelerator of new sandboxes. Throws `unavailable` if neither this control nor another one can make any. */
  requireAccelerator(): Accelerator {
    const [runner] = this.listConnected();
    if (runner !== undefined) return runner.status.accelerator;
    if (this.elsewhere !== undefined) return this.elsewhere.accelerator;
    throw new AppError(
      'unavailable',
      'no runner is connected, neither here nor at another control that can be reached',
    );
  }

  /** Returns why sandboxes have no network; undefined if they have one. */
  async findNetworkAbsence(): Promise<string | undefined> {
    const { network, network_reason: reason } = await this.any().client.status();
    return network === 'filtered' ? undefined : reason;
  }

  /**
   * Reserves room for a VM: the runner with the largest share of free memory, to which the image adds where it is, is asked first,
   * and the next ones if it refuses or does not answer. Of many runners only some are asked. Throws an {@link ElsewhereError} if
   * another control has a runner with room, else the refusal of the last one:
   * `invalid_request` for a shape that none can ever have, else `capacity` or `unavailable`.
   */
  async admit(vmId: string, shape: WantedPlace, among?: readonly OwnedRunner[]): Promise<Place> {
    let refusal: AppError = noRunner();
    const image = shape.image === undefined ? undefined : nameOf(shape.image);
    const rank = (runner: OwnedRunner): number =>
      rankOf(runner) + (image === undefined ? 0 : LOCAL_SHARE[runner.images.rate(image, shape)]);
    const open = (among ?? this.list()).filter((runner) => !runner.isCordoned && runner.hasReported);
    for (const runner of listCandidates(open, shape, rank)) {
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

/**
 * Those that are connected come first: the others may be restarting. Those that leave come last: requests for their sandboxes wait.
 */
function rankOf(runner: OwnedRunner): number {
  return (runner.isConnected ? CONNECTED_RANK : 0) + runner.freeShare - (runner.isLeaving ? LEAVING_RANK : 0);
}

/** Yields the runners to ask, the best one first. Usually it accepts, so only then are the others put in order. */
function* listCandidates(
  among: readonly OwnedRunner[],
  shape: VmShape,
  rank: (runner: OwnedRunner) => number,
): Generator<OwnedRunner> {
  const rated = among.map((runner): Rated => {
    const hasRoom = runner.hasRoom(shape);
    return { runner, hasRoom, rank: rank(runner) + (hasRoom ? ROOM_RANK : 0) };
  });
  const best = findBest(rated);
  if (best === undefined) return;
  yield best.runner;
  const others = rated.filter((one) => one !== best).toSorted((a, b) => b.rank - a.rank);
  const leaving = others.filter(({ runner }) => runner.isLeaving).slice(0, MAX_WITHOUT_ROOM);
  const staying = others.filter(({ runner }) => !runner.isLeaving);
  const withRoom = staying.filter(({ hasRoom }) => hasRoom).slice(0, MAX_WITH_ROOM);
  // A runner without room when it last reported may have some now, but not each of a thousand can be asked.
  const withoutRoom = staying.filter(({ hasRoom }) => !hasRoom);
  const last = [...withoutRoom.slice(0, MAX_WITHOUT_ROOM - leaving.length), ...leaving];
  for (const { runner } of [...withRoom, ...last]) yield runner;
}

function findBest<T extends Pick<Rated, 'rank'>>(rated: readonly T[]): T | undefined {
  let best: T | undefined;
  for (const one of rated) if (best === undefined || one.rank > best.rank) best = one;
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
