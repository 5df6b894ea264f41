/** The images of all runners: each of them stores those that were prepared or built there. */
import { AppError } from '@coppice/contract';
import type {
  OwnedImage,
  PreparedImage,
  PrepareProgress,
  StoredConfig,
} from '../../lib/protocol/runner-protocol.ts';
import type { NewImage } from '../placement/runner-client.ts';
import type { OwnedRunner } from '../runners/owned-runner.ts';
import type { Runners } from '../runners/runners.ts';

export class FleetImages {
  readonly #runners: Runners;

  constructor(runners: Runners) {
    this.#runners = runners;
  }

  /** Returns a stored image. Throws `image_not_found` if no runner has it. */
  async find(digest: string): Promise<StoredConfig> {
    const found = await this.#askAll(({ client }) => findImage(client.images.find(digest)));
    const image = found.find((one) => one !== undefined);
    if (image !== undefined) return image;
    throw new AppError('image_not_found', `no runner stores the image ${digest}`);
  }

  /**
   * Returns the runners that store an image: those of which a sandbox of it can be made without a registry. `builtAt`: the runner that
   * is said to have it.
   */
  async listHolders(digest: string, builtAt: string | null): Promise<OwnedRunner[]> {
    const runners = this.#runners.list();
    const [only] = runners;
    if (only === undefined) return [];
    // It says itself what it lacks.
    if (runners.length === 1 && (builtAt === null || builtAt === only.id)) return runners;
    const found = await this.#askAll(async (runner) =>
      (await findImage(runner.client.images.find(digest))) === undefined ? undefined : runner,
    );
    return found.filter((runner) => runner !== undefined);
  }

  placeOf(runnerId: string): 'here' | 'away' | 'elsewhere' {
    const runner = this.#runners.find(runnerId);
    if (runner === undefined) return 'elsewhere';
    return runner.isConnected ? 'here' : 'away';
  }

  /**
   * Protects an image of an organization from eviction, at one runner: the one that is said to have it, or else any that has. Returns its id;
   * undefined if no runner stores it.
   */
  async keep(digest: string, organization: string, builtAt: string | null): Promise<string | undefined> {
    const named = this.#runners.find(builtAt ?? '');
    if (named?.isConnected === true && (await named.client.images.keep(digest, organization, true)))
      return named.id;
    for (const { id, client } of await this.listHolders(digest, null))
      if (await client.images.keep(digest, organization, true)) return id;
    return undefined;
  }

  /** Lets all runners evict an image of an organization. It need not exist. */
  async expose(digest: string, organization: string): Promise<void> {
    await this.#tellAll(({ client }) => client.images.keep(digest, organization, false));
  }

  /** Returns the runners that fetch an image from the object store when they lack it. */
  listFetching(): OwnedRunner[] {
    return this.#runners.list().filter((runner) => runner.fetchesImages);
  }

  /** Whether all runners fetch what they lack, of those that have reported: others get no sandboxes. */
  get allFetch(): boolean {
    return this.#runners.list().every((runner) => !runner.hasReported || runner.fetchesImages);
  }

  /** Gives up an image that was built. It need not exist. */
  async release(digest: string): Promise<void> {
    await this.#tellAll(({ client }) => client.images.release(digest));
  }

  /** Lists images that organizations have built: of one, of one build, or all. */
  async listOwned(asked: { organization?: string; build?: string }): Promise<OwnedImage[]> {
    return mergeImages(await this.#askAll(({ client }) => client.images.listOwned(asked)), (one, other) => ({
      kept: one.kept || other.kept,
      released: one.released || other.released,
      linked: one.linked || other.linked,
    }));
  }

  async listPrepared(): Promise<PreparedImage[]> {
    return mergeImages(await this.#askAll(({ client }) => client.listImages()));
  }

  /**
   * Has all runners prepare an image. Yields what the first of them reports, and its end when all have ended. Whether the others
   * succeed does not count: they prepare it again when they need it.
   */
  async *prepare(image: NewImage, signal: AbortSignal): AsyncGenerator<PrepareProgress> {
    const first = this.#runners.any();
    const others = this.#runners.listConnected().filter((runner) => runner !== first);
    const done = Promise.allSettled(others.map((runner) => drain(runner.client.prepareImage(image, signal))));
    for await (const event of first.client.prepareImage(image, signal)) {
      if (event.type === 'done') await done;
      yield event;
    }
  }

  /** Asks the runners, and returns the answers of those that answer. Throws if none does. */
  async #askAll<T>(ask: (runner: OwnedRunner) => Promise<T>): Promise<T[]> {
    const runners = this.#reachable();
    const answers = await Promise.allSettled(runners.map(ask));
    const given = answers.flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value] : []));
    const failed = answers.find((answer) => answer.status === 'rejected');
    if (given.length === 0 && failed !== undefined) throw failed.reason;
    return given;
  }

  /** Asks all runners. Throws if one that is connected does not answer. Others expose the image hourly. */
  #tellAll<T>(tell: (runner: OwnedRunner) => Promise<T>): Promise<T[]> {
    return Promise.all(this.#reachable().map(tell));
  }

  /**
   * Returns those that are connected, or one that may be restarting. Throws an ElsewhereError if only another control has one that
   * answers.
   */
  #reachable(): OwnedRunner[] {
    const connected = this.#runners.listConnected();
    if (connected.length > 0) return connected;
    this.#runners.assertHere();
    return [this.#runners.any()];
  }
}

async function findImage(asked: Promise<StoredConfig>): Promise<StoredConfig | undefined> {
  try {
    return await asked;
  } catch (error) {
    if (error instanceof AppError && error.code === 'image_not_found') return undefined;
    throw error;
  }
}

/** Counts each image once, with what all runners have of it. */
function mergeImages<T extends PreparedImage | OwnedImage>(
  lists: readonly (readonly T[])[],
  merge: (one: T, other: T) => Partial<T> = () => ({}),
): T[] {
  const merged = new Map<string, T>();
  for (const image of lists.flat()) {
    const known = merged.get(image.digest);
    const both = known && { ...known, ...merge(known, image), shapes: mergeShapes(known, image) };
    merged.set(image.digest, both ?? image);
  }
  return [...merged.values()];
}

type Shapes = PreparedImage['shapes'];

function mergeShapes(one: { shapes: Shapes }, other: { shapes: Shapes }): Shapes {
  const shapes = new Map([...one.shapes, ...other.shapes].map((shape) => [JSON.stringify(shape), shape]));
  return [...shapes.values()];
}

async function drain(events: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of events);
}
