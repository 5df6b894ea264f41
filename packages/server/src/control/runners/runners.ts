/** The runners that this control owns, and which of them gets a new VM. */
import { AppError, type ErrorCode } from '@coppice/contract';
import type { Accelerator, VmShape } from '../../lib/protocol/runner-protocol.ts';
import type { RunnerElsewhere } from '../ownership/runner-claims.ts';
import { ElsewhereError } from '../placement/elsewhere.ts';
import type { Locality } from './local-images.ts';
import type { OwnedRunner } from './owned-runner.ts';

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
    const [runner] = this.#inOrder();
    if (runner !== undefined) return runner;
    throw this.elsewhere === undefined ? noRunner() : new ElsewhereError(this.elsewhere.id, noRunner());
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
   * and the next one if it refuses or does not answer. Throws an {@link ElsewhereError} if another control has a runner with room, else the refusal of the last one:
   * `invalid_request` for a shape that none can ever have, else `capacity` or `unavailable`.
   */
  async admit(vmId: string, shape: WantedPlace, among?: readonly OwnedRunner[]): Promise<Place> {
    let refusal: AppError = noRunner();
    const { image } = shape;
    const localShare = ({ images }: OwnedRunner): number =>
      image === undefined ? 0 : LOCAL_SHARE[images.rate(image, shape)];
    for (const runner of this.#inOrder(among ?? this.list(), localShare)) {
      if (runner.isCordoned || !runner.hasReported) continue;
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

  /** Those that are connected come first: the others may be restarting. Those that leave come last. */
  #inOrder(
    among: readonly OwnedRunner[] = this.list(),
    localShare: (runner: OwnedRunner) => number = () => 0,
  ): OwnedRunner[] {
    const rank = (runner: OwnedRunner): number =>
      (runner.isConnected ? 1 : 0) + (runner.freeShare + localShare(runner)) / 2 - (runner.isLeaving ? 2 : 0);
    return among.toSorted((a, b) => rank(b) - rank(a));
  }
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
