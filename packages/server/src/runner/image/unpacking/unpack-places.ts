/** Where and as whom preparations of images run: each has a user and a control group that no other one has. */
import { cpus } from 'node:os';
import type { Logger } from 'pino';
import { invariant } from '../../../lib/invariant.ts';
import type { Enclosure } from '../../confinement/cgroup-tree.ts';
import type { Jail } from '../../confinement/jail.ts';
import type { UnitLimits } from '../../confinement/unit-limits.ts';
import { killAndWait, listProcessesOfUids } from '../../host/host-process.ts';

const GIB = 1024 ** 3;
/** For the names of a million files, and what tar2sqfs packs at once. Pages of files count too, and can be given up. */
const MEM_BYTES = 3 * GIB;
/** A preparation yields to sandboxes: the share of a VM with half a vCPU. */
const WEIGHT = 0.5;
/** Threads of Node.js; tar2sqfs has some for each CPU. */
const NODE_TASKS = 128;

interface UnpackPrograms {
  jail: Jail;
  /** Path of Node.js, and of the script `unpack.mjs` that it runs. */
  node: string;
  script: string;
  /** Path of tar2sqfs. */
  tar2sqfs: string;
}

export interface UnpackPlacesOptions extends UnpackPrograms {
  /** Users, as many as preparations run at once; empty where all run as the service's own, ordinary user. */
  uids: readonly number[];
  enclose: (unit: string, limits: UnitLimits) => Promise<Enclosure>;
  /** Whether the images lie in memory, which then counts as that of the preparation. */
  isInMemory: boolean;
  log: Logger;
}

export interface UnpackPlace extends UnpackPrograms {
  log: Logger;
  uid: number | undefined;
  cgroups: readonly string[];
}

export class UnpackPlaces {
  readonly #options: UnpackPlacesOptions;
  readonly #taken = new Set<number>();

  private constructor(options: UnpackPlacesOptions) {
    this.#options = options;
  }

  /** Ends what preparations of an earlier runner process may have left, before anything touches their files. */
  static async open(options: UnpackPlacesOptions): Promise<UnpackPlaces> {
    for (const uid of options.uids) await endAll(uid);
    return new UnpackPlaces(options);
  }

  /**
   * Takes a place until the result is disposed. Throws if a process of its user cannot be ended.
   * @param maxBytes  the most bytes that all its files may have together
   */
  async take(maxBytes: number): Promise<UnpackPlace & AsyncDisposable> {
    const { uids, enclose, isInMemory, log, ...programs } = this.#options;
    const index = this.#findFree();
    this.#taken.add(index);
    try {
      const uid = uids[index];
      if (uid !== undefined) await endAll(uid);
      const { cgroups, release } = await enclose(`image-${index}`, limitsOf(isInMemory ? maxBytes : 0));
      // The next preparation in this place removes a group that is left; this one has its result.
      const free = async (): Promise<void> => {
        await release().catch((error: unknown) => log.warn({ err: error }, 'a control group is left over'));
        this.#taken.delete(index);
      };
      return { ...programs, log, uid, cgroups, [Symbol.asyncDispose]: free };
    } catch (error) {
      this.#taken.delete(index);
      throw error;
    }
  }

  #findFree(): number {
    const { uids } = this.#options;
    let index = 0;
    while (this.#taken.has(index)) index += 1;
    invariant(uids.length === 0 || index < uids.length, 'there are as many users as preparations');
    return index;
  }
}

async function endAll(uid: number): Promise<void> {
  await Promise.all(listProcessesOfUids(uid, uid).map((identity) => killAndWait(identity)));
}

/** The tasks that the two programs of a preparation may have together. */
export function maxTasks(): number {
  return NODE_TASKS + 2 * cpus().length;
}

function limitsOf(fileBytesInMemory: number): UnitLimits {
  return {
    memBytes: MEM_BYTES + fileBytesInMemory,
    cpuPercent: cpus().length * 100,
    weight: WEIGHT,
    tasks: maxTasks(),
  };
}
